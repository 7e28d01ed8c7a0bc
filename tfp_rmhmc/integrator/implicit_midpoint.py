"""The implicit midpoint rule."""

from __future__ import annotations

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.fixed_point import Weigh, solve_fixed_point
from tfp_rmhmc.integrator.implicit import ImplicitDynamics, Ledger

__all__ = ['ImplicitMidpoint']


class ImplicitMidpoint(ImplicitDynamics):
    """One implicit equation a step, in position and momentum together.

    One step of size h from z = (q, p) to z', through the midpoint Z = (z + z') / 2:

        Z = z + h/2 (velocity, force)(Z)                 implicit in Z
        z' = 2 Z - z

    Second order, symmetric, symplectic (Hairer, Lubich and Wanner 2006, section VI.4). The first guess continues the
    previous step. Cost of a step: a force evaluation for each iteration.

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
        dtype = position.dtype
        coefficients, num_substeps = self._substeps(num_steps, dtype)
        solver_arguments = self._solver_arguments(dtype)
        per_step = coefficients.shape[0]
        # Phase points are one vector (q, p) here, since they are solved for together.
        both = lambda q, p: tf.concat([q, p], axis=-1)  # noqa: E731
        both_steps = step_size if step_size.shape.rank == 0 else both(step_size, step_size)

        def body(
            i: tf.Tensor, z: tf.Tensor, slope: tf.Tensor, ledger: Ledger
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Ledger]:
            half = 0.5 * both_steps * tf.gather(coefficients, i % per_step)

            def midpoint_map(x: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
                q, p = tf.split(x, 2, axis=-1)
                local = hamiltonian.at(q)

                def weigh(residual: tf.Tensor) -> tf.Tensor:
                    dq, dp = tf.split(residual, 2, axis=-1)
                    return both(local.factor.multiply(dq), local.factor.solve(dp))

                return z + half * both(local.velocity(p), local.force(p)), weigh

            middle = solve_fixed_point(midpoint_map, z + half * slope, ledger.is_ok, *solver_arguments)
            ledger = ledger.record(middle, evaluations_per_iteration=1)
            moves = ledger.is_ok[..., tf.newaxis]
            displacement = middle.value - z
            safe_half = tf.where(tf.equal(half, 0.0), tf.ones_like(half), half)
            slope = tf.where(moves, displacement / safe_half, slope)
            return i + 1, tf.where(moves, z + 2.0 * displacement, z), slope, ledger

        first_slope = both(start.velocity(momentum), start.force(momentum))
        first = (tf.constant(0), both(position, momentum), first_slope, ledger)
        _, z, _, ledger = tf.while_loop(lambda i, *_: i < num_substeps, body, first)
        position, momentum = tf.split(z, 2, axis=-1)
        return hamiltonian.at(position), position, momentum, ledger.evaluated(1)
