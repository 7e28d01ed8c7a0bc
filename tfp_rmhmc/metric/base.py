"""The Metric protocol: a description that is bound to a log density where it is used."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.metric.factor import CholeskyFactor, Factor
from tfp_rmhmc.state import LogDensity

__all__ = ['DenseMetric', 'LocalMetric', 'Metric', 'check_positive']


@dataclasses.dataclass(frozen=True)
class LocalMetric:
    """A metric at one position, beside the log density there.

    Attributes:
      log_prob: `[batch...]`, the log density l(q).
      gradient: `[batch..., D]`, dl/dq.
      factor: G(q) in factored form.
      energy_gradient: maps a momentum `p: [batch..., D]` to `d/dq [1/2 log det G(q) + 1/2 p' G(q)^-1 p]`.
    """

    log_prob: tf.Tensor
    gradient: tf.Tensor
    factor: Factor
    energy_gradient: Callable[[tf.Tensor], tf.Tensor]


class Metric(abc.ABC):
    """A position-dependent positive definite matrix G(q), described without reference to a target.

    A metric holds no target: the kernel's current log density arrives with each call of `at`, so a kernel that is
    rebuilt around another target (`TransformedTransitionKernel`, `ReplicaExchangeMC`) has the right geometry by
    construction. A metric is a deterministic function of position; randomness in it would break reversibility.

    A subclass says what G is made of (`parameters`, differentiable) and how to factor it (`factorize`, never
    differentiated). The gradient of the energy then is one reverse pass through the parameters.

    Attributes:
      follows_curvature: whether a unit of length is about a local standard deviation of the target, in every direction.
        Only speed depends on it: `MetricCoupling` holds its copies together more tightly where steps are in such units.
    """

    follows_curvature = False

    @abc.abstractmethod
    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Log density `[batch...]`, its gradient `[batch..., D]`, and the tensor that G is a function of."""

    @abc.abstractmethod
    def factorize(self, parameters: tf.Tensor) -> Factor:
        """G in factored form."""

    def at(self, density: LogDensity, position: tf.Tensor) -> LocalMetric:
        """The metric of `density` at `position: [batch..., D]`. Cost: one `parameters`, one factorisation."""
        # Persistent: the implicit integrators ask for the energy gradient of many momenta at one position.
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(position)
            log_prob, gradient, parameters = self.parameters(density, position)
        factor = self.factorize(parameters)

        def energy_gradient(momentum: tf.Tensor) -> tf.Tensor:
            return tape.gradient(
                parameters,
                position,
                output_gradients=factor.energy_cotangent(momentum),
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )

        return LocalMetric(log_prob, gradient, factor, energy_gradient)

    def __repr__(self) -> str:
        arguments = ', '.join(f'{name.lstrip("_")}={value!r}' for name, value in vars(self).items())
        return f'{type(self).__name__}({arguments})'


class DenseMetric(Metric):
    """A metric given by its matrix, positive definite wherever the chain goes; factored by Cholesky.

    Where the matrix is not positive definite the factor is NaN and the kernel rejects that chain's proposal. A subclass
    writes `matrix`. Cost of an evaluation: O(D^3) and whatever `matrix` costs.
    """

    @abc.abstractmethod
    def matrix(self, density: LogDensity, position: tf.Tensor) -> tf.Tensor:
        """G(q) as `[batch..., D, D]`, differentiable in `position`."""

    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        log_prob, gradient = density.apply(autodiff.value_and_gradient, position)
        return log_prob, gradient, self.matrix(density, position)

    def factorize(self, parameters: tf.Tensor) -> Factor:
        return CholeskyFactor(parameters)


def check_positive(name: str, value: Any) -> None:
    """Raises unless every known entry of `value` is positive and finite."""
    static = tf.get_static_value(tf.convert_to_tensor(value))
    if static is not None and not ((static > 0).all() and (static < float('inf')).all()):
        raise ValueError(f'`{name}` must be positive and finite, got {value!r}.')
