"""The paper's explicit integrator: two copies, bound in the identity metric."""

from __future__ import annotations

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian, PhasePoint
from tfp_rmhmc.integrator.base import Dynamics, Proposal, Status, check_order, finish, substep_coefficients
from tfp_rmhmc.integrator.extended import A, B, Extended, kick, slope_at
from tfp_rmhmc.metric.base import check_positive
from tfp_rmhmc.noise import split_seed, standard_normal_like

__all__ = ['TaoBinding']


class TaoBinding(Dynamics):
    """The paper's binding: turns the difference of the copies by the angle `2 omega step_size`, in the identity metric.

    A step of size h is `A(h/2) B(h/2) C(h) B(h/2) A(h/2)`, with A and B the shears of the doubled phase space and C the
    rotation of the paper's eq. 9, all four right-hand sides taken from the old values. (Its Algorithm 2 can be read as
    overwriting them one after another, which is a contraction and not reversible.)

    Second order in the step size. Cost of a step: three force evaluations.

    Args:
      omega: the binding's strength; 0 is Pihajoki's scheme.
      slack: if given, differences start from N(0, slack^2 I) and enter the accept step, which is then exact. If `None`,
        the paper's rule: the copies start equal, are dropped at the end, and `H(q, p)` alone is compared. That map
        is neither reversible nor volume-preserving on (q, p), so it is biased; the kernel says `is_calibrated == False`.
      order: 2, or 4 by composition.
    """

    def __init__(self, omega: float = 10.0, slack: float | None = None, order: int = 2):
        if not 0.0 <= omega < float('inf'):
            raise ValueError(f'`omega` must be non-negative, got {omega!r}.')
        if slack is not None:
            check_positive('slack', slack)
        check_order(order)
        self._omega = omega
        self._slack = slack
        self._order = order

    @property
    def is_exact(self) -> bool:
        return self._slack is not None

    def propose(
        self, hamiltonian: Hamiltonian, position: tf.Tensor, step_size: tf.Tensor, num_steps: tf.Tensor, seed: tf.Tensor
    ) -> Proposal:
        momentum_seed, gap_seed = split_seed(seed)
        start = hamiltonian.at(position)
        momentum = start.draw_momentum(momentum_seed)
        gap = self._draw_gap(start, gap_seed)
        final = self.integrate(hamiltonian, Extended(position, momentum, *gap), step_size, num_steps)
        proposed_position, proposed_momentum = self._choose_copy(final)
        end = hamiltonian.at(proposed_position)
        none = tf.zeros_like(start.log_prob, dtype=tf.int32)
        return finish(
            PhasePoint.of(start, position, momentum),
            PhasePoint.of(end, proposed_position, proposed_momentum),
            auxiliary_energy_change=self._gap_energy(end, final.position_gap, final.momentum_gap)
            - self._gap_energy(start, *gap),
            status=none + int(Status.OK),
            iterations=none,
            residual=tf.zeros_like(start.log_prob),
            metric_evaluations=none + 3 * num_steps * len(substep_coefficients(self._order)) + 3,
        )

    def integrate(self, hamiltonian: Hamiltonian, state: Extended, step_size: tf.Tensor, num_steps: tf.Tensor) -> Extended:
        """`num_steps` steps. Cost: three force evaluations a step (nine at order 4), and one more.

        A trajectory is one loop over shears: `A(1/2)`, and then for each step `B(1/2) C B(1/2) A(1)`, where the A's at the
        seams of two steps have become one, and the last is `A(1/2)`. So the target is traced and compiled once, not once
        for each shear of a step.
        """
        lengths = substep_coefficients(self._order)
        # Half of each A's neighbours: [i] closes substep i and opens the next one of the same or the following step.
        seams = [0.5 * (length + following) for length, following in zip(lengths, lengths[1:] + lengths[:1], strict=True)]
        dtype = state.position.dtype
        lengths_of, seams_of = tf.constant(lengths, dtype), tf.constant(seams, dtype)
        last = 3 * num_steps * len(lengths)

        def body(i: tf.Tensor, state: Extended) -> tuple[tf.Tensor, Extended]:
            substep = ((i - 1) // 3) % len(lengths)
            phase = (i - 1) % 3  # -1 % 3 is 2: the opening shear is an A
            is_a = tf.equal(phase, 2)
            length = tf.gather(lengths_of, substep)
            at_end = tf.equal(i, 0) | tf.equal(i, last)
            a_length = tf.where(at_end, 0.5 * lengths_of[0], tf.gather(seams_of, substep))  # palindromic: both ends alike
            side = tf.cast(tf.where(is_a, A, B), dtype)
            step = step_size * tf.where(is_a, a_length, 0.5 * length)
            kicked = kick(state, slope_at(hamiltonian, state, side), step, side)
            bound = self.couple(kicked, step_size * length)
            return i + 1, tf.nest.map_structure(lambda x, y: tf.where(tf.equal(phase, 0), x, y), bound, kicked)

        return tf.while_loop(lambda i, _: i <= last, body, (tf.constant(0), state))[1]

    def couple(self, state: Extended, step: tf.Tensor) -> Extended:
        """C(step), whose inverse is C(-step)."""
        angle = 2.0 * self._omega * step
        cosine, sine = tf.cos(angle), tf.sin(angle)
        a, b = state.position_gap, state.momentum_gap
        return state._replace(position_gap=cosine * a + sine * b, momentum_gap=cosine * b - sine * a)

    def _draw_gap(self, local: LocalHamiltonian, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        like = local.gradient
        if self._slack is None:
            return tf.zeros_like(like), tf.zeros_like(like)
        position_seed, momentum_seed = split_seed(seed)
        position_gap = self._slack * standard_normal_like(like, position_seed)
        return position_gap, self._slack * standard_normal_like(like, momentum_seed)

    def _gap_energy(self, local: LocalHamiltonian, position_gap: tf.Tensor, momentum_gap: tf.Tensor) -> tf.Tensor:
        """Minus the log density of the differences, up to a constant: `[batch...]`."""
        if self._slack is None:
            return tf.zeros_like(local.log_prob)
        squares = tf.reduce_sum(tf.square(position_gap) + tf.square(momentum_gap), axis=-1)
        return squares / (2.0 * self._slack**2)

    def _choose_copy(self, final: Extended) -> tuple[tf.Tensor, tf.Tensor]:
        if self._slack is not None:
            return final.position, final.momentum
        return final.position + 0.5 * final.position_gap, final.momentum + 0.5 * final.momentum_gap
