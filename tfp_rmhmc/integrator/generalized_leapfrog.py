"""The generalized leapfrog, the paper's Algorithm 1."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.fixed_point import Weigh
from tfp_rmhmc.integrator.implicit import ImplicitIntegrator
from tfp_rmhmc.integrator.status import Ledger

__all__ = ['GeneralizedLeapfrog']


class _Staggered(NamedTuple):
    """A point whose momentum still lacks the last half kick of the step that led to it.

    Attributes:
      velocity_change: twice the change of velocity over the last step, for the guess of the next one.
      closing: the half step that is left; zero where the momentum is complete.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    ledger: Ledger
    velocity_change: tf.Tensor
    closing: tf.Tensor


class GeneralizedLeapfrog(ImplicitIntegrator):
    """Two implicit equations a step, one for the momentum and one for the position.

    One step of size h from (q, p) to (q', p'):

        P  = p + h/2 force(q, P)                                 implicit in P
        q' = q + h/2 [velocity(q, P) + velocity(q', P)]          implicit in q'
        p' = P + h/2 force(q', P)

    Second order, symmetric, symplectic (Leimkuhler and Reich 2004; Girolami and Calderhead 2011, eq. 16 to 18). The metric
    at q is factored once and serves every iteration of the first equation. The second equation needs velocities alone, and
    so no third derivatives. The metric at q' serves the third equation and the first one of the next step: a step leaves
    the third to whoever evaluates the metric at q' next. Cost of a step: one force evaluation, a reverse pass for
    each iteration of the first equation, and a factorisation for each iteration of the second. With a constant metric it is
    the ordinary leapfrog.

    Args:
      tolerance, max_iterations, order, reversibility_tolerance: as in `ImplicitMidpoint`.
    """

    point_type = _Staggered
    is_explicit = False

    def step(self, hamiltonian: Hamiltonian, point: _Staggered, step_size: tf.Tensor) -> _Staggered:
        """The end of the step before and this one up to its new position: both have the metric at q."""
        q, p, ledger, velocity_change, closing = point
        local = hamiltonian.at(q)
        ledger = ledger.evaluated(1)
        half = 0.5 * step_size
        force = local.force(p)
        p_full = p + closing * force

        def momentum_map(x: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
            return p_full + half * local.force(x), local.factor.solve

        opening, ledger = self.solve(momentum_map, p_full + half * force, ledger, evaluations_per_iteration=0)
        p_half = opening.value
        velocity = local.velocity(p_half)

        def position_map(x: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
            return q + half * (velocity + hamiltonian.at(x).velocity(p_half)), local.factor.multiply

        guess = q + half * (2.0 * velocity + velocity_change)
        drift, ledger = self.solve(position_map, guess, ledger, evaluations_per_iteration=1)
        moves = ledger.is_ok[..., tf.newaxis]
        safe_half = tf.where(tf.equal(half, 0.0), tf.ones_like(half), half)
        return _Staggered(
            position=tf.where(moves, drift.value, q),
            momentum=tf.where(moves, p_half, p),
            ledger=ledger,
            velocity_change=tf.where(moves, (drift.value - q) / safe_half - 2.0 * velocity, velocity_change),
            closing=half * tf.ones_like(q),
        )

    def complete(self, local: LocalHamiltonian, point: _Staggered) -> _Staggered:
        """The third equation of the last step."""
        momentum = point.momentum + point.closing * local.force(point.momentum)
        return point._replace(momentum=momentum, closing=tf.zeros_like(point.closing))
