"""Log densities that are sums over data: mini-batches from a file, or shards on several devices.

    l(q) = base(q) + sum_b term(b, q)

Value, gradient and Hessian are linear in l, so each is itself a sum over the data, which `apply` makes in one pass. The
derivatives of these sums are sums of vector-Jacobian products: one more pass over the data for each reverse pass. So no
batch has to stay in memory after its turn, at any order of derivative.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfp_rmhmc import autodiff

__all__ = ['SumOverBatches', 'SumOverData', 'SumOverReplicas']

_Term = Callable[..., Any]


class SumOverData(abc.ABC):
    """A `target_log_prob_fn` that adds up terms, one for each piece of the data.

    Args:
      term_fn: takes a piece of the data and the state parts, and returns the piece's share `[batch...]`.
      base_fn: the share that needs no data, such as a log prior: takes the state parts. Optional.
    """

    def __init__(self, term_fn: _Term, base_fn: Callable[..., tf.Tensor] | None = None):
        if not callable(term_fn):
            raise TypeError(f'`term_fn` must be callable, got {term_fn!r}.')
        if base_fn is not None and not callable(base_fn):
            raise TypeError(f'`base_fn` must be callable, got {base_fn!r}.')
        self._term_fn = term_fn
        self._base_fn = base_fn

    @property
    def is_chief(self) -> bool:
        """Whether this process writes files. Where several processes work together, the first one does."""
        return True

    @abc.abstractmethod
    def _total(self, fn: _Term, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The sum of the list `fn(piece, *arguments)` over all pieces; need not be differentiable."""

    def sum(self, fn: _Term, *arguments: tf.Tensor) -> list[tf.Tensor]:
        """The sum of the list of tensors `fn(piece, *arguments)` over all pieces, differentiable in the arguments."""

        @tf.custom_gradient
        def total(*arguments: tf.Tensor) -> Any:
            def gradient(*cotangents: tf.Tensor) -> list[tf.Tensor]:
                def pull_back(piece: Any, *both: tf.Tensor) -> list[tf.Tensor]:
                    upstream, inputs = list(both[: len(cotangents)]), list(both[len(cotangents) :])
                    with tf.GradientTape() as tape:
                        tape.watch(inputs)
                        outputs = fn(piece, *inputs)
                    return tape.gradient(
                        outputs,
                        inputs,
                        output_gradients=upstream,
                        unconnected_gradients=tf.UnconnectedGradients.ZERO,
                    )

                return self.sum(pull_back, *cotangents, *arguments)

            return self._total(fn, arguments), gradient

        return list(total(*arguments))

    def of(self, fn: Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]]) -> SumOverData:
        """The same sum as a function of other state parts, `fn` taking them to these."""
        term_fn, base_fn = self._term_fn, self._base_fn
        other = copy.copy(self)
        other._term_fn = lambda piece, *parts: term_fn(piece, *fn(parts))
        other._base_fn = None if base_fn is None else lambda *parts: base_fn(*fn(parts))
        return other

    def __call__(self, *parts: tf.Tensor) -> tf.Tensor:
        autodiff.mark_as_not_vectorizable()
        parts = tuple(tf.convert_to_tensor(part) for part in parts)
        (total,) = self.sum(lambda piece, *parts: [self._term_fn(piece, *parts)], *parts)
        return total if self._base_fn is None else total + self._base_fn(*parts)

    def apply(
        self,
        operator: Callable[[Callable[[tf.Tensor], tf.Tensor], tf.Tensor], Sequence[tf.Tensor]],
        position: tf.Tensor,
        unflatten: Callable[[tf.Tensor], list[tf.Tensor]],
    ) -> list[tf.Tensor]:
        """`operator(l, position)` in one pass over the data, for an operator that is linear in l.

        Args:
          operator: takes a function of the flat position, and the position; returns tensors.
          position: `[batch..., D]`.
          unflatten: from the flat position to the state parts.
        """

        def of_piece(piece: Any, position: tf.Tensor) -> list[tf.Tensor]:
            return list(operator(lambda flat: self._term_fn(piece, *unflatten(flat)), position))

        total = self.sum(of_piece, position)
        if self._base_fn is None:
            return total
        base_fn = self._base_fn
        base = operator(lambda flat: base_fn(*unflatten(flat)), position)
        return [a + b for a, b in zip(total, base, strict=True)]


class SumOverBatches(SumOverData):
    """A log density summed over the batches of a `tf.data.Dataset`, for data larger than memory.

    Exact: every evaluation reads all data, in a compiled loop, and holds one batch at a time. Works in `tf.function`, not
    under XLA, which cannot read a dataset. State shapes must be static.

    Args:
      term_fn: takes an element of the dataset and the state parts, and returns the element's share `[batch...]`.
      dataset: finite, and the same on each pass: not shuffled anew.
      base_fn: the share that needs no data, such as a log prior. Optional.
    """

    def __init__(self, term_fn: _Term, dataset: tf.data.Dataset, base_fn: Callable[..., tf.Tensor] | None = None):
        super().__init__(term_fn, base_fn)
        if not isinstance(dataset, tf.data.Dataset):
            raise TypeError(f'`dataset` must be a tf.data.Dataset, got {dataset!r}.')
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError('`dataset` must be finite, got one that repeats for ever.')
        self._dataset = dataset

    def _total(self, fn: _Term, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        traced = tf.function(lambda piece, *arguments: list(fn(piece, *arguments)), autograph=False)
        specs = [tf.TensorSpec(argument.shape, argument.dtype) for argument in arguments]
        concrete = traced.get_concrete_function(self._dataset.element_spec, *specs)
        for spec in concrete.structured_outputs:
            if not spec.shape.is_fully_defined():
                raise ValueError(f'A sum over batches needs state parts of static shape, got a term of shape {spec.shape}.')
        # The gradient is `sum`'s. A tape that watched the loop would ask for that of the iterator.
        arguments = [tf.stop_gradient(argument) for argument in arguments]
        # Not `dataset.reduce`, which optimises the graph of its function anew on every pass: 30 ms for a Hessian.
        iterator = iter(self._dataset)

        def add(piece: tf.experimental.Optional, total: tuple[tf.Tensor, ...]) -> tuple[Any, tuple[tf.Tensor, ...]]:
            terms = traced(piece.get_value(), *arguments)
            return iterator.get_next_as_optional(), tuple(a + b for a, b in zip(total, terms, strict=True))

        start = tuple(tf.zeros(spec.shape, spec.dtype) for spec in concrete.structured_outputs)
        # One batch at a time is read ahead of the sum.
        loop = (iterator.get_next_as_optional(), start)
        _, total = tf.while_loop(lambda piece, _: piece.has_value(), add, loop, parallel_iterations=1)
        return list(total)


class SumOverReplicas(SumOverData):
    """A log density whose data is split over the devices of a `tf.distribute.Strategy`.

    Each device computes its share of the log density and of its derivatives; the shares are added, and the chain itself
    runs once, so it is the chain of one device, up to rounding. Give the strategy
    `cross_device_ops=tf.distribute.ReductionToOneDevice()`, whose sums are ordinary operations. Works in `tf.function`.

    With `MultiWorkerMirroredStrategy` every worker runs the same program with the same seed, and has the same draws. Where
    one of them is lost, the others end with TensorFlow's error. Of a `checkpoint_dir` that all can read, the first
    worker alone writes the file, and all go on from it when they are started again.

    Args:
      term_fn: takes a device's share of the data and the state parts, and returns its part of the log density.
      values: each device's share, by `strategy.experimental_distribute_values_from_function` or a distributed dataset.
      strategy: a `tf.distribute.Strategy`, such as `MirroredStrategy`.
      base_fn: the share that needs no data, such as a log prior; computed once. Optional.
    """

    def __init__(
        self,
        term_fn: _Term,
        values: Any,
        strategy: tf.distribute.Strategy,
        base_fn: Callable[..., tf.Tensor] | None = None,
    ):
        super().__init__(term_fn, base_fn)
        if not isinstance(strategy, tf.distribute.Strategy):
            raise TypeError(f'`strategy` must be a tf.distribute.Strategy, got {strategy!r}.')
        self._values = values
        self._strategy = strategy

    @property
    def is_chief(self) -> bool:
        resolver = self._strategy.cluster_resolver  # None on one machine
        return (
            resolver is None
            or resolver.task_type in (None, 'chief')
            or ('chief' not in resolver.cluster_spec().jobs and resolver.task_id == 0)
        )

    def _total(self, fn: _Term, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        def share(values: Any, *arguments: tf.Tensor) -> list[tf.Tensor]:
            return list(fn(values, *arguments))

        shares = self._strategy.run(share, args=(self._values, *arguments))
        return [self._strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None) for part in shares]
