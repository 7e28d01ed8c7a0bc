"""State parts <-> one flat event vector, and stand-ins for TFP's private state helpers.

A Markov chain state is a tensor or a list/tuple of tensors, each `[batch..., event_i...]`. Geometry lives on the
concatenation of the flattened events: one vector `q: [batch..., D]` with `D = sum_i prod(event_i)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfp_rmhmc.argument import shown, static_real

__all__ = ['StateLayout', 'check_parts', 'is_list_like', 'state_parts']


def is_list_like(x: Any) -> bool:
    """Whether `x` is a list or tuple of parts, the nested structure that TFP's kernels accept."""
    return isinstance(x, (list, tuple))


def state_parts(state: Any, name: str = 'current_state') -> list[tf.Tensor]:
    """The tensors of a state, as a list; refuses dicts, deeper nests and non-floating dtypes."""
    sentence = f'`{name}` must be a tensor or a flat list of tensors, got {type(state).__name__}: {shown(state)}.'
    if isinstance(state, dict) or (is_list_like(state) and any(is_list_like(s) or isinstance(s, dict) for s in state)):
        raise TypeError(sentence)
    if is_list_like(state) and not state:
        raise ValueError(f'`{name}` must have at least one part, got an empty list.')
    try:
        parts = [tf.convert_to_tensor(s, name=name) for s in (state if is_list_like(state) else [state])]
    except (TypeError, ValueError):
        raise TypeError(sentence) from None
    dtypes = {part.dtype for part in parts}
    if len(dtypes) > 1:
        raise TypeError(f'All parts of `{name}` must share one dtype, got {[p.dtype.name for p in parts]}.')
    if not parts[0].dtype.is_floating:
        raise TypeError(f'`{name}` must have a floating-point dtype, got {parts[0].dtype.name}.')
    if parts[0].dtype not in (tf.float32, tf.float64):
        raise TypeError(f'`{name}` must be of float32 or float64, got {parts[0].dtype.name}.')
    if any(part.shape.num_elements() == 0 for part in parts):
        raise ValueError(f'`{name}` must have coordinates, got parts of shapes {[str(part.shape) for part in parts]}.')
    return parts


def check_parts(name: str, structure: Any, dtypes: Sequence[tf.DType] | None = None) -> None:
    """Raises unless a nest is made of arrays or tensors of real numbers.

    Args:
      name: of the argument.
      structure: a tensor or a nest of tensors.
      dtypes: that they may have, all of them the same; None for any.
    """
    what = 'a nest of arrays of real numbers'
    try:
        flat = tf.nest.flatten(structure)
    except TypeError:  # keys that cannot be sorted
        flat = []
    arrays = [static_real(name, part, what) for part in flat]
    if not arrays or any(array is not None and array.size == 0 for array in arrays):
        raise ValueError(f'`{name}` must be {what}, got {shown(structure)}.')
    found = {tf.as_dtype(part.dtype if array is None else array.dtype) for part, array in zip(flat, arrays, strict=True)}
    if dtypes is not None and not (len(found) == 1 and found <= set(dtypes)):
        raise TypeError(f'`{name}` must be of {" or ".join(d.name for d in dtypes)}, got {shown(structure)}.')


class StateLayout:
    """Where each state part sits in the flat vector `[batch..., D]`.

    Event shapes are static (the geometry needs D at trace time); batch dimensions may be unknown until run time.

    Args:
      parts: list of tensors, each `[batch..., event_i...]`, or with `batch_rank` leading dimensions of any size.
      batch_rank: number of leading batch dimensions, the rank of the log density.
    """

    def __init__(self, parts: Sequence[tf.Tensor], batch_rank: int):
        self.batch_rank = batch_rank
        self.dtype = parts[0].dtype
        self.event_shapes = []
        for i, part in enumerate(parts):
            shape = part.shape
            if shape.rank is None or not shape[batch_rank:].is_fully_defined():
                raise ValueError(f'State part {i} must have a static event shape, got shape {shape}.')
            self.event_shapes.append(shape[batch_rank:].as_list())
        self.sizes = [math.prod(event) for event in self.event_shapes]

    @classmethod
    def of(cls, parts: Sequence[tf.Tensor], log_prob: tf.Tensor) -> StateLayout:
        """The layout of `parts` whose log density is `log_prob: [batch...]`; checks that the two agree."""
        batch_shape = log_prob.shape
        if batch_shape.rank is None:
            raise ValueError('`target_log_prob_fn` must return a tensor of static rank, got unknown rank.')
        for i, part in enumerate(parts):
            rank_fits = part.shape.rank is not None and part.shape.rank >= batch_shape.rank
            if not rank_fits or not part.shape[: batch_shape.rank].is_compatible_with(batch_shape):
                raise ValueError(
                    f'`target_log_prob_fn` must return one value per chain, shaped like the leading dimensions of every '
                    f'state part; it returned shape {batch_shape} for part {i} of shape {part.shape}.'
                )
        return cls(parts, batch_shape.rank)

    @property
    def dimension(self) -> int:
        """D, the length of the flat event vector."""
        return sum(self.sizes)

    def flatten(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """`[batch..., event_i...]` for each part -> `[batch..., D]`."""
        columns = []
        for part, event, size in zip(parts, self.event_shapes, self.sizes, strict=True):
            batch = _leading_shape(part, len(event))
            columns.append(tf.reshape(part, _concat_shape(batch, [size])))
        return columns[0] if len(columns) == 1 else tf.concat(columns, axis=-1)

    def unflatten(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """`[batch..., D]` -> `[batch..., event_i...]` for each part."""
        batch = _leading_shape(flat, 1)
        columns = [flat] if len(self.sizes) == 1 else tf.split(flat, self.sizes, axis=-1)
        return [
            tf.reshape(column, _concat_shape(batch, event))
            for column, event in zip(columns, self.event_shapes, strict=True)
        ]

    def flat_step_size(self, step_size: Any, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """A step size that broadcasts with the flat vector: a scalar, or `[batch..., D]`.

        Args:
          step_size: a scalar, a tensor that broadcasts with the (single) state part, or a list with one of these per part.
          parts: the state parts, for their shapes.
        """
        steps = list(step_size) if is_list_like(step_size) else [step_size]
        if len(steps) not in (1, len(parts)):
            raise ValueError(
                'There should be exactly one `step_size` or it should have same length as `current_state`; '
                f'got {len(steps)} step sizes for {len(parts)} parts.'
            )
        steps = [self._as_state(step) for step in steps]
        if len(steps) == 1 and steps[0].shape.rank == 0:
            return steps[0]
        if len(steps) == 1:
            steps = steps * len(parts)
        for step, part in zip(steps, parts, strict=True):
            if not _broadcasts(step.shape, part.shape):
                raise ValueError(f'`step_size` must broadcast to shape {part.shape} of the state, got shape {step.shape}.')
        return self.flatten(
            [
                tf.broadcast_to(step, _concat_shape(_leading_shape(part, 0), []))
                for step, part in zip(steps, parts, strict=True)
            ]
        )

    def stored_step_size(self, step_size: Any) -> Any:
        """A step size as kernel results hold it: in the structure in which it was given, and the state's dtype."""
        return tf.nest.map_structure(self._as_state, step_size) if is_list_like(step_size) else self._as_state(step_size)

    def _as_state(self, step: Any) -> tf.Tensor:
        return tf.cast(tf.convert_to_tensor(step, dtype_hint=self.dtype), self.dtype, name='step_size')


def _broadcasts(shape: tf.TensorShape, to: tf.TensorShape) -> bool:
    """Whether a shape broadcasts to another, as far as is known."""
    if shape.rank is None or to.rank is None:
        return True
    pairs = zip(reversed(shape.as_list()), reversed(to.as_list()), strict=False)
    return shape.rank <= to.rank and all(x in (None, 1, y) or y is None for x, y in pairs)


def _leading_shape(x: tf.Tensor, num_trailing: int) -> Any:
    """The shape of `x` without its last `num_trailing` dimensions: a list if static, else a tensor."""
    rank = x.shape.rank - num_trailing
    static = x.shape[:rank]
    return static.as_list() if static.is_fully_defined() else tf.shape(x)[:rank]


def _concat_shape(leading: Any, trailing: list[int]) -> Any:
    if isinstance(leading, list):
        return leading + trailing
    return tf.concat([leading, tf.constant(trailing, leading.dtype)], axis=0)
