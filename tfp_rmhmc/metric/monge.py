"""The Monge metric: the geometry of the graph of the log density, O(D)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_positive
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.metric.base import Evaluation, LocalMetric, Metric
from tfp_rmhmc.metric.connection import Connection, RankOneConnection
from tfp_rmhmc.metric.factor import Factor, RankOneFactor

__all__ = ['MongeMetric']


class MongeMetric(Metric):
    """`G(q) = I + alpha^2 g g'` with `g = dl/dq`: inverse, determinant and square root in closed form.

    Works at 10^5 to 10^6 coordinates. Cost of an evaluation: O(D); the force is one Hessian-vector product. The integrator
    for it is `Lagrangian`, at one gradient and two such products a step. Reference: Hartmann, Girolami and Klami 2022,
    "Lagrangian manifold Monte Carlo on Monge patches".

    Args:
      alpha: positive scalar; small values approach the identity.
    """

    has_connection = True

    def __init__(self, alpha: Any = 1.0):
        check_positive('alpha', alpha)
        self._alpha = alpha

    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        log_prob, gradient = density.apply(autodiff.value_and_gradient, position)
        return log_prob, gradient, tf.cast(self._alpha, position.dtype) * gradient

    def factorize(self, parameters: tf.Tensor) -> Factor:
        return RankOneFactor(parameters)

    def at(self, density: LogDensity, position: tf.Tensor, known: Evaluation | None = None) -> LocalMetric:
        if known is None:
            return super().at(density, position)

        def energy_gradient(momentum: tf.Tensor) -> tf.Tensor:
            return self.at(density, position).energy_gradient(momentum)

        factor = self.factorize(tf.cast(self._alpha, position.dtype) * known.gradient)
        return LocalMetric(known.log_prob, known.gradient, factor, energy_gradient)

    def connection(self, density: LogDensity, position: tf.Tensor) -> Connection:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(position)
            _, gradient = density.apply(autodiff.value_and_gradient, position)

        def hessian_product(vector: tf.Tensor) -> tf.Tensor:
            return tape.gradient(
                gradient, position, output_gradients=vector, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )

        return RankOneConnection(tf.cast(self._alpha, position.dtype), gradient, hessian_product)
