"""What the integrators that solve equations share: the ledger of their solves, and the proposal."""

from __future__ import annotations

import abc
from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian, PhasePoint
from tfp_rmhmc.integrator.base import Dynamics, Proposal, Status, check_order, finish, first_failure, substep_coefficients
from tfp_rmhmc.integrator.fixed_point import FixedPoint, check_solver_arguments, default_tolerance

__all__ = ['ImplicitDynamics', 'Ledger']


class Ledger(NamedTuple):
    """What the solves of a trajectory came to, all `[batch...]`: see `Proposal`."""

    status: tf.Tensor
    iterations: tf.Tensor
    residual: tf.Tensor
    metric_evaluations: tf.Tensor

    @property
    def is_ok(self) -> tf.Tensor:
        """Chains that still move."""
        return tf.equal(self.status, Status.OK)

    def record(self, solution: FixedPoint, evaluations_per_iteration: int) -> Ledger:
        """The ledger after one more solve of the chains that still moved."""
        failed = self.is_ok & ~solution.has_converged
        status = first_failure(self.status, failed & ~tf.math.is_finite(solution.residual), Status.NON_FINITE)
        return Ledger(
            first_failure(status, failed, Status.NOT_CONVERGED),
            self.iterations + solution.iterations,
            tf.where(self.is_ok, tf.maximum(self.residual, solution.residual), self.residual),
            self.metric_evaluations + evaluations_per_iteration * solution.iterations,
        )

    def evaluated(self, evaluations: int) -> Ledger:
        """The ledger after metric evaluations outside a solve."""
        return self._replace(metric_evaluations=self.metric_evaluations + evaluations * tf.cast(self.is_ok, tf.int32))


class ImplicitDynamics(Dynamics):
    """A symmetric, symplectic integrator of (q, p) whose steps are solutions of equations.

    Exact in the limit of a small tolerance: a solve that is left short of it is a step that is not quite reversible. The
    tolerance is in units of the metric, that is, of the target's local standard deviations, and a chain that misses it
    is rejected. To reject is harmless while it is rare. Where a third of the solves fail it is not: a trajectory that can
    be solved may have a reverse that cannot, and 20,000 chains show the bias after ten transitions. There, take a smaller
    step, or `reversibility_tolerance`, with which they show none.

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
        self._order = order
        self._reversibility_tolerance = reversibility_tolerance

    @abc.abstractmethod
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
        """`num_steps` steps from (position, momentum): the Hamiltonian there, position, momentum and the ledger.

        `start` is the Hamiltonian at `position`. A chain whose ledger is not OK stays where it is.
        """

    def propose(
        self, hamiltonian: Hamiltonian, position: tf.Tensor, step_size: tf.Tensor, num_steps: tf.Tensor, seed: tf.Tensor
    ) -> Proposal:
        start = hamiltonian.at(position)
        momentum = start.draw_momentum(seed)
        none = tf.zeros_like(start.log_prob, dtype=tf.int32)
        # A chain that cannot start is not solved for: its equations have no solution and would run to the limit.
        can_start = tf.math.is_finite(start.energy(momentum)) & tf.reduce_all(
            tf.math.is_finite(start.force(momentum)), axis=-1
        )
        status = first_failure(none, ~can_start, Status.NON_FINITE)
        ledger = Ledger(status, none, tf.zeros_like(start.log_prob), none + 1)
        end, new_position, new_momentum, ledger = self.integrate(
            hamiltonian, start, position, momentum, step_size, num_steps, ledger
        )
        if self._reversibility_tolerance is not None:
            _, back_position, back_momentum, ledger = self.integrate(
                hamiltonian, end, new_position, -new_momentum, step_size, num_steps, ledger
            )
            missed = _distance(start, back_position - position, back_momentum + momentum)
            ledger = ledger._replace(
                status=first_failure(ledger.status, ~(missed <= self._reversibility_tolerance), Status.NOT_REVERSIBLE)
            )
        ends = PhasePoint.of(start, position, momentum), PhasePoint.of(end, new_position, new_momentum)
        return finish(*ends, 0.0, *ledger)

    def _solver_arguments(self, dtype: tf.DType) -> tuple[float, int]:
        return default_tolerance(self._tolerance, dtype), self._max_iterations

    def _substeps(self, num_steps: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """The lengths of the substeps of one step, and how many substeps there are in all."""
        coefficients = substep_coefficients(self._order)
        return tf.constant(coefficients, dtype), num_steps * len(coefficients)


def _distance(local: LocalHamiltonian, d_position: tf.Tensor, d_momentum: tf.Tensor) -> tf.Tensor:
    """`sqrt(dq' G dq + dp' G^-1 dp)`."""
    factor = local.factor
    squares = d_position * factor.multiply(d_position) + d_momentum * factor.solve(d_momentum)
    return tf.sqrt(tf.reduce_sum(squares, axis=-1))
