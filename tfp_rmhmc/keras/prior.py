"""Priors of a network's weights."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.argument import shown, static_real

__all__ = ['CallablePrior', 'NormalPrior', 'Prior', 'generator_of', 'is_named', 'last_match', 'prior_scales']


def prior_scales(prior: Any, names: Sequence[str], shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """The prior standard deviation of each weight, broadcastable to it.

    Args:
      prior: `'fan_in'`: `1 / sqrt(fan_in)` for kernels and 1 for the rest; or a positive number; or a dict from layer or
        weight names to numbers, with `'fan_in'` for those not named; or a list with one number or array per weight.
      names: `layer/weight`.
      shapes: of the weights.
    """
    default = [_fan_in_scale(shape) for shape in shapes]
    if isinstance(prior, str):
        if prior != 'fan_in':
            raise ValueError(
                "`prior` must be 'fan_in', 'hierarchical', a scale, scales by name or in a list, Hierarchical(...), or "
                f'callable; got {prior!r}.'
            )
        scales = default
    elif isinstance(prior, dict):
        unknown = [key for key in prior if not isinstance(key, str) or not any(is_named(name, key) for name in names)]
        if unknown:
            raise ValueError(
                f'`prior` names {shown(unknown[0])}, which is not among the weights {list(names)} or their layers, got '
                f'{shown(prior)}.'
            )
        scales = [last_match(prior, name, scale) for name, scale in zip(names, default, strict=True)]
    elif isinstance(prior, (list, tuple)):
        if len(prior) != len(names):
            raise ValueError(f'`prior` must have one scale for each of {len(names)} weights, got {len(prior)}.')
        scales = list(prior)
    else:
        scales = [prior] * len(names)
    arrays = [_scale(scale) for scale in scales]
    for name, array, shape in zip(names, arrays, shapes, strict=True):
        with np.errstate(over='ignore', under='ignore'):
            single = array.astype(np.float32)  # of most weights
        if not np.all(np.isfinite(single) & (single > 0)):
            raise ValueError(f'`prior` must be positive and finite, got {shown(array.tolist())} for {name!r}.')
        if not _broadcasts(array.shape, tuple(shape)):
            raise ValueError(f'`prior` of {name!r} must broadcast to shape {tuple(shape)}, got shape {array.shape}.')
    return arrays


def _scale(scale: Any) -> np.ndarray:
    array = static_real('prior', scale, "'fan_in', a positive scale, scales by name or in a list, or callable")
    if array is None or array.size == 0:
        raise ValueError(f'`prior` must be known and not empty, got {shown(scale)}.')
    return array.astype(np.float64)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def _fan_in_scale(shape: Sequence[int]) -> float:
    return 1.0 / math.sqrt(math.prod(shape[:-1])) if len(shape) > 1 else 1.0


def is_named(name: str, key: str) -> bool:
    """Whether the key is the weight's name or that of one of its layers."""
    return name == key or name.startswith(f'{key}/')


def last_match(values: dict[str, Any], name: str, default: Any) -> Any:
    """The value of the longest key that names the weight or one of its layers."""
    keys = [key for key in values if is_named(name, key)]
    return values[max(keys, key=len)] if keys else default


def generator_of(seed: Any) -> np.random.Generator:
    """Random numbers of a seed int32[2]."""
    return np.random.default_rng(np.asarray(seed).view(np.uint32).tolist())


class Prior(abc.ABC):
    """The prior of the weights and of the log scales that it has, if any.

    Attributes:
      names: of the log scales, which are parts of the state after the weights.
      sizes: each log scale is a vector of so many.
    """

    names: Sequence[str] = ()
    sizes: Sequence[int] = ()

    @abc.abstractmethod
    def log_prob(self, *parts: tf.Tensor) -> tf.Tensor:
        """The log density `[batch...]` of weights and log scales `[batch..., shape...]`."""

    @abc.abstractmethod
    def draw(self, num: int, seed: Any) -> list[tf.Tensor]:
        """Draws of weights and log scales, each `[num, shape...]`."""

    @abc.abstractmethod
    def around(self, weights: Sequence[tf.Tensor], num: int, jitter: float, seed: Any) -> list[tf.Tensor]:
        """Weights and log scales, each `[num, shape...]`, around given weights, in units of prior deviations."""

    @abc.abstractmethod
    def precision(self) -> np.ndarray:
        """The prior precision of the flat, concatenated weights and log scales: `[D]`."""


class NormalPrior(Prior):
    """Independent normals of mean 0.

    Args:
      scales: standard deviations of each weight, broadcastable to it.
      shapes: of the weights.
      dtype: of the weights.
    """

    def __init__(self, scales: Sequence[np.ndarray], shapes: Sequence[Sequence[int]], dtype: tf.DType):
        self._scales = [
            np.broadcast_to(scale, shape).astype(dtype.as_numpy_dtype) for scale, shape in zip(scales, shapes, strict=True)
        ]

    def log_prob(self, *parts: tf.Tensor) -> tf.Tensor:
        terms = []
        for weight, scale in zip(parts, self._scales, strict=True):
            axes = list(range(weight.shape.rank - scale.ndim, weight.shape.rank))
            constant = np.sum(np.log(scale)) + 0.5 * scale.size * math.log(2.0 * math.pi)
            terms.append(-0.5 * tf.reduce_sum(tf.square(weight / scale), axis=axes) - tf.cast(constant, weight.dtype))
        return tf.add_n(terms)

    def draw(self, num: int, seed: Any) -> list[tf.Tensor]:
        rng = generator_of(seed)
        return [tf.constant(scale * rng.standard_normal([num, *scale.shape]).astype(scale.dtype)) for scale in self._scales]

    def around(self, weights: Sequence[tf.Tensor], num: int, jitter: float, seed: Any) -> list[tf.Tensor]:
        return [weight + jitter * noise for weight, noise in zip(weights, self.draw(num, seed), strict=True)]

    def precision(self) -> np.ndarray:
        return np.concatenate([np.ravel(scale) ** -2.0 for scale in self._scales])


class CallablePrior(Prior):
    """A prior given by its log density.

    Args:
      log_prob_fn: from the weights to their log density.
      units: a prior in whose deviations distances from given weights are measured.
    """

    def __init__(self, log_prob_fn: Callable[..., tf.Tensor], units: NormalPrior):
        self._log_prob_fn = log_prob_fn
        self._units = units

    def log_prob(self, *parts: tf.Tensor) -> tf.Tensor:
        return self._log_prob_fn(*parts)

    def draw(self, num: int, seed: Any) -> list[tf.Tensor]:
        raise ValueError('`from_prior` needs a prior given by scales, got a callable.')

    def around(self, weights: Sequence[tf.Tensor], num: int, jitter: float, seed: Any) -> list[tf.Tensor]:
        return self._units.around(weights, num, jitter, seed)

    def precision(self) -> np.ndarray:
        raise ValueError('`prior_precision` must be given where the prior is a callable, got None.')
