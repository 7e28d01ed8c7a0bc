"""Lagrangian dynamics: explicit steps in velocities, whose determinant the accept step takes into account."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.argument import check_order
from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.base import Integrator, Leg, composition
from tfp_rmhmc.integrator.status import Ledger, Status
from tfp_rmhmc.metric import Evaluation, Metric

__all__ = ['Lagrangian']


class _Moving(NamedTuple):
    """A point with its velocity. Vectors are `[batch..., D]`, the rest `[batch...]`.

    Attributes:
      position, momentum, ledger: as in `Point`.
      velocity: `G^-1 p`.
      half_log_det: `1/2 log det G`.
      log_determinant: of the trajectory so far, as a map of (q, p).
      log_prob, gradient: of the log density.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    ledger: Ledger
    velocity: tf.Tensor
    half_log_det: tf.Tensor
    log_determinant: tf.Tensor
    log_prob: tf.Tensor
    gradient: tf.Tensor


class Lagrangian(Integrator):
    """Half a step of the position, a kick of the velocity `v = G^-1 p`, half a step of the position.

        q  += h/2 v
        v' = v - h Gamma(v, v') - h G^-1 dphi/dq,    phi = -l + 1/2 log det G
        q  += h/2 v'

    with the Christoffel symbols Gamma of the metric (`metric.connection`). The kick is linear in v', so there is nothing
    to iterate. Second order and symmetric, but not symplectic: a step changes the volume of (q, p) by

        det(I - h Gamma(v', .)) / det(I + h Gamma(v, .)) * det G(q') / det G(q)

    the log of which is added up along the trajectory and enters the accept step, so that the kernel is exact. A chain for
    which a determinant is not positive is rejected, with the status NON_FINITE; its way back would be too.

    Lan et al. begin and end a step with half a kick, and so have two of them at each position. With the kick in the middle
    there is one, in which all of Gamma(v, .) and Gamma(v', .) is had from one evaluation.

    Cost of a step with a dense metric: D vectorised passes through the matrix for its derivatives, D^3 numbers a chain, and
    two eliminations. With a `MongeMetric`: one gradient and two Hessian-vector products, in closed form. Cost of a
    trajectory: that of its steps, and the metric at both ends. References: Lan, Stathopoulos, Shahbaba and Girolami 2015,
    "Markov chain Monte Carlo from Lagrangian dynamics"; Hartmann, Girolami and Klami 2022, "Lagrangian manifold Monte
    Carlo on Monge patches".

    Args:
      order: 2, or 4 by composition, at three times the cost.
    """

    point_type = _Moving
    is_explicit = True
    ends_are_cheap = True
    preserves_volume = False

    def __init__(self, order: int = 2):
        check_order(order)
        self.order = order

    def check_metric(self, metric: Metric) -> None:
        if not metric.has_connection:
            raise TypeError(
                '`metric` must be given by a matrix or be a MongeMetric for Lagrangian, which needs Christoffel symbols; '
                f'got {metric!r}.'
            )

    def blank(
        self, hamiltonian: Hamiltonian, position: tf.Tensor, step_size: tf.Tensor, known: Evaluation | None
    ) -> _Moving:
        del step_size
        log_prob, gradient = hamiltonian.evaluate(position) if known is None else known
        vector, scalar = tf.zeros_like(position), tf.zeros_like(log_prob)
        return _Moving(position, vector, Ledger.new(position), vector, scalar, scalar, log_prob, gradient)

    def known(self, point: _Moving) -> Evaluation:
        return Evaluation(point.log_prob, point.gradient)

    def begin(
        self, local: LocalHamiltonian, position: tf.Tensor, momentum: tf.Tensor, step_size: tf.Tensor, ledger: Ledger
    ) -> _Moving:
        del step_size
        return _Moving(
            position,
            momentum,
            ledger,
            local.velocity(momentum),
            local.factor.half_log_det,
            tf.zeros_like(local.log_prob),
            local.log_prob,
            local.gradient,
        )

    def step(self, hamiltonian: Hamiltonian, point: _Moving, step_size: tf.Tensor) -> _Moving:
        entered = self.enter(hamiltonian, point, step_size)
        end = self.leave(hamiltonian, self.advance(hamiltonian, entered, step_size), step_size)
        is_finite = tf.reduce_all(tf.math.is_finite(end.gradient) & tf.math.is_finite(end.momentum), axis=-1)
        return end._replace(ledger=end.ledger.fail(~is_finite, Status.NON_FINITE))

    def enter(self, hamiltonian: Hamiltonian, point: _Moving, step_size: tf.Tensor) -> _Moving:
        """Position and velocity alone, and the determinant as of a map of these two."""
        del hamiltonian, step_size
        return point._replace(
            momentum=(),
            half_log_det=(),
            log_determinant=point.log_determinant - 2.0 * point.half_log_det,
            log_prob=(),
            gradient=(),
        )

    def advance(self, hamiltonian: Hamiltonian, point: _Moving, step_size: tf.Tensor) -> _Moving:
        middle = point.position + 0.5 * step_size * point.velocity
        kick = hamiltonian.metric.connection(hamiltonian.density, middle).kick(point.velocity, step_size)
        return point._replace(
            position=middle + 0.5 * step_size * kick.velocity,
            velocity=kick.velocity,
            log_determinant=point.log_determinant + kick.log_determinant,
        )

    def leave(self, hamiltonian: Hamiltonian, point: _Moving, step_size: tf.Tensor) -> _Moving:
        del step_size
        known = hamiltonian.evaluate(point.position)
        factor = hamiltonian.at(point.position, known).factor
        return _Moving(
            point.position,
            factor.multiply(point.velocity),
            point.ledger,
            point.velocity,
            factor.half_log_det,
            point.log_determinant + 2.0 * factor.half_log_det,
            known.log_prob,
            known.gradient,
        )

    def flipped(self, point: _Moving) -> _Moving:
        return point._replace(momentum=-point.momentum, velocity=-point.velocity)

    def log_determinant(self, point: _Moving) -> tf.Tensor:
        return point.log_determinant

    def travel(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Any, leg: Leg) -> Any:
        """A chain that failed is NaN from there on, so that the evaluations of all steps are counted at once."""
        end = super().travel(hamiltonian, local, point, leg)
        evaluations = end.ledger.metric_evaluations + leg.num_steps * len(composition(self.order)) + 1
        return end._replace(ledger=end.ledger._replace(metric_evaluations=evaluations))
