"""The Hamiltonian on a Riemannian manifold: the only place where the physics is written.

    H(q, p) = -l(q) + 1/2 log det G(q) + 1/2 p' G(q)^-1 p

with q the position, p the momentum, l the log density and G the metric (Girolami and Calderhead 2011, eq. 13; the
constant `D/2 log 2 pi` is left out). `exp(-H)` integrates over p to the target.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.metric import LocalMetric, Metric
from tfp_rmhmc.noise import standard_normal_like
from tfp_rmhmc.state import LogDensity

__all__ = ['Hamiltonian', 'LocalHamiltonian', 'PhasePoint', 'kinetic_energy_change']


class Hamiltonian:
    """The Hamiltonian of a log density under a metric, a function of `q: [batch..., D]` and `p: [batch..., D]`."""

    def __init__(self, density: LogDensity, metric: Metric):
        self._density = density
        self._metric = metric

    @property
    def has_natural_units(self) -> bool:
        """Whether frequencies are about 1, the metric following the curvature of the log density."""
        return self._metric.follows_curvature

    def at(self, position: tf.Tensor) -> LocalHamiltonian:
        """`H(position, .)`. Cost: one metric evaluation."""
        return LocalHamiltonian(self._metric.at(self._density, position))


class LocalHamiltonian:
    """`H(q, .)` at one position: a function of the momentum alone, the metric being factored already."""

    def __init__(self, local_metric: LocalMetric):
        self._metric = local_metric
        self.log_prob = local_metric.log_prob
        self.gradient = local_metric.gradient
        self.factor = local_metric.factor

    def kinetic_energy(self, momentum: tf.Tensor) -> tf.Tensor:
        """`1/2 log det G + 1/2 p' G^-1 p`: `[batch...]`, minus the log density of the momentum."""
        return self.factor.half_log_det + 0.5 * tf.reduce_sum(momentum * self.velocity(momentum), axis=-1)

    def energy(self, momentum: tf.Tensor) -> tf.Tensor:
        """`H(q, p): [batch...]`."""
        return self.kinetic_energy(momentum) - self.log_prob

    def velocity(self, momentum: tf.Tensor) -> tf.Tensor:
        """`dq/dt = dH/dp = G^-1 p`: `[batch..., D]`."""
        return self.factor.solve(momentum)

    def force(self, momentum: tf.Tensor) -> tf.Tensor:
        """`dp/dt = -dH/dq`: `[batch..., D]`. Cost: one reverse pass through what the metric is made of."""
        return self.gradient - self._metric.energy_gradient(momentum)

    def draw_momentum(self, seed: tf.Tensor) -> tf.Tensor:
        """`p ~ N(0, G): [batch..., D]`."""
        return self.factor.sqrt_multiply(standard_normal_like(self.gradient, seed))


class PhasePoint(NamedTuple):
    """A position, a momentum and what H is made of there. Vectors are `[batch..., D]`, the rest `[batch...]`.

    Unlike a `LocalHamiltonian` it is tensors only, and can go around a loop.

    Attributes:
      position, momentum: `q` and `p`.
      velocity: `G^-1 p`.
      log_prob: log density at q.
      gradient: of the log density.
      half_log_det: `1/2 log det G`.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    velocity: tf.Tensor
    log_prob: tf.Tensor
    gradient: tf.Tensor
    half_log_det: tf.Tensor

    @classmethod
    def of(cls, local: LocalHamiltonian, position: tf.Tensor, momentum: tf.Tensor) -> PhasePoint:
        """`local` is the Hamiltonian at `position`."""
        half_log_det = tf.broadcast_to(local.factor.half_log_det, tf.shape(local.log_prob))  # a constant metric has one
        return cls(position, momentum, local.velocity(momentum), local.log_prob, local.gradient, half_log_det)

    @property
    def energy(self) -> tf.Tensor:
        """`H(q, p)`."""
        return self.half_log_det + 0.5 * tf.reduce_sum(self.momentum * self.velocity, axis=-1) - self.log_prob


def kinetic_energy_change(start: PhasePoint, end: PhasePoint) -> tf.Tensor:
    """`1/2 log det G + 1/2 p' G^-1 p` at the end less that at the start: `[batch...]`.

    Subtracted before the sum over coordinates: each of two sums over a million of them is rounded, in float32, by more
    than their difference.
    """
    terms = end.momentum * end.velocity - start.momentum * start.velocity
    return end.half_log_det - start.half_log_det + 0.5 * tf.reduce_sum(terms, axis=-1)
