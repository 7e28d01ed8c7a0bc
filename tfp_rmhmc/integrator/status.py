"""How a chain's trajectory went."""

from __future__ import annotations

import enum
from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.integrator.fixed_point import FixedPoint

__all__ = ['Ledger', 'Status']


class Status(enum.IntEnum):
    """How a chain's trajectory ended. One that failed keeps its state, and so, almost surely, does one that diverged."""

    OK = 0
    DIVERGED = 1  # the energy rose by more than `DIVERGENCE_THRESHOLD`
    NOT_CONVERGED = 2  # an implicit equation was not solved to the tolerance
    NOT_REVERSIBLE = 3  # integrating back did not return to the start
    NON_FINITE = 4  # a position, momentum, energy or metric was infinite or NaN, or a metric or determinant not positive


class Ledger(NamedTuple):
    """What a trajectory has cost each chain so far and whether it failed, all `[batch...]`.

    Attributes:
      status: a `Status`, int32. The first failure stays.
      iterations: of solvers, summed over the trajectory, int32.
      residual: the largest relative residual that a solver was left with.
      metric_evaluations: how often the metric was evaluated for the chain, int32.
    """

    status: tf.Tensor
    iterations: tf.Tensor
    residual: tf.Tensor
    metric_evaluations: tf.Tensor

    @classmethod
    def new(cls, position: tf.Tensor) -> Ledger:
        """The ledger of chains at `position: [batch..., D]` that have done nothing yet."""
        none = tf.zeros_like(position[..., 0], dtype=tf.int32)
        return cls(none + int(Status.OK), none, tf.zeros_like(position[..., 0]), none)

    @property
    def is_ok(self) -> tf.Tensor:
        """The chains that still move."""
        return tf.equal(self.status, Status.OK)

    def fail(self, failed: tf.Tensor, reason: Status | tf.Tensor) -> Ledger:
        """The ledger after some chains failed, for one reason or each for its own; those that failed before keep theirs."""
        reason = tf.constant(int(reason)) if isinstance(reason, Status) else reason
        return self._replace(status=tf.where(failed & self.is_ok, reason, self.status))

    def evaluated(self, evaluations: int | tf.Tensor) -> Ledger:
        """The ledger after metric evaluations of the chains that still move, outside of a solver."""
        return self._replace(metric_evaluations=self.metric_evaluations + evaluations * tf.cast(self.is_ok, tf.int32))

    def solved(self, solution: FixedPoint, evaluations_per_iteration: int) -> Ledger:
        """The ledger after one more solve for the chains that still moved."""
        failed = self.is_ok & ~solution.has_converged
        entered = self._replace(
            iterations=self.iterations + solution.iterations,
            residual=tf.where(self.is_ok, tf.maximum(self.residual, solution.residual), self.residual),
            metric_evaluations=self.metric_evaluations + evaluations_per_iteration * solution.iterations,
        )
        not_finite = failed & ~tf.math.is_finite(solution.residual)
        return entered.fail(not_finite, Status.NON_FINITE).fail(failed, Status.NOT_CONVERGED)
