"""Symmetric projection: explicit steps in the doubled phase space, pulled back to the original one."""

from __future__ import annotations

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.base import Point
from tfp_rmhmc.integrator.doubled import Doubled, kick, look
from tfp_rmhmc.integrator.fixed_point import Weigh
from tfp_rmhmc.integrator.implicit import ImplicitIntegrator, join, split

__all__ = ['SymmetricProjection']

_A, _B = 1.0, -1.0


class SymmetricProjection(ImplicitIntegrator):
    """One step: part the copies by d, take `A(h/2) B(h) A(h/2)`, and part them by d again so that they meet.

    That is, with the gap `gap(d)` after the shears, solve `gap(d) + d = 0`. Second order, symmetric, symplectic in the
    original phase space (Jayawardana and Ohsawa 2023, "Semiexplicit symplectic integrators for non-separable Hamiltonian
    systems"). The gap is `d + O(h^2)`, so the iteration `d <- (d - gap(d)) / 2` from `d = 0` contracts like h^2. Cost of a
    step: three force evaluations for each iteration, of which it takes about four, and three for the step itself; and the
    same on the way back.

    Args:
      tolerance, max_iterations, order, reversibility_tolerance: as in `ImplicitIntegrator`.
    """

    is_explicit = True

    def attempt(self, hamiltonian: Hamiltonian, point: Point, step_size: tf.Tensor) -> Point:
        def shear(gap: tf.Tensor) -> tuple[Doubled, LocalHamiltonian]:
            parted = Doubled(point.position, point.momentum, point.ledger, *split(gap))
            local, slope = look(hamiltonian, parted, _A)
            parted = kick(parted, slope, 0.5 * step_size, _A)
            parted = kick(parted, look(hamiltonian, parted, _B)[1], step_size, _B)
            return kick(parted, look(hamiltonian, parted, _A)[1], 0.5 * step_size, _A), local

        def gap_map(gap: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
            sheared, local = shear(gap)

            def weigh(residual: tf.Tensor) -> tf.Tensor:
                dq, dp = split(residual)
                return join(local.factor.multiply(dq), local.factor.solve(dp))

            return 0.5 * (gap - join(sheared.position_gap, sheared.momentum_gap)), weigh

        nothing = tf.zeros_like(join(point.position, point.momentum))
        solution, ledger = self.solve(gap_map, nothing, point.ledger, evaluations_per_iteration=3)
        sheared, _ = shear(solution.value)
        moves = ledger.is_ok[..., tf.newaxis]
        return Point(
            tf.where(moves, sheared.position, point.position),
            tf.where(moves, sheared.momentum, point.momentum),
            ledger.evaluated(3),
        )
