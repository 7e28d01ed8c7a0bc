"""A diagonal metric that follows the gradient: O(D), for many parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_callable, check_positive
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.metric.base import Metric
from tfp_rmhmc.metric.factor import DiagonalFactor, Factor

__all__ = ['DiagonalMetric']


class DiagonalMetric(Metric):
    """`G(q) = diag(g^2 + offset)` with `g = dl/dq`, or a positive function of the user's.

    Cost of an evaluation: O(D); the force is one Hessian-vector product.

    Args:
      offset: positive scalar or `[D]`, the metric where the gradient vanishes.
      diagonal_fn: optional, in place of the formula: takes `(position, gradient)`, both `[batch..., D]`, and returns the
        positive diagonal `[batch..., D]`. Where it is not positive the proposal is rejected.
    """

    def __init__(self, offset: Any = 1.0, diagonal_fn: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None):
        check_positive('offset', offset, max_rank=1)
        if diagonal_fn is not None:
            check_callable('diagonal_fn', diagonal_fn)
        self._offset = offset
        self._diagonal_fn = diagonal_fn

    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        log_prob, gradient = density.apply(autodiff.value_and_gradient, position)
        if self._diagonal_fn is None:
            return log_prob, gradient, tf.square(gradient) + tf.cast(self._offset, position.dtype)
        diagonal = tf.convert_to_tensor(self._diagonal_fn(position, gradient))
        if diagonal.shape.rank is None or not diagonal.shape.is_compatible_with(position.shape):
            raise ValueError(f'`diagonal_fn` must return shape {position.shape}, got shape {diagonal.shape}.')
        return log_prob, gradient, diagonal

    def factorize(self, parameters: tf.Tensor) -> Factor:
        return DiagonalFactor(parameters)
