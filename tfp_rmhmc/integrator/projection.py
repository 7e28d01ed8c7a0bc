"""Symmetric projection: explicit steps in the doubled phase space, pulled back to the original one."""

from __future__ import annotations

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.extended import A, B, Extended, Slope, kick, slope_at
from tfp_rmhmc.integrator.fixed_point import Weigh, solve_fixed_point
from tfp_rmhmc.integrator.implicit import ImplicitDynamics, Ledger

__all__ = ['SymmetricProjection']


class SymmetricProjection(ImplicitDynamics):
    """One step: part the copies by d, take `A(h/2) B(h) A(h/2)`, and part them by d again so that they meet.

    That is, with the gap `gap(d)` after the shears, solve `gap(d) + d = 0`. Second order, symmetric, symplectic in the
    original phase space (Jayawardana and Ohsawa 2023, "Semiexplicit symplectic integrators for non-separable Hamiltonian
    systems"). The gap is `d + O(h^2)`, so the iteration `d <- (d - gap(d)) / 2` contracts like h^2; the first guess is the
    previous step's d. Cost of a step: three force evaluations for each iteration, and three for the step itself.

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
        del start
        dtype = position.dtype
        coefficients, num_substeps = self._substeps(num_steps, dtype)
        solver_arguments = self._solver_arguments(dtype)
        both = lambda q, p: tf.concat([q, p], axis=-1)  # noqa: E731

        def body(
            i: tf.Tensor, q: tf.Tensor, p: tf.Tensor, gap: tf.Tensor, ledger: Ledger
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, Ledger]:
            step = step_size * tf.gather(coefficients, i % coefficients.shape[0])

            def shear(gap: tf.Tensor) -> tuple[Extended, LocalHamiltonian]:
                state = Extended(q, p, *tf.split(gap, 2, axis=-1))
                local = hamiltonian.at(q + 0.5 * state.position_gap)
                momentum = p - 0.5 * state.momentum_gap
                state = kick(state, Slope(local.velocity(momentum), local.force(momentum)), 0.5 * step, A)
                state = kick(state, slope_at(hamiltonian, state, B), step, B)
                return kick(state, slope_at(hamiltonian, state, A), 0.5 * step, A), local

            def gap_map(gap: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
                state, local = shear(gap)

                def weigh(residual: tf.Tensor) -> tf.Tensor:
                    dq, dp = tf.split(residual, 2, axis=-1)
                    return both(local.factor.multiply(dq), local.factor.solve(dp))

                return 0.5 * (gap - both(state.position_gap, state.momentum_gap)), weigh

            solution = solve_fixed_point(gap_map, gap, ledger.is_ok, *solver_arguments)
            ledger = ledger.record(solution, evaluations_per_iteration=3)
            state, _ = shear(solution.value)
            ledger = ledger.evaluated(3)
            moves = ledger.is_ok[..., tf.newaxis]
            return (
                i + 1,
                tf.where(moves, state.position, q),
                tf.where(moves, state.momentum, p),
                tf.where(moves, solution.value, gap),
                ledger,
            )

        first = (tf.constant(0), position, momentum, tf.zeros_like(both(position, momentum)), ledger)
        _, position, momentum, _, ledger = tf.while_loop(lambda i, *_: i < num_substeps, body, first)
        return hamiltonian.at(position), position, momentum, ledger.evaluated(1)
