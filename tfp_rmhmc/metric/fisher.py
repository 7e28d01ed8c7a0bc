"""A metric that the user writes down."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfp_rmhmc.argument import check_callable
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.metric.base import DenseMetric

__all__ = ['FisherMetric']


class FisherMetric(DenseMetric):
    """`G(q) = fisher_fn(*state_parts)`, for example the expected Fisher information plus the prior's precision.

    `fisher_fn` knows nothing of the kernel's target. Inside `TransformedTransitionKernel` it would see the unconstrained
    state: there, wrap the metric in `PullbackMetric`. Nor does it follow the temperature of `ReplicaExchangeMC`.
    Cost of an evaluation: one call, one Cholesky, and for the force one reverse pass through the call.

    Args:
      fisher_fn: takes the state parts, each `[batch..., event_i...]`, and returns the positive definite matrix
        `[batch..., D, D]`, differentiable, where D counts the flattened and concatenated coordinates. Both triangles
        count: of a matrix that is not symmetric, the symmetric part is taken.
    """

    follows_curvature = True
    differentiates_target = False

    def __init__(self, fisher_fn: Callable[..., tf.Tensor]):
        check_callable('fisher_fn', fisher_fn)
        self._fisher_fn = fisher_fn

    def matrix(self, density: LogDensity, position: tf.Tensor) -> tf.Tensor:
        matrix = tf.convert_to_tensor(self._fisher_fn(*density.layout.unflatten(position)))
        dimension = position.shape[-1]
        expected = position.shape + [dimension]
        # A constant [D, D] part of the metric need not be written with batch dimensions.
        if matrix.shape.rank is not None and 2 <= matrix.shape.rank < expected.rank:
            matrix = matrix + tf.zeros_like(position)[..., tf.newaxis]
        if not matrix.shape.is_compatible_with(expected) or matrix.shape.rank is None:
            raise ValueError(f'`fisher_fn` must return shape {expected}, got shape {matrix.shape}.')
        return matrix
