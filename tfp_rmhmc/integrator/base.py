"""What an integrator is asked for and what it answers."""

from __future__ import annotations

import abc
import enum
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, PhasePoint, kinetic_energy_change

__all__ = ['Dynamics', 'Proposal', 'Status', 'check_order', 'finish', 'first_failure', 'substep_coefficients']


class Status(enum.IntEnum):
    """How a chain's trajectory ended. Anything but OK and DIVERGED is rejected outright; DIVERGED in effect."""

    OK = 0
    DIVERGED = 1  # the energy rose by more than `DIVERGENCE_THRESHOLD`
    NOT_CONVERGED = 2  # an implicit equation was not solved to the tolerance
    NOT_REVERSIBLE = 3  # integrating back did not return to the start
    NON_FINITE = 4  # a position, momentum, energy or metric was infinite or NaN, or a metric not positive definite


# The energy error that counts as divergence, the value that TFP's and Stan's NUTS use.
DIVERGENCE_THRESHOLD = 1000.0


class Proposal(NamedTuple):
    """Where a trajectory ended, for each chain. Vectors are `[batch..., D]`, the rest `[batch...]`.

    Attributes:
      position: the proposed position.
      log_prob: log density there.
      gradient: of the log density there.
      initial_momentum, final_momentum: `p` at the two ends.
      initial_velocity, final_velocity: `G^-1 p` at the two ends.
      log_acceptance_correction: log density ratio of everything but the target: momentum and auxiliary variables.
      energy: H at the start.
      status: a `Status`, int32.
      iterations: solver iterations, summed over the trajectory, int32.
      residual: the largest relative residual that a solve was left with.
      metric_evaluations: metric factorisations that the chain needed, int32.
    """

    position: tf.Tensor
    log_prob: tf.Tensor
    gradient: tf.Tensor
    initial_momentum: tf.Tensor
    final_momentum: tf.Tensor
    initial_velocity: tf.Tensor
    final_velocity: tf.Tensor
    log_acceptance_correction: tf.Tensor
    energy: tf.Tensor
    status: tf.Tensor
    iterations: tf.Tensor
    residual: tf.Tensor
    metric_evaluations: tf.Tensor


class Dynamics(abc.ABC):
    """Draws a momentum, integrates, and says with what probability correction the end may be proposed."""

    @property
    def is_exact(self) -> bool:
        """Whether accepting with the proposal's correction leaves the target invariant."""
        return True

    @abc.abstractmethod
    def propose(
        self, hamiltonian: Hamiltonian, position: tf.Tensor, step_size: tf.Tensor, num_steps: tf.Tensor, seed: tf.Tensor
    ) -> Proposal:
        """One trajectory from `position: [batch..., D]` with a fresh momentum.

        Args:
          hamiltonian: of the current target and metric.
          position: `[batch..., D]`.
          step_size: scalar, or broadcasting with the position. With `S = diag(step_size)`, the scaled equations
            `dq = S dH/dp, dp = -S dH/dq` are Hamiltonian in `q / sqrt(S), p / sqrt(S)`: every form is legal.
          num_steps: int32 scalar.
          seed: int32[2].
        """

    def __repr__(self) -> str:
        arguments = ', '.join(f'{name.lstrip("_")}={value!r}' for name, value in vars(self).items())
        return f'{type(self).__name__}({arguments})'


def check_order(order: int) -> None:
    """Raises unless `order` is one that `substep_coefficients` knows."""
    if order not in (2, 4):
        raise ValueError(f'`order` must be 2 or 4, got {order!r}.')


def substep_coefficients(order: int) -> tuple[float, ...]:
    """The lengths, in units of a step, of the symmetric second-order steps that make one step of `order` 2 or 4.

    For order 4, Yoshida's triple jump: `(c, 1 - 2c, c)` with `c = 1 / (2 - 2^(1/3))`. Reference: Yoshida 1990,
    "Construction of higher order symplectic integrators", eq. 2.11. Three times the cost of a step of order 2.
    """
    if order == 2:
        return (1.0,)
    outer = 1.0 / (2.0 - 2.0 ** (1.0 / 3.0))
    return (outer, 1.0 - 2.0 * outer, outer)


def first_failure(status: tf.Tensor, failed: tf.Tensor, reason: Status) -> tf.Tensor:
    """`reason` for chains that just failed and were OK before, else the status they had."""
    return tf.where(failed & tf.equal(status, Status.OK), tf.constant(int(reason)), status)


def finish(
    start: PhasePoint,
    end: PhasePoint,
    auxiliary_energy_change: Any,
    status: tf.Tensor,
    iterations: tf.Tensor,
    residual: tf.Tensor,
    metric_evaluations: tf.Tensor,
) -> Proposal:
    """The proposal of a trajectory between two ends; a failed chain proposes to stay and is refused.

    Args:
      start, end: the two ends.
      auxiliary_energy_change: `[batch...]` or 0, minus the log density ratio of variables beside the momentum.
      status, iterations, residual, metric_evaluations: as in `Proposal`; `status` is completed here.
    """
    energy_change = kinetic_energy_change(start, end) + auxiliary_energy_change
    total_change = energy_change + start.log_prob - end.log_prob
    all_finite = tf.math.is_finite(total_change) & tf.reduce_all(
        tf.math.is_finite(end.position) & tf.math.is_finite(end.gradient) & tf.math.is_finite(end.momentum), axis=-1
    )
    status = first_failure(status, ~all_finite, Status.NON_FINITE)
    status = first_failure(status, total_change > DIVERGENCE_THRESHOLD, Status.DIVERGED)
    can_move = tf.equal(status, Status.OK) | tf.equal(status, Status.DIVERGED)
    move = can_move[..., tf.newaxis]
    minus_infinity = tf.constant(-float('inf'), energy_change.dtype)
    return Proposal(
        position=tf.where(move, end.position, start.position),
        log_prob=tf.where(can_move, end.log_prob, start.log_prob),
        gradient=tf.where(move, end.gradient, start.gradient),
        initial_momentum=start.momentum,
        final_momentum=tf.where(move, end.momentum, start.momentum),
        initial_velocity=start.velocity,
        final_velocity=tf.where(move, end.velocity, start.velocity),
        log_acceptance_correction=tf.where(can_move, -energy_change, minus_infinity),
        energy=start.energy,
        status=status,
        iterations=iterations,
        residual=residual,
        metric_evaluations=metric_evaluations,
    )
