"""Priors of a network's weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.argument import shown, static_real

__all__ = ['NormalPrior', 'prior_scales']


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
            raise ValueError(f"`prior` must be 'fan_in', a scale, scales by name or in a list, or callable; got {prior!r}.")
        scales = default
    elif isinstance(prior, dict):
        unknown = [key for key in prior if not isinstance(key, str) or not any(_is_named(name, key) for name in names)]
        if unknown:
            raise ValueError(
                f'`prior` names {shown(unknown[0])}, which is not among the weights {list(names)} or their layers, got '
                f'{shown(prior)}.'
            )
        scales = [_last_match(prior, name, scale) for name, scale in zip(names, default, strict=True)]
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


def _is_named(name: str, key: str) -> bool:
    return name == key or name.startswith(f'{key}/')


def _last_match(prior: dict[str, Any], name: str, default: float) -> Any:
    """The scale of the longest key that names the weight or one of its layers."""
    keys = [key for key in prior if _is_named(name, key)]
    return prior[max(keys, key=len)] if keys else default


class NormalPrior:
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

    def log_prob(self, *weights: tf.Tensor) -> tf.Tensor:
        """The log density `[batch...]` of weights `[batch..., shape...]`."""
        terms = []
        for weight, scale in zip(weights, self._scales, strict=True):
            axes = list(range(weight.shape.rank - scale.ndim, weight.shape.rank))
            constant = np.sum(np.log(scale)) + 0.5 * scale.size * math.log(2.0 * math.pi)
            terms.append(-0.5 * tf.reduce_sum(tf.square(weight / scale), axis=axes) - tf.cast(constant, weight.dtype))
        return tf.add_n(terms)

    def draw(self, num: int, seed: Any) -> list[tf.Tensor]:
        """Draws of the weights, each `[num, shape...]`."""
        rng = np.random.default_rng(np.asarray(seed).view(np.uint32).tolist())
        return [tf.constant(scale * rng.standard_normal([num, *scale.shape]).astype(scale.dtype)) for scale in self._scales]

    def precision(self) -> np.ndarray:
        """The prior precision of the flat, concatenated weights: `[D]`."""
        return np.concatenate([np.ravel(scale) ** -2.0 for scale in self._scales])
