"""The Hamiltonian on a Riemannian manifold. All energies, velocities and forces of the package are computed here.

    H(q, p) = -l(q) + 1/2 log det G(q) + 1/2 p' G(q)^-1 p

Here q is the position, p the momentum, l the log density and G the metric (Girolami and Calderhead 2011, eq. 13). The
constant `D/2 log 2 pi` is left out. The integral of `exp(-H)` over p is the target density of q.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_flag, check_instance
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.metric import Evaluation, LocalMetric, Metric
from tfp_rmhmc.noise import standard_normal_like

__all__ = ['Hamiltonian', 'LocalHamiltonian', 'PhasePoint', 'Slope', 'kinetic_energy_change']


class Hamiltonian:
    """The Hamiltonian of a log density under a metric: a function of `q: [batch..., D]` and `p: [batch..., D]`.

    Integrators receive one. `hamiltonian.at(q)` evaluates the metric at a position, which is the expensive part; the result
    gives velocity, force and energy for as many momenta as are needed there.

    Args:
      density: the log density of the flat position.
      metric: the metric, which is bound to this log density here.
    """

    def __init__(self, density: LogDensity, metric: Metric):
        check_instance('density', density, LogDensity, 'a `tfp_rmhmc.LogDensity`')
        check_instance('metric', metric, Metric, 'a `tfp_rmhmc.Metric`')
        self.density = density
        self.metric = metric

    def at(self, position: tf.Tensor, known: Evaluation | None = None) -> LocalHamiltonian:
        """`H(position, .)` as a function of the momentum. Cost: one metric evaluation.

        Args:
          position: `[batch..., D]`.
          known: log density and gradient there, if they are known. A metric that is not made of them saves their
            evaluation.
        """
        local = self.metric.at(self.density, position) if known is None else self.metric.at(self.density, position, known)
        return LocalHamiltonian(local, self.metric.follows_curvature)

    def evaluate(self, position: tf.Tensor) -> Evaluation:
        """Log density and gradient at a position, without the metric."""
        return Evaluation(*self.density.apply(autodiff.value_and_gradient, position))


class Slope(NamedTuple):
    """The right-hand side of Hamilton's equations at one point, both `[batch..., D]`.

    Attributes:
      velocity: `dq/dt = dH/dp`.
      force: `dp/dt = -dH/dq`.
    """

    velocity: tf.Tensor
    force: tf.Tensor


class LocalHamiltonian:
    """`H(q, .)` at one position q, where the metric has been evaluated and factored.

    Attributes:
      log_prob: the log density at q, `[batch...]`.
      gradient: of the log density, `[batch..., D]`.
      factor: the metric G(q) in factored form, a `Factor`.
      follows_curvature: as the metric's attribute of that name.
    """

    def __init__(self, local_metric: LocalMetric, follows_curvature: bool = False):
        check_instance('local_metric', local_metric, LocalMetric, 'a `tfp_rmhmc.LocalMetric`')
        check_flag('follows_curvature', follows_curvature)
        self._metric = local_metric
        self.log_prob = local_metric.log_prob
        self.gradient = local_metric.gradient
        self.factor = local_metric.factor
        self.follows_curvature = follows_curvature

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

    def slope(self, momentum: tf.Tensor) -> Slope:
        """Velocity and force together."""
        return Slope(self.velocity(momentum), self.force(momentum))

    def draw_momentum(self, seed: tf.Tensor) -> tf.Tensor:
        """A draw `p ~ N(0, G): [batch..., D]` from a stateless seed, int32[2]."""
        return self.factor.sqrt_multiply(standard_normal_like(self.gradient, seed))

    def distance(self, d_position: tf.Tensor, d_momentum: tf.Tensor) -> tf.Tensor:
        """`sqrt(dq' G dq + dp' G^-1 dp): [batch...]`, the length of a displacement in units of the metric."""
        squares = d_position * self.factor.multiply(d_position) + d_momentum * self.factor.solve(d_momentum)
        return tf.sqrt(tf.reduce_sum(squares, axis=-1))


class PhasePoint(NamedTuple):
    """A position and a momentum, with everything that H is made of there. Vectors are `[batch..., D]`, the rest
    `[batch...]`.

    Unlike a `LocalHamiltonian` it consists of tensors alone, so it can be carried around a `tf.while_loop`.

    Attributes:
      position, momentum: `q` and `p`.
      velocity: `G^-1 p`.
      log_prob: the log density at q.
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
        """The phase point at `position`, where `local` is the Hamiltonian."""
        half_log_det = tf.broadcast_to(local.factor.half_log_det, tf.shape(local.log_prob))  # a constant metric has one
        return cls(position, momentum, local.velocity(momentum), local.log_prob, local.gradient, half_log_det)

    @classmethod
    def zeros_like(cls, position: tf.Tensor) -> PhasePoint:
        """Zeros in the shapes that a phase point at `position: [batch..., D]` has."""
        vector, scalar = tf.zeros_like(position), tf.zeros_like(position[..., 0])
        return cls(vector, vector, vector, scalar, vector, scalar)

    @property
    def energy(self) -> tf.Tensor:
        """`H(q, p)`."""
        return self.half_log_det + 0.5 * tf.reduce_sum(self.momentum * self.velocity, axis=-1) - self.log_prob


def kinetic_energy_change(start: PhasePoint, end: PhasePoint) -> tf.Tensor:
    """The change of `1/2 log det G + 1/2 p' G^-1 p` from start to end: `[batch...]`.

    The two are subtracted before they are summed over coordinates. In float32 each of two sums over a million coordinates
    is rounded by more than their difference.
    """
    terms = end.momentum * end.velocity - start.momentum * start.velocity
    return end.half_log_det - start.half_log_det + 0.5 * tf.reduce_sum(terms, axis=-1)
