"""The generalized leapfrog, the paper's Algorithm 1."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian
from tfp_rmhmc.integrator.base import Point
from tfp_rmhmc.integrator.fixed_point import Weigh
from tfp_rmhmc.integrator.implicit import ImplicitIntegrator
from tfp_rmhmc.integrator.status import Ledger

__all__ = ['GeneralizedLeapfrog']


class _Staggered(NamedTuple):
    """A point in the middle of a step: the new position q' and the momentum P of the half step.

    Attributes:
      position: `q'`.
      momentum: `P`.
      ledger: of the chains.
      opening: the complete momentum at the old position, from which P was solved for.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    ledger: Ledger
    opening: tf.Tensor


class GeneralizedLeapfrog(ImplicitIntegrator):
    """Two implicit equations a step, one for the momentum and one for the position.

    One step of size h from (q, p) to (q', p'):

        P  = p + h/2 force(q, P)                                 implicit in P
        q' = q + h/2 [velocity(q, P) + velocity(q', P)]          implicit in q'
        p' = P + h/2 force(q', P)

    Second order, symmetric, symplectic (Leimkuhler and Reich 2004; Girolami and Calderhead 2011, eq. 16 to 18). The metric
    at q is factored once and serves every iteration of the first equation. The second equation needs velocities alone, and
    so no third derivatives. The metric at q' serves the third equation and the first one of the way back. Cost of a
    step: a force evaluation, a reverse pass for each iteration of the first equation, and a factorisation for each
    iteration of the second; and the same on the way back. With a constant metric it is the ordinary leapfrog.

    Args:
      tolerance, max_iterations, order, reversibility_tolerance: as in `ImplicitIntegrator`.
    """

    is_explicit = False

    def attempt(self, hamiltonian: Hamiltonian, point: Point, step_size: tf.Tensor) -> Point:
        start = _Staggered(*point, point.momentum)
        end = self._half(hamiltonian, start, tf.zeros_like(step_size), 0.5 * step_size)
        closing = 0.5 * step_size * hamiltonian.at(end.position).force(end.momentum)
        moves = end.ledger.is_ok[..., tf.newaxis]
        return Point(end.position, tf.where(moves, end.momentum + closing, point.momentum), end.ledger.evaluated(1))

    def step(self, hamiltonian: Hamiltonian, point: Point, step_size: tf.Tensor) -> Point:
        """There and back, as two rounds of one loop: the way back begins with what is left of the way there."""
        if not self._returns:
            return self.attempt(hamiltonian, point, step_size)
        half = 0.5 * step_size

        def go(i: tf.Tensor, here: _Staggered, _: _Staggered) -> tuple[tf.Tensor, _Staggered, _Staggered]:
            is_first = tf.equal(i, 0)
            closing, opening = tf.where(is_first, tf.zeros_like(half), half), tf.where(is_first, half, -half)
            return i + 1, self._half(hamiltonian, here, closing, opening), here

        start = _Staggered(*point, point.momentum)
        _, back, there = tf.while_loop(lambda i, *_: i < 2, go, (tf.constant(0), start, start))
        # Both ways have one momentum in the middle, from which each of them found its end.
        missed = back.position - point.position, back.momentum - there.momentum
        end = Point(there.position, back.opening, there.ledger)
        return self.judge(hamiltonian, point, end, *missed, Point(*back[:3]))

    def _half(self, hamiltonian: Hamiltonian, here: _Staggered, closing: tf.Tensor, opening: tf.Tensor) -> _Staggered:
        """The third equation of a step that ends here, then the first two of one that starts here.

        Args:
          hamiltonian: as in `step`.
          here: where a step is to be closed by `closing`, or, where that is zero, with a complete momentum.
          closing, opening: half steps.
        """
        local = hamiltonian.at(here.position)
        ledger = here.ledger.evaluated(1)
        p = here.momentum + closing * local.force(here.momentum)

        def momentum_map(x: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
            return p + opening * local.force(x), local.factor.solve

        solution, ledger = self.solve(momentum_map, p, ledger, evaluations_per_iteration=0)
        p_half = solution.value
        velocity = local.velocity(p_half)

        def position_map(x: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
            return here.position + opening * (velocity + hamiltonian.at(x).velocity(p_half)), local.factor.multiply

        guess = here.position + 2.0 * opening * velocity
        drift, ledger = self.solve(position_map, guess, ledger, evaluations_per_iteration=1)
        moves = ledger.is_ok[..., tf.newaxis]
        return _Staggered(tf.where(moves, drift.value, here.position), tf.where(moves, p_half, here.momentum), ledger, p)
