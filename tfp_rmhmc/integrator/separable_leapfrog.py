"""The leapfrog of separable metrics: explicit, exact, one gradient a step."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.argument import check_order
from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.base import Integrator, Leg, composition, is_shared
from tfp_rmhmc.integrator.status import Ledger
from tfp_rmhmc.metric import Evaluation, Metric, Partition, Separation

__all__ = ['SeparableLeapfrog']


class _Evaluated(NamedTuple):
    """A point, with the log density `[batch...]` and its gradient `[batch..., D]` there."""

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
    leapfrog. Cost of a step: one gradient of the log density, and O(D) for the scales. Cost of a trajectory: that of its
    steps, and one value of the log density at its end. Reference: Zhang and Sutton 2014, "Semi-separable Hamiltonian Monte
    Carlo for inference in Bayesian hierarchical models".

    Args:
      order: 2, or 4 by composition, at three gradients a step.
    """

    point_type = _Evaluated
    is_explicit = True
    ends_are_cheap = True
    is_infallible = True

    def __init__(self, order: int = 2):
        check_order(order)
        self.order = order

    def check_metric(self, metric: Metric) -> None:
        if not metric.is_separable:
            raise TypeError(
                '`metric` must be separable for SeparableLeapfrog, that is, a SeparableMetric or an EuclideanMetric; got '
                f'{metric!r}.'
            )

    def blank(
        self, hamiltonian: Hamiltonian, position: tf.Tensor, step_size: tf.Tensor, known: Evaluation | None
    ) -> _Evaluated:
        log_prob, gradient = hamiltonian.evaluate(position) if known is None else known
        del step_size
        return _Evaluated(position, tf.zeros_like(position), Ledger.new(position), log_prob, gradient)

    def known(self, point: _Evaluated) -> Evaluation:
        return Evaluation(point.log_prob, point.gradient)

    def begin(
        self, local: LocalHamiltonian, position: tf.Tensor, momentum: tf.Tensor, step_size: tf.Tensor, ledger: Ledger
    ) -> _Evaluated:
        del step_size
        return _Evaluated(position, momentum, ledger, local.log_prob, local.gradient)

    def step(self, hamiltonian: Hamiltonian, point: _Evaluated, step_size: tf.Tensor) -> _Evaluated:
        separation = _separation_of(hamiltonian)
        split, join = separation.partition.split, separation.partition.join
        kicked = point.momentum + 0.5 * step_size * point.gradient
        blocks = _drift(separation, split(point.position), split(kicked), step_size)
        position, momentum = (join(block) for block in blocks)
        log_prob, gradient = hamiltonian.evaluate(position)
        return _Evaluated(position, momentum + 0.5 * step_size * gradient, point.ledger, log_prob, gradient)

    def enter(self, hamiltonian: Hamiltonian, point: _Evaluated, step_size: tf.Tensor) -> _Evaluated:
        """Lists of blocks, a momentum that lacks its last half step of U, and no log density.

        That half step and the first one of the next step are made together, where all steps are of one size. The log
        density is needed at the end only; without it a step costs a fifth less in a graph.
        """
        split = _separation_of(hamiltonian).partition.split
        momentum = point.momentum - self._lag(step_size) * point.gradient
        return point._replace(
            position=split(point.position), momentum=split(momentum), log_prob=(), gradient=split(point.gradient)
        )

    def leave(self, hamiltonian: Hamiltonian, point: _Evaluated, step_size: tf.Tensor) -> _Evaluated:
        join = _separation_of(hamiltonian).partition.join
        position, gradient = join(point.position), join(point.gradient)
        momentum = join(point.momentum) + self._lag(step_size) * gradient
        return _Evaluated(position, momentum, point.ledger, hamiltonian.density(position), gradient)

    def _lag(self, step_size: tf.Tensor) -> tf.Tensor:
        return 0.5 * step_size if self.order == 2 else tf.zeros_like(step_size)

    def advance(self, hamiltonian: Hamiltonian, point: _Evaluated, step_size: tf.Tensor) -> _Evaluated:
        separation = _separation_of(hamiltonian)
        partition = separation.partition
        half = 0.5 * step_size
        kicks, halves = (
            _steps_of_blocks(partition, h, len(point.position)) for h in (step_size if self.order == 2 else half, half)
        )
        q, p = _drift(separation, point.position, _kicked(point.momentum, kicks, point.gradient), step_size)
        gradient = partition.split(hamiltonian.evaluate(partition.join(q)).gradient)
        if self.order != 2:
            p = _kicked(p, halves, gradient)
        return point._replace(position=q, momentum=p, gradient=gradient)

    def travel(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: _Evaluated, leg: Leg) -> _Evaluated:
        """Nothing can fail on the way, so that the gradients of all steps are counted at once, and not by `step`."""
        end = super().travel(hamiltonian, local, point, leg)
        gradients = end.ledger.metric_evaluations + leg.num_steps * len(composition(self.order))
        return end._replace(ledger=end.ledger._replace(metric_evaluations=gradients))


def _separation_of(hamiltonian: Hamiltonian) -> Separation:
    return hamiltonian.metric.separation(hamiltonian.density.layout)


def _steps_of_blocks(partition: Partition, step_size: tf.Tensor, num_blocks: int) -> list[tf.Tensor]:
    return [step_size] * num_blocks if is_shared(step_size) else partition.split(step_size)


def _kicked(momentum: list[Any], steps: list[Any], gradient: list[Any]) -> list[Any]:
    """The exact flow of U, block by block."""
    return [p + h * g for p, h, g in zip(momentum, steps, gradient, strict=True)]


def _drift(separation: Separation, q: list[Any], p: list[Any], step_size: tf.Tensor) -> tuple[list[Any], list[Any]]:
    """What a step does between its kicks: `K_1(h/2) ... K_B-1(h/2) K_B(h) K_B-1(h/2) ... K_1(h/2)`."""
    steps, halves = (_steps_of_blocks(separation.partition, h, len(q)) for h in (step_size, 0.5 * step_size))
    *outer, middle = separation.groups(q)
    for group in outer:
        q, p = _flow(separation, group, q, p, halves)
    q, p = _flow(separation, middle, q, p, steps)
    for group in reversed(outer):
        q, p = _flow(separation, group, q, p, halves)
    return q, p


def _flow(
    separation: Separation, group: list[int], q: list[Any], p: list[Any], steps: list[Any]
) -> tuple[list[Any], list[Any]]:
    """The exact flow of the kinetic energy of a group, over the steps of each block."""
    velocities, pulls = separation.terms(group, q, p)
    moved = list(q)
    for b, velocity in zip(group, velocities, strict=True):
        moved[b] = q[b] + steps[b] * velocity
    return moved, [x if pull is None else x - h * pull for x, h, pull in zip(p, steps, pulls, strict=True)]
