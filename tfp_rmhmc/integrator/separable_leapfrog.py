"""The leapfrog of separable metrics: explicit, exact, one gradient a step."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.argument import check_order
from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.base import Integrator
from tfp_rmhmc.integrator.status import Ledger
from tfp_rmhmc.metric import Evaluation, Metric, Separation

__all__ = ['SeparableLeapfrog']


class _Evaluated(NamedTuple):
    """A point, and the log density `[batch...]` and its gradient `[batch..., D]` there."""

    position: tf.Tensor
    momentum: tf.Tensor
    ledger: Ledger
    log_prob: tf.Tensor
    gradient: tf.Tensor


class SeparableLeapfrog(Integrator):
    """Splits the Hamiltonian of a separable metric into terms that each have an exact flow.

    With `U = -l` and the kinetic energies K_b of the blocks (`metric.separation`), under U only p moves, and under K_b only
    q_b and the momenta of the other blocks, on straight lines:

        U(h):    p   -= h dU/dq
        K_b(h):  q_b += h G_b^-1 p_b,     p_j -= h dK_b/dq_j  for the other blocks j
        step:    U(h/2) K_1(h/2) ... K_B-1(h/2) K_B(h) K_B-1(h/2) ... K_1(h/2) U(h/2)

    Second order, symmetric, symplectic in the original phase space. No copies and no equations: nothing can fail to
    converge, and a step is undone by its reverse to rounding. With one block of constant metric it is the ordinary
    leapfrog. Cost of a step: one gradient of the log density, and O(D) for the scales. Reference: Zhang and Sutton 2014,
    "Semi-separable Hamiltonian Monte Carlo for inference in Bayesian hierarchical models".

    Args:
      order: 2, or 4 by composition, at three gradients a step.
    """

    point_type = _Evaluated
    is_explicit = True

    def __init__(self, order: int = 2):
        check_order(order)
        self.order = order

    def check_metric(self, metric: Metric) -> None:
        if not metric.is_separable:
            raise TypeError(
                '`metric` must be separable for SeparableLeapfrog, that is, a SeparableMetric or an EuclideanMetric; got '
                f'{metric!r}.'
            )

    def blank(self, hamiltonian: Hamiltonian, position: tf.Tensor, known: Evaluation | None) -> _Evaluated:
        log_prob, gradient = hamiltonian.evaluate(position) if known is None else known
        return _Evaluated(position, tf.zeros_like(position), Ledger.new(position), log_prob, gradient)

    def known(self, point: _Evaluated) -> Evaluation:
        return Evaluation(point.log_prob, point.gradient)

    def begin(self, local: LocalHamiltonian, position: tf.Tensor, momentum: tf.Tensor, ledger: Ledger) -> _Evaluated:
        return _Evaluated(position, momentum, ledger, local.log_prob, local.gradient)

    def step(self, hamiltonian: Hamiltonian, point: _Evaluated, step_size: tf.Tensor) -> _Evaluated:
        momentum = point.momentum + 0.5 * step_size * point.gradient
        position, momentum = self._drift(hamiltonian, point.position, momentum, step_size)
        log_prob, gradient = hamiltonian.evaluate(position)
        momentum = momentum + 0.5 * step_size * gradient
        return _Evaluated(position, momentum, point.ledger.evaluated(1), log_prob, gradient)

    def _drift(
        self, hamiltonian: Hamiltonian, position: tf.Tensor, momentum: tf.Tensor, step_size: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The kinetic part of a step: all K_b, in a palindrome."""
        separation = hamiltonian.metric.separation(hamiltonian.density.layout)
        partition = separation.partition
        q, p = partition.split(position), partition.split(momentum)
        steps = [step_size] * len(q) if step_size.shape.rank == 0 else partition.split(step_size)
        *outer, middle = separation.groups(q)
        halves = [0.5 * h for h in steps] if outer else steps
        for group in outer:
            q, p = _flow(separation, group, q, p, halves)
        q, p = _flow(separation, middle, q, p, steps)
        for group in reversed(outer):
            q, p = _flow(separation, group, q, p, halves)
        return partition.join(q), partition.join(p)


def _flow(
    separation: Separation, group: list[int], q: list[Any], p: list[Any], steps: list[Any]
) -> tuple[list[Any], list[Any]]:
    """The exact flow of the kinetic energy of a group, over the steps of each block."""
    velocities, pulls = separation.terms(group, q, p)
    moved = list(q)
    for b, velocity in zip(group, velocities, strict=True):
        moved[b] = q[b] + steps[b] * velocity
    return moved, [x if pull is None else x - h * pull for x, h, pull in zip(p, steps, pulls, strict=True)]
