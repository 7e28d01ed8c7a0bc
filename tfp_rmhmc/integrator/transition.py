"""One transition of any integrator: draw, travel, and the correction with which the end may be accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian, PhasePoint, kinetic_energy_change
from tfp_rmhmc.integrator.base import Integrator, Leg
from tfp_rmhmc.integrator.status import Ledger, Status
from tfp_rmhmc.metric import Evaluation

__all__ = ['DIVERGENCE_THRESHOLD', 'End', 'Proposal', 'Trajectory', 'fly', 'propose']

# The energy error that counts as divergence, the value that TFP's and Stan's NUTS use.
DIVERGENCE_THRESHOLD = 1000.0


class Proposal(NamedTuple):
    """Where a trajectory ended, for each chain. Vectors are `[batch..., D]`, the rest `[batch...]`.

    Attributes:
      position: the proposed position.
      log_prob: the log density there.
      gradient: of the log density there.
      initial_momentum, final_momentum: `p` at the two ends.
      initial_velocity, final_velocity: `G^-1 p` at the two ends.
      log_acceptance_correction: the log density ratio of everything but the target, which is momentum and auxiliary
        variables, and the log determinant of a trajectory that does not preserve volume.
      energy: H at the start.
      ledger: status, and what the trajectory cost.
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
    ledger: Ledger


class End(NamedTuple):
    """One end of a trajectory.

    Attributes:
      phase: position, momentum and what H is made of there.
      point: the integrator's own point, with its auxiliary variables; empty if it has none.
      auxiliary_energies: what these add to the energy, `[batch..., D]`; empty if there are none.
    """

    phase: PhasePoint
    point: Any
    auxiliary_energies: Any


class Trajectory(NamedTuple):
    """Both ends of a trajectory, the ledger after it, and its log determinant `[batch...]`; empty where volume is kept."""

    start: End
    end: End
    ledger: Ledger
    log_determinant: Any


def propose(
    integrator: Integrator,
    hamiltonian: Hamiltonian,
    position: tf.Tensor,
    step_size: tf.Tensor,
    num_steps: tf.Tensor,
    seed: tf.Tensor,
    known: Evaluation | None = None,
) -> Proposal:
    """One trajectory from `position: [batch..., D]` with a fresh momentum.

    Args:
      integrator: which draws and travels.
      hamiltonian: of the current target and metric.
      position: `[batch..., D]`.
      step_size: a scalar, or a tensor that broadcasts with the position.
      num_steps: int32 scalar.
      seed: int32[2].
      known: log density and gradient at the position, if they are known.
    """

    def draw(local: LocalHamiltonian, ledger: Ledger) -> Any:
        return integrator.draw(local, position, step_size, ledger, seed)

    return _accepting(fly(integrator, hamiltonian, draw, position, step_size, num_steps, known))


def fly(
    integrator: Integrator,
    hamiltonian: Hamiltonian,
    launch: Callable[[LocalHamiltonian, Ledger], Any],
    position: tf.Tensor,
    step_size: tf.Tensor,
    num_steps: tf.Tensor,
    known: Evaluation | None = None,
) -> Trajectory:
    """The trajectory from the point that `launch` makes of the Hamiltonian at `position`.

    Start and end are visits. Each evaluates the metric, then travels on if there is a way to go. Where that evaluation is
    large, the visits are rounds of one loop: a program then holds the metric at the ends once, not twice, and is compiled
    in half the time. Where it is small (`integrator.ends_are_cheap`) they are written out, which spares the loop.
    """

    def visit(i: int | tf.Tensor, point: Any, ends: tuple[End, ...]) -> tuple[int | tf.Tensor, Any, tuple[End, ...]]:
        is_start = _is(i, 0)
        local = hamiltonian.at(point.position, integrator.known(point))
        ledger = point.ledger if integrator.ends_are_cheap else point.ledger.evaluated(1)
        point = _cond(is_start, lambda: launch(local, ledger), lambda: point._replace(ledger=ledger))
        phase = PhasePoint.of(local, point.position, point.momentum)
        moved = point
        if integrator.has_auxiliary_variables or is_start is not False:
            steps = _choose(is_start, num_steps, tf.zeros_like(num_steps))
            moved = integrator.travel(hamiltonian, local, point, Leg(step_size, steps, is_start))
        arrival = End(phase, (), ())
        if integrator.has_auxiliary_variables:
            # They are what `travel` sets out from at the start, and what it makes of those that arrive at the end.
            here = _choose(is_start, point, moved)
            arrival = End(phase, here, integrator.auxiliary_energies(local, here, step_size))
        return i + 1, moved, (*ends[1:], arrival)

    blank = integrator.blank(hamiltonian, position, step_size, known)
    nowhere = End(PhasePoint.zeros_like(position), (), ())
    if integrator.has_auxiliary_variables:
        nowhere = nowhere._replace(point=blank, auxiliary_energies=tf.zeros_like(position))
    ends: tuple[End, ...] = (nowhere, nowhere)
    if integrator.ends_are_cheap:
        point = blank
        for i in range(2):
            _, point, ends = visit(i, point, ends)
    else:
        first = (tf.constant(0), blank, ends)
        _, point, ends = tf.while_loop(lambda i, *_: i < 2, visit, first)
    log_determinant = () if integrator.preserves_volume else integrator.log_determinant(point)
    return Trajectory(ends[0], ends[1], point.ledger, log_determinant)


def _is(i: int | tf.Tensor, number: int) -> bool | tf.Tensor:
    return tf.equal(i, number) if tf.is_tensor(i) else i == number


def _cond(condition: bool | tf.Tensor, chosen: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """`tf.cond`, or the branch itself where it is known while tracing."""
    if isinstance(condition, bool):
        return chosen() if condition else otherwise()
    return tf.cond(condition, chosen, otherwise)


def _choose(condition: bool | tf.Tensor, chosen: Any, otherwise: Any) -> Any:
    """`chosen` if a scalar condition holds, for nests of tensors."""
    if isinstance(condition, bool):
        return chosen if condition else otherwise
    return tf.nest.map_structure(lambda x, y: tf.where(condition, x, y), chosen, otherwise)


def _accepting(trajectory: Trajectory) -> Proposal:
    """The proposal of a trajectory. A chain that failed proposes to stay where it is, and is refused."""
    start, end = trajectory.start.phase, trajectory.end.phase
    energy_change = kinetic_energy_change(start, end)
    if tf.is_tensor(trajectory.end.auxiliary_energies):
        # Subtracted before the sum, as in `kinetic_energy_change`.
        terms = trajectory.end.auxiliary_energies - trajectory.start.auxiliary_energies
        energy_change += tf.reduce_sum(terms, axis=-1)
    if tf.is_tensor(trajectory.log_determinant):
        # The density at the end of what has been stretched counts as often: exp(-H') |det| against exp(-H).
        energy_change -= trajectory.log_determinant
    total_change = energy_change + start.log_prob - end.log_prob
    all_finite = tf.math.is_finite(total_change) & tf.reduce_all(
        tf.math.is_finite(end.position) & tf.math.is_finite(end.gradient) & tf.math.is_finite(end.momentum), axis=-1
    )
    ledger = trajectory.ledger.fail(~all_finite, Status.NON_FINITE)
    ledger = ledger.fail(total_change > DIVERGENCE_THRESHOLD, Status.DIVERGED)
    can_move = ledger.is_ok | tf.equal(ledger.status, Status.DIVERGED)
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
        ledger=ledger,
    )
