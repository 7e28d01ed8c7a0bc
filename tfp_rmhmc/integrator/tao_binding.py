"""The paper's explicit integrator: two copies, bound in the identity metric."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.argument import check_order, check_positive, check_real
from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.base import Integrator, Leg, composition
from tfp_rmhmc.integrator.doubled import Doubled, kick, look
from tfp_rmhmc.integrator.schedule import Schedule
from tfp_rmhmc.integrator.status import Ledger
from tfp_rmhmc.noise import split_seed, standard_normal_like

__all__ = ['TaoBinding']


class _Shear(NamedTuple):
    """A phase of a trajectory.

    Attributes:
      side: 1 for the shear A, -1 for B.
      length: of the shear, in units of the step size.
      bound: the step, in the same units, by which the copies are bound after it; 0 for none.
    """

    side: float
    length: float
    bound: float = 0.0


def _schedule(order: int) -> Schedule:
    """`A(1/2)`, then `B(1/2) C B(1/2) A(1)` for each step, where the A's of two steps are one; the last is `A(1/2)`.

    At order 4 a step is three of these, and the A between two has half of the length of each.
    """
    lengths = composition(order)
    cycle = []
    for length, following in zip(lengths, lengths[1:] + lengths[:1], strict=True):
        cycle += [
            _Shear(-1.0, 0.5 * length, bound=length),
            _Shear(-1.0, 0.5 * length),
            _Shear(1.0, 0.5 * (length + following)),
        ]
    end = _Shear(1.0, 0.5 * lengths[0])  # the lengths are a palindrome
    return Schedule(opening=[end], cycle=cycle, closing=[end])


class TaoBinding(Integrator):
    """The paper's binding: turns the gap between the copies by the angle `2 omega step_size`, in the identity metric.

    A step of size h is `A(h/2) B(h/2) C(h) B(h/2) A(h/2)`. A and B are the shears of the doubled phase space. C is the
    rotation of the paper's eq. 9, in which all four right-hand sides are taken from the old values. (The paper's Algorithm
    2 can be read as overwriting them one after another. That is a contraction and not reversible.)

    Second order in the step size. Cost of a step: three force evaluations.

    Args:
      omega: the binding's strength; 0 is Pihajoki's scheme.
      slack: if given, the gaps start from N(0, slack^2 I) and enter the accept step, which is then exact. If `None`, the
        paper's rule: the copies start equal, are dropped at the end, and `H(q, p)` alone is compared. That map is neither
        reversible nor volume-preserving on (q, p), so it is biased, and the kernel says `is_calibrated == False`.
      order: 2, or 4 by composition.
    """

    point_type = Doubled
    is_explicit = True
    has_auxiliary_variables = True

    def __init__(self, omega: float = 10.0, slack: float | None = None, order: int = 2):
        check_real('omega', omega, least=0.0)
        if slack is not None:
            check_positive('slack', slack)
        check_order(order)
        self._omega = omega
        self._slack = slack
        self.order = order

    @property
    def is_exact(self) -> bool:
        return self._slack is not None

    def draw(
        self, local: LocalHamiltonian, position: tf.Tensor, step_size: tf.Tensor, ledger: Ledger, seed: tf.Tensor
    ) -> Doubled:
        momentum_seed, gap_seed = split_seed(seed)
        point = super().draw(local, position, step_size, ledger, momentum_seed)
        if self._slack is None:
            return point
        position_seed, momentum_seed = split_seed(gap_seed)
        return point._replace(
            position_gap=self._slack * standard_normal_like(position, position_seed),
            momentum_gap=self._slack * standard_normal_like(position, momentum_seed),
        )

    def step(self, hamiltonian: Hamiltonian, point: Doubled, step_size: tf.Tensor) -> Doubled:
        """`A(h/2) B(h/2) C(h) B(h/2) A(h/2)`. Cost: four force evaluations; `travel` shares one with the next step."""
        return self._travel(hamiltonian, point, step_size, tf.constant(1))

    def travel(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Doubled, leg: Leg) -> Doubled:
        """Cost: three force evaluations a step (nine at order 4), and one more."""
        del local
        end = self._travel(hamiltonian, point, leg.step_size, leg.num_steps)
        if self._slack is not None:
            return end
        zeros = tf.zeros_like(end.position)
        return Doubled(
            end.position + 0.5 * end.position_gap, end.momentum + 0.5 * end.momentum_gap, end.ledger, zeros, zeros
        )

    def _travel(self, hamiltonian: Hamiltonian, point: Doubled, step_size: tf.Tensor, num_steps: tf.Tensor) -> Doubled:
        def perform(phase: _Shear, point: Doubled) -> Doubled:
            _, slope = look(hamiltonian, point, phase.side)
            kicked = kick(point._replace(ledger=point.ledger.evaluated(1)), slope, step_size * phase.length, phase.side)
            return self.couple(kicked, step_size * phase.bound)

        schedule = _schedule(self.order)
        last = tf.where(num_steps > 0, schedule.length(num_steps), tf.zeros_like(num_steps))
        return schedule.run(perform, point, num_steps, last=last)

    def couple(self, point: Doubled, step: tf.Tensor) -> Doubled:
        """C(step), whose inverse is C(-step); C(0) is the identity."""
        angle = 2.0 * self._omega * step
        cosine, sine = tf.cos(angle), tf.sin(angle)
        a, b = point.position_gap, point.momentum_gap
        return point._replace(position_gap=cosine * a + sine * b, momentum_gap=cosine * b - sine * a)

    def flipped(self, point: Doubled) -> Doubled:
        return point._replace(momentum=-point.momentum, momentum_gap=-point.momentum_gap)

    def auxiliary_energies(self, local: LocalHamiltonian, point: Doubled, step_size: tf.Tensor) -> tf.Tensor:
        del local, step_size
        if self._slack is None:
            return tf.zeros_like(point.position)
        return (tf.square(point.position_gap) + tf.square(point.momentum_gap)) / (2.0 * self._slack**2)
