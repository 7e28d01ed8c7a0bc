"""A metric given in one space, used in another."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import shown
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.metric.base import DenseMetric, Metric
from tfp_rmhmc.state import StateLayout, is_list_like

__all__ = ['PullbackMetric']


class PullbackMetric(DenseMetric):
    """`G_y(y) = J' G_x(x(y)) J` with `J = dx/dy`: a metric of the original space x for a kernel that moves in y.

    Inside `TransformedTransitionKernel` the inner kernel moves in y, with `x = bijector(y)`. Metrics made of the kernel's
    own log density (`SoftAbsMetric`, `MongeMetric`, ...) follow the change of coordinates by themselves. A `FisherMetric`
    or a `GaussNewtonMetric` that you wrote in x does not: wrap it in this pull-back. Cost on top of the metric's: one
    Jacobian of the bijector and two products.

    Args:
      metric: a metric given by its matrix: `FisherMetric`, `GaussNewtonMetric`, `HessianMetric` or `EuclideanMetric`.
      bijector: what the `TransformedTransitionKernel` has: one bijector, or a list with one per state part.
    """

    def __init__(self, metric: Metric, bijector: Any):
        if not isinstance(metric, Metric) or not hasattr(metric, 'matrix'):
            raise TypeError(
                f'`metric` must be given by its matrix (Fisher, GaussNewton, Hessian or Euclidean), got {shown(metric)}; '
                'a metric made of the log density follows a transformed target by itself.'
            )
        bijectors = list(bijector) if is_list_like(bijector) else [bijector]
        if not bijectors or not all(isinstance(b, tfp.bijectors.Bijector) for b in bijectors):
            raise TypeError(f'`bijector` must be a bijector or a list with one per state part, got {shown(bijector)}.')
        self._metric = metric
        self._bijector = bijector

    @property
    def follows_curvature(self) -> bool:  # type: ignore[override]
        """As the metric that is pulled back: lengths are the same in both spaces."""
        return self._metric.follows_curvature

    @property
    def differentiates_target(self) -> bool:  # type: ignore[override]
        """As the metric."""
        return self._metric.differentiates_target

    def matrix(self, density: LogDensity, position: tf.Tensor) -> tf.Tensor:
        layout = density.layout
        bijectors = list(self._bijector) if is_list_like(self._bijector) else [self._bijector]
        if len(bijectors) != len(layout.event_shapes):
            raise ValueError(
                f'`bijector` must have one bijector per state part, got {len(bijectors)} for {len(layout.event_shapes)}.'
            )
        original = [b.forward(y) for b, y in zip(bijectors, layout.unflatten(position), strict=True)]
        original_layout = StateLayout(original, layout.batch_rank)

        def forward(y: tf.Tensor) -> tf.Tensor:
            parts = zip(bijectors, layout.unflatten(y), strict=True)
            return original_layout.flatten([b.forward(part) for b, part in parts])

        def original_log_prob(*x: tf.Tensor) -> tf.Tensor:
            """The log density of x, from the kernel's log density of y."""
            y = [b.inverse(part) for b, part in zip(bijectors, x, strict=True)]
            correction = [
                b.inverse_log_det_jacobian(part, event_ndims=len(event))
                for b, part, event in zip(bijectors, x, original_layout.event_shapes, strict=True)
            ]
            return density(layout.flatten(y)) + tf.add_n(correction)

        x, jacobian = autodiff.jacobian(forward, position)
        matrix = self._metric.matrix(LogDensity(original_log_prob, original_layout), x)
        return tf.matmul(jacobian, tf.matmul(matrix, jacobian), transpose_a=True)
