"""The generalized leapfrog, the paper's Algorithm 1."""

from __future__ import annotations

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.fixed_point import Weigh, solve_fixed_point
from tfp_rmhmc.integrator.implicit import ImplicitDynamics, Ledger

__all__ = ['GeneralizedLeapfrog']


class GeneralizedLeapfrog(ImplicitDynamics):
    """Two implicit equations a step, one in the momentum and one in the position.

    One step of size h from (q, p) to (q', p'):

        P  = p + h/2 force(q, P)                                 implicit in P
        q' = q + h/2 [velocity(q, P) + velocity(q', P)]          implicit in q'
        p' = P + h/2 force(q', P)

    Second order, symmetric, symplectic (Leimkuhler and Reich 2004; Girolami and Calderhead 2011, eq. 16 to 18). The
    metric is factored once for the first equation; the second needs velocities and so no third derivatives; the metric at
    q' serves the third and the next step's first. Cost of a step: one force evaluation, a reverse pass for each iteration
    of the first equation, and a factorisation for each iteration of the second. With a constant metric it is the ordinary
    leapfrog.

    Arguments are those of `ImplicitDynamics`.
    """

    def integrate(
        self,
        hamiltonian: Hamiltonian,
        start: LocalHamiltonian,
        position: tf.Tensor,
        momentum: tf.Tensor,
        step_size: tf.Tensor,
        num_steps: tf.Tensor,
        ledger: Ledger,
    ) -> tuple[LocalHamiltonian, tf.Tensor, tf.Tensor, Ledger]:
        del start  # the first pass of the loop evaluates it again: a loop can carry tensors only
        dtype = position.dtype
        coefficients, num_substeps = self._substeps(num_steps, dtype)
        solver_arguments = self._solver_arguments(dtype)
        per_step = coefficients.shape[0]

        def closing_length(i: tf.Tensor) -> tf.Tensor:
            """The length of substep i - 1, or 0 before the first."""
            return tf.where(i > 0, tf.gather(coefficients, (i - 1) % per_step), tf.zeros([], dtype))

        def body(
            i: tf.Tensor, q: tf.Tensor, p: tf.Tensor, velocity_change: tf.Tensor, ledger: Ledger
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, Ledger]:
            """The end of substep i - 1 and substep i up to its new position: both have the metric at q."""
            local = hamiltonian.at(q)
            ledger = ledger.evaluated(1)
            half = 0.5 * step_size * tf.gather(coefficients, i % per_step)
            force = local.force(p)
            p_full = p + 0.5 * step_size * closing_length(i) * force

            def momentum_map(x: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
                return p_full + half * local.force(x), local.factor.solve

            opening = solve_fixed_point(momentum_map, p_full + half * force, ledger.is_ok, *solver_arguments)
            ledger = ledger.record(opening, evaluations_per_iteration=0)
            p_half = opening.value
            velocity = local.velocity(p_half)

            def position_map(x: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
                return q + half * (velocity + hamiltonian.at(x).velocity(p_half)), local.factor.multiply

            guess = q + half * (2.0 * velocity + velocity_change)
            drift = solve_fixed_point(position_map, guess, ledger.is_ok, *solver_arguments)
            ledger = ledger.record(drift, evaluations_per_iteration=1)
            moves = ledger.is_ok[..., tf.newaxis]
            safe_half = tf.where(tf.equal(half, 0.0), tf.ones_like(half), half)
            velocity_change = tf.where(moves, (drift.value - q) / safe_half - 2.0 * velocity, velocity_change)
            return i + 1, tf.where(moves, drift.value, q), tf.where(moves, p_half, p), velocity_change, ledger

        first = (tf.constant(0), position, momentum, tf.zeros_like(position), ledger)
        _, position, momentum, _, ledger = tf.while_loop(lambda i, *_: i < num_substeps, body, first)
        end = hamiltonian.at(position)
        momentum += 0.5 * step_size * closing_length(num_substeps) * end.force(momentum)
        return end, position, momentum, ledger.evaluated(1)
