"""What the integrators that solve equations share: tolerances, and the refusal to start where nothing can be solved."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfp_rmhmc.argument import check_order
from tfp_rmhmc.hamiltonian import LocalHamiltonian
from tfp_rmhmc.integrator.base import Integrator
from tfp_rmhmc.integrator.fixed_point import FixedPoint, Map, check_solver_arguments, default_tolerance, solve_fixed_point
from tfp_rmhmc.integrator.status import Ledger, Status

__all__ = ['ImplicitIntegrator', 'join', 'split']


class ImplicitIntegrator(Integrator):
    """A symmetric, symplectic integrator of (q, p) whose steps are the solutions of equations.

    It is exact in the limit of a small tolerance: a step whose equation is not quite solved is not quite reversible. The
    tolerance is in units of the metric, that is, of the target's local standard deviations. A chain that misses it is
    rejected. This is harmless where it is rare. Where a third of the solves fail it is not: a trajectory that can be solved
    may have a reverse that cannot, and 20,000 chains show the bias after ten transitions. There, take a smaller step, or
    set `reversibility_tolerance`, with which they show none.

    Args:
      tolerance: of the solves; by default 1e-6 in float64 and 1e-4 in float32.
      max_iterations: of each solve.
      order: 2, or 4 by composition.
      reversibility_tolerance: if given, each trajectory is integrated back, at twice the cost, and rejected if it misses
        its start by more than this, in units of the metric there.
    """

    def __init__(
        self,
        tolerance: float | None = None,
        max_iterations: int = 50,
        order: int = 2,
        reversibility_tolerance: float | None = None,
    ):
        check_solver_arguments(tolerance, max_iterations)
        check_order(order)
        if reversibility_tolerance is not None and not reversibility_tolerance > 0:
            raise ValueError(f'`reversibility_tolerance` must be positive or None, got {reversibility_tolerance!r}.')
        self._tolerance = tolerance
        self._max_iterations = max_iterations
        self.order = order
        self.reversibility_tolerance = reversibility_tolerance

    def draw(
        self, local: LocalHamiltonian, position: tf.Tensor, step_size: tf.Tensor, ledger: Ledger, seed: tf.Tensor
    ) -> Any:
        """A fresh momentum. A chain that cannot start is marked: its equations would be iterated to the limit in vain."""
        point = super().draw(local, position, step_size, ledger, seed)
        can_start = tf.math.is_finite(local.energy(point.momentum)) & tf.reduce_all(
            tf.math.is_finite(local.force(point.momentum)), axis=-1
        )
        return point._replace(ledger=point.ledger.fail(~can_start, Status.NON_FINITE))

    def solve(self, fn: Map, guess: tf.Tensor, ledger: Ledger, evaluations_per_iteration: int) -> tuple[FixedPoint, Ledger]:
        """The fixed point of `fn` for the chains that still move, and the ledger after it."""
        tolerance = default_tolerance(self._tolerance, guess.dtype)
        solution = solve_fixed_point(fn, guess, ledger.is_ok, tolerance, self._max_iterations)
        return solution, ledger.solved(solution, evaluations_per_iteration)


def join(position: tf.Tensor, momentum: tf.Tensor) -> tf.Tensor:
    """Two vectors `[batch..., D]` as one, `[batch..., 2 D]`, for equations that are solved for both together."""
    return tf.concat([position, momentum], axis=-1)


def split(joined: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The inverse of `join`."""
    position, momentum = tf.split(joined, 2, axis=-1)
    return position, momentum
