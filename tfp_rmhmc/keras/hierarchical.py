"""Priors whose scales are inferred: a log scale for each group of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_rmhmc.argument import check_choice, check_positive
from tfp_rmhmc.keras.prior import Prior, generator_of, is_named, last_match, prior_scales
from tfp_rmhmc.metric import SeparableMetric

__all__ = ['Hierarchical', 'HierarchicalPrior']

_GROUPINGS = ('kernel', 'layer', 'input')
_LEAST = 1e-30  # information, of weights that the data say nothing of


class Hierarchical:
    """A prior whose scales are inferred with the weights.

        log_scale_g ~ N(0, deviation^2),        w_i | log_scale ~ N(0, (scale_i exp(log_scale_g(i)))^2)

    How large the weights of a layer are, or whether an input matters at all, is then told by the data. The state has the
    weights, as ever, and after them the log scales, a part for each group. The posterior is a funnel: log scales set the
    scale of all weights of their group. `KerasPosterior.separable_metric` knows how.

    Args:
      groups: whose weights share a log scale. `'kernel'`: one for each kernel, that is, each weight of two dimensions or
        more; `'layer'`: one for all weights of a layer; `'input'`: for each kernel one for each of its inputs (channels of
        a convolution), so that inputs which do not matter can be switched off (automatic relevance determination, Neal
        1996). Or a dict from names of layers or weights to the names of groups: weights of one group share a log scale, and
        the name `'input'` stands for a log scale for each input. Scales of weights in no group are fixed.
      scales: of the weights where the log scale is 0, or fixed: as `make_posterior` takes a `prior` by scales.
      deviation: of the log scales, a priori. With 1 a scale is within a factor of 7 of `scales` with a probability of 0.95.
    """

    def __init__(self, groups: str | dict[str, str | None] = 'kernel', scales: Any = 'fan_in', deviation: float = 1.0):
        if not isinstance(groups, dict):
            check_choice('groups', groups, list(_GROUPINGS), also='a dict by name, or ')
        check_positive('deviation', deviation)
        self.groups, self.scales, self.deviation = groups, scales, deviation

    def __repr__(self) -> str:
        return f'Hierarchical(groups={self.groups!r}, scales={self.scales!r}, deviation={self.deviation!r})'

    def of(self, names: Sequence[str], shapes: Sequence[Sequence[int]], dtype: tf.DType) -> HierarchicalPrior:
        """The prior of a network's weights.

        Args:
          names: of the weights, `layer/weight`.
          shapes: of the weights.
          dtype: of the weights.
        """
        memberships = [self._membership(name, shape) for name, shape in zip(names, shapes, strict=True)]
        if isinstance(self.groups, dict):
            unknown = [key for key in self.groups if not any(is_named(name, key) for name in names)]
            if unknown:
                raise ValueError(
                    f'`groups` names {unknown[0]!r}, which is not among the weights {list(names)} or their layers.'
                )
        if not any(memberships):
            raise ValueError(f'`groups` must hold at least one of the weights {list(names)}, got {self.groups!r}.')
        return HierarchicalPrior(memberships, prior_scales(self.scales, names, shapes), shapes, self.deviation, dtype)

    def _membership(self, name: str, shape: Sequence[int]) -> _Membership | None:
        """The group of a weight; None for a weight of fixed scale."""
        if isinstance(self.groups, dict):
            group = last_match(self.groups, name, None)
        elif self.groups == 'layer':
            group = name.rpartition('/')[0] or name
        elif len(shape) < 2:
            group = None
        else:
            group = 'input' if self.groups == 'input' else name
        if group is None:
            return None
        if group != 'input':
            return _Membership(str(group), 1)
        if len(shape) < 2:
            raise ValueError(
                f"`groups` must not be 'input' for {name!r}, which is of shape {tuple(shape)}: it has no inputs."
            )
        return _Membership(name, int(shape[-2]))


class _Membership(NamedTuple):
    """A weight's group, and how many log scales it has: one, or one for each input."""

    group: str
    size: int


class HierarchicalPrior(Prior):
    """`Hierarchical` for the weights of one network.

    Args:
      memberships: of each weight, or None.
      scales: of each weight where its log scale is 0, broadcastable to it.
      shapes: of the weights.
      deviation: of the log scales.
      dtype: of the weights.
    """

    def __init__(
        self,
        memberships: Sequence[_Membership | None],
        scales: Sequence[np.ndarray],
        shapes: Sequence[Sequence[int]],
        deviation: float,
        dtype: tf.DType,
    ):
        self._shapes = [tuple(shape) for shape in shapes]
        self._scales = [np.asarray(scale, np.float64) for scale in scales]
        self._deviation = deviation
        self._dtype = dtype.as_numpy_dtype
        groups: dict[str, int] = {}
        for membership in filter(None, memberships):
            if groups.setdefault(membership.group, membership.size) != membership.size:
                raise ValueError(f'`groups` must not name a group {membership.group!r}: a weight has this name.')
        self._groups = list(groups)
        self.names = [f'{group}/log_scale' for group in groups]
        self.sizes = list(groups.values())
        self._group_of = [None if m is None else self._groups.index(m.group) for m in memberships]

    def counts(self) -> list[int]:
        """How many weights each log scale of a group has."""
        totals = [0] * len(self.sizes)
        for group, shape in zip(self._group_of, self._shapes, strict=True):
            if group is not None:
                totals[group] += math.prod(shape)
        return [total // size for total, size in zip(totals, self.sizes, strict=True)]

    def log_scale_of(self, weight: int, log_scales: Sequence[Any]) -> Any:
        """The log scale of a weight, `[batch..., 1, ..., 1 or inputs, 1]`, which broadcasts to it; None if it is fixed.

        Args:
          weight: its number.
          log_scales: of the groups, `[batch..., size]`.
        """
        group = self._group_of[weight]
        if group is None:
            return None
        rank, log_scale = len(self._shapes[weight]), log_scales[group]
        last = (1,) * (rank - 2) + (self.sizes[group], 1) if rank > 1 else (1,) * rank
        if tf.is_tensor(log_scale):
            batch = tf.shape(log_scale)[: log_scale.shape.rank - 1]
            reshaped = tf.reshape(log_scale, tf.concat([batch, last], axis=0))
            reshaped.set_shape(log_scale.shape[:-1].concatenate(list(last)))
            return reshaped
        return np.reshape(log_scale, (*log_scale.shape[:-1], *last))

    def log_prob(self, *parts: tf.Tensor) -> tf.Tensor:
        weights, log_scales = parts[: len(self._shapes)], parts[len(self._shapes) :]
        half_log = 0.5 * math.log(2.0 * math.pi)
        terms = []
        for i, (weight, scale, shape) in enumerate(zip(weights, self._scales, self._shapes, strict=True)):
            size = math.prod(shape)
            constant = size * (float(np.mean(np.log(scale))) + half_log)
            precision = tf.constant(scale**-2.0, weight.dtype)
            log_scale = self.log_scale_of(i, log_scales)
            axes = list(range(weight.shape.rank - len(shape), weight.shape.rank))
            squares = precision * tf.square(weight)
            if log_scale is None:
                terms.append(-0.5 * tf.reduce_sum(squares, axis=axes) - tf.constant(constant, weight.dtype))
                continue
            # Squares are added up first, so that there is no exponential of a weight's own: one for each log scale.
            shared = [axis for axis in axes if log_scale.shape[axis] == 1]
            sums = tf.reduce_sum(squares, axis=shared, keepdims=True)
            each = 0.5 * sums * tf.exp(-2.0 * log_scale) + (size // log_scale.shape[axes[0] :].num_elements()) * log_scale
            terms.append(-tf.reduce_sum(each, axis=axes) - tf.constant(constant, weight.dtype))
        for log_scale in log_scales:
            constant = math.log(self._deviation) + half_log
            terms.append(-tf.reduce_sum(0.5 * tf.square(log_scale / self._deviation) + constant, axis=-1))
        return tf.add_n(terms)

    def draw(self, num: int, seed: Any) -> list[tf.Tensor]:
        rng = generator_of(seed)
        log_scales = [self._deviation * rng.standard_normal([num, size]) for size in self.sizes]
        return self._tensors([*self._noise(rng, num, log_scales), *log_scales])

    def around(self, weights: Sequence[tf.Tensor], num: int, jitter: float, seed: Any) -> list[tf.Tensor]:
        """Log scales around those that fit the weights best, and the weights changed with them.

        Chains whose log scales differ begin with weights that differ as much. Otherwise weights and scales would
        contradict each other, the more the more weights there are.
        """
        rng = generator_of(seed)
        given = [np.asarray(weight, np.float64) for weight in weights]
        fitting = self._fitting(given)
        shifts = [jitter * self._deviation * rng.standard_normal([num, size]) for size in self.sizes]
        log_scales = [fit + shift for fit, shift in zip(fitting, shifts, strict=True)]
        found = []
        for i, (weight, noise) in enumerate(zip(given, self._noise(rng, num, log_scales), strict=True)):
            shift = self.log_scale_of(i, shifts)
            found.append((weight if shift is None else weight * np.exp(shift)) + jitter * noise)
        return self._tensors([*found, *log_scales])

    def _noise(self, rng: np.random.Generator, num: int, log_scales: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Draws of the weights given the log scales."""
        draws = []
        for i, (scale, shape) in enumerate(zip(self._scales, self._shapes, strict=True)):
            log_scale = self.log_scale_of(i, log_scales)
            draws.append(rng.standard_normal([num, *shape]) * scale * (1.0 if log_scale is None else np.exp(log_scale)))
        return draws

    def _fitting(self, weights: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Log scales at which the weights are about most probable: `1/2 log` of their mean square, drawn towards 0.

        The prior counts as `1 / (2 deviation^2)` weights of log scale 0, which carry as much information.
        """
        sums = [np.zeros(size) for size in self.sizes]
        for weight, scale, group in zip(weights, self._scales, self._group_of, strict=True):
            if group is not None:
                squares = np.square(weight / scale)
                kept = (squares.ndim - 2,) if self.sizes[group] > 1 else ()
                axes = tuple(axis for axis in range(squares.ndim) if axis not in kept)
                sums[group] += np.sum(squares, axis=axes)
        few = 0.5 * self._deviation**-2.0
        return [0.5 * np.log((total + few) / (count + few)) for total, count in zip(sums, self.counts(), strict=True)]

    def _tensors(self, arrays: Sequence[np.ndarray]) -> list[tf.Tensor]:
        return [tf.constant(array.astype(self._dtype)) for array in arrays]

    def precision(self) -> np.ndarray:
        """Where all log scales are 0; for log scales with the information of their weights, 2 each."""
        of_weights = [
            np.broadcast_to(scale**-2.0, shape).ravel() for scale, shape in zip(self._scales, self._shapes, strict=True)
        ]
        of_log_scales = [np.full(size, p) for size, p in zip(self.sizes, self._log_scale_precisions(), strict=True)]
        return np.concatenate(of_weights + of_log_scales)

    def _log_scale_precisions(self) -> list[float]:
        return [2.0 * count + self._deviation**-2.0 for count in self.counts()]

    def metric(
        self, squares: Sequence[np.ndarray], positions: Sequence[np.ndarray], others: Sequence[float]
    ) -> SeparableMetric:
        """The separable metric of the posterior, see `KerasPosterior.separable_metric`.

        Args:
          squares: of scores of the likelihood, whose means are the data's information, at some positions: shaped like the
            weights, with a leading dimension.
          positions: log scales there, `[positions, size]` for each group.
          others: log scales of further parts of the state, which are constant.
        """
        reference = [np.mean(part) for part in positions]
        shifts = [np.mean(part, axis=-1) - mean for part, mean in zip(positions, reference, strict=True)]
        information = []
        for i, square in enumerate(squares):
            amplified = np.sum([shifts[group] for group in self._amplifiers(i)], axis=0)
            weights = np.reshape(np.exp(-2.0 * amplified), [-1] + [1] * (square.ndim - 1))
            information.append(np.maximum(np.mean(weights * square, axis=0), _LEAST))
        constants = [-0.5 * math.log(precision) for precision in self._log_scale_precisions()] + list(others)
        return SeparableMetric(_LogScales(self, _Information(information, self._scales, reference, self._dtype), constants))

    def _amplifiers(self, weight: int) -> list[int]:
        """The groups of the kernels that stand between a weight and the outputs, or feed it, one entry for each kernel.

        In a network of layers the outputs are proportional to each kernel, if activations are homogeneous. So a weight's
        derivative grows with the other kernels, and that of a bias with the kernels after it.
        """
        kernels = [j for j, shape in enumerate(self._shapes) if len(shape) > 1 and self._group_of[j] is not None]
        is_kernel = len(self._shapes[weight]) > 1
        others = [j for j in kernels if (j != weight if is_kernel else j > weight)]
        return [group for group in (self._group_of[j] for j in others) if group is not None]

    def log_scales_given(self, data: _Information, log_scales: Sequence[tf.Tensor]) -> list[Any]:
        """`-1/2 log G_i` of each weight, see `KerasPosterior.separable_metric`.

        Args:
          data: what the data say.
          log_scales: `[batch..., size]` for each group.
        """
        excesses = [
            tf.reduce_mean(part, -1, keepdims=True) - mean for part, mean in zip(log_scales, data.reference, strict=True)
        ]
        found: list[Any] = []
        for i, (log_data, log_ratio) in enumerate(zip(data.log_information, data.log_ratio, strict=True)):
            groups, log_scale = self._amplifiers(i), self.log_scale_of(i, log_scales)
            loss: Any = 0.0 if log_scale is None else 2.0 * log_scale
            if groups:
                total = tf.add_n([excesses[group] for group in groups])
                batch = tf.shape(total)[: total.shape.rank - 1]
                amplified = 2.0 * tf.reshape(total, tf.concat([batch, [1] * log_data.shape.rank], axis=0))
                log_data, loss = log_data + amplified, loss + amplified
            # softplus, not logaddexp: one transcendental function less.
            found.append(-0.5 * (log_data + tf.nn.softplus(log_ratio - loss)))
        return found


class _Information:
    """What the data say of each weight, as tensors that programs take in: there may be millions of numbers.

    Args:
      information: of the data, about each weight, where the mean log scale of each group is the reference.
      scales: of the weights, a priori, where their log scale is 0.
      reference: one for each group.
      dtype: of the weights.

    Attributes:
      log_information: its logarithm.
      log_ratio: of the prior's precision to it.
      reference: as given.
      total: the sum of all information.
    """

    def __init__(self, information: Sequence[np.ndarray], scales: Sequence[Any], reference: Sequence[float], dtype: Any):
        logs = [np.log(data) for data in information]
        with tf.init_scope():
            self.log_information = [tf.constant(log.astype(dtype)) for log in logs]
            self.log_ratio = [
                tf.constant((-2.0 * np.log(scale) - log).astype(dtype)) for log, scale in zip(logs, scales, strict=True)
            ]
        self.reference = reference
        self.total = sum(float(np.sum(data)) for data in information)


class _LogScales:
    """The log scales of all parts of the state, as `SeparableMetric` takes them.

    Args:
      prior: of the weights.
      data: what they say of the weights.
      constants: log scales of the parts after the weights.
    """

    def __init__(self, prior: HierarchicalPrior, data: _Information, constants: Sequence[float]):
        self._prior, self._data, self._constants = prior, data, constants

    def __call__(self, *parts: tf.Tensor) -> list[Any]:
        first = len(self._data.log_information)
        log_scales = parts[first : first + len(self._prior.names)]
        return [*self._prior.log_scales_given(self._data, log_scales), *self._constants]

    def __repr__(self) -> str:
        # A checkpoint tells runs apart by this.
        return f'log scales of the weights by {list(self._prior.names)} and data of information {self._data.total:.10g}'
