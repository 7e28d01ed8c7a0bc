"""What the integrators that solve equations share: tolerances, and steps that are accepted only if they can be undone."""

from __future__ import annotations

import abc
import math

import tensorflow as tf

from tfp_rmhmc.argument import check_order, check_real
from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.base import Integrator, Point
from tfp_rmhmc.integrator.fixed_point import FixedPoint, Map, check_solver_arguments, default_tolerance, solve_fixed_point
from tfp_rmhmc.integrator.status import Ledger, Status

__all__ = ['ImplicitIntegrator', 'join', 'split']

# How far from its start a step may return, in units of the metric. A solve leaves errors of its tolerance (1e-6 and 1e-4),
# which a stiff step enlarges; another branch of solutions is off by tenths.
_RETURN_TOLERANCE = {tf.float64: 1e-3, tf.float32: 1e-2}


class ImplicitIntegrator(Integrator):
    """A symmetric, symplectic integrator of (q, p) whose steps are the solutions of equations.

    An equation may have several solutions, or be solved from one end of a step and not from the other. To reject the
    trajectories whose solves fail is then not reversible, and biased: on a twisted target with 14 % of failed solves,
    8,000 chains show it after four transitions at p = 3e-14. So every step is made twice: from its start, and back from
    its end, by the same solver from a starting guess of its own, which depends on position and momentum alone. A step
    that does not come back ends its trajectory, with the status NOT_REVERSIBLE. This doubles the cost, and makes the
    kernel exact, up to the tolerances, wherever it is used.

    Args:
      tolerance: of the solves, in units of the metric, that is, of the target's local standard deviations; by default 1e-6
        in float64 and 1e-4 in float32.
      max_iterations: of each solve. A chain that needs more is rejected and says so in its status.
      order: 2, or 4 by composition.
      reversibility_tolerance: by how much a step may miss its start on the way back, in units of the metric; by default
        1e-3 in float64 and 1e-2 in float32. With `float('inf')` the way back is left out, at half the cost: harmless where
        no solve ever fails, biased elsewhere, so that the kernel says `is_calibrated == False`.
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
        if reversibility_tolerance is not None:
            check_real('reversibility_tolerance', reversibility_tolerance, above=0.0, may_be_infinite=True)
        self._tolerance = tolerance
        self._max_iterations = max_iterations
        self.order = order
        self._reversibility_tolerance = reversibility_tolerance

    @property
    def is_exact(self) -> bool:
        return self._returns

    @property
    def _returns(self) -> bool:
        """Whether each step is undone to see whether it can be."""
        return self._reversibility_tolerance is None or math.isfinite(self._reversibility_tolerance)

    @abc.abstractmethod
    def attempt(self, hamiltonian: Hamiltonian, point: Point, step_size: tf.Tensor) -> Point:
        """A step whose way back is not looked at: a function of position, momentum and step size alone."""

    def step(self, hamiltonian: Hamiltonian, point: Point, step_size: tf.Tensor) -> Point:
        """There and back, as two rounds of one loop, so that a program holds the equations once."""
        if not self._returns:
            return self.attempt(hamiltonian, point, step_size)

        def go(i: tf.Tensor, here: Point, _: Point) -> tuple[tf.Tensor, Point, Point]:
            return i + 1, self.attempt(hamiltonian, here, tf.where(tf.equal(i, 0), step_size, -step_size)), here

        _, back, there = tf.while_loop(lambda i, *_: i < 2, go, (tf.constant(0), point, point))
        return self.judge(hamiltonian, point, there, back.position - point.position, back.momentum - point.momentum, back)

    def judge(
        self,
        hamiltonian: Hamiltonian,
        start: Point,
        end: Point,
        missed_position: tf.Tensor,
        missed_momentum: tf.Tensor,
        back: Point,
    ) -> Point:
        """The end of a step, or its start for the chains that were not led back.

        Args:
          hamiltonian: as in `step`.
          start, end: of the step.
          missed_position, missed_momentum: by how much the way back missed the start.
          back: with the ledger after the way back.
        """
        local = hamiltonian.at(start.position)
        limit = self._reversibility_tolerance or _RETURN_TOLERANCE[start.position.dtype]
        has_returned = back.ledger.is_ok & (local.distance(missed_position, missed_momentum) <= limit)
        # A chain that was there and did not come back is not reversible, whatever its solver says of the way back.
        ledger = back.ledger._replace(status=end.ledger.status).evaluated(1).fail(~has_returned, Status.NOT_REVERSIBLE)
        moves = ledger.is_ok[..., tf.newaxis]
        return end._replace(
            position=tf.where(moves, end.position, start.position),
            momentum=tf.where(moves, end.momentum, start.momentum),
            ledger=ledger,
        )

    def draw(
        self, local: LocalHamiltonian, position: tf.Tensor, step_size: tf.Tensor, ledger: Ledger, seed: tf.Tensor
    ) -> Point:
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
