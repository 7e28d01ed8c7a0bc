"""Couplings of the doubled phase space: what ties the copies of an explicit trajectory together."""

from __future__ import annotations

import abc
import math
from typing import Any

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.base import (
    Dynamics,
    Proposal,
    Status,
    check_order,
    finish,
    substep_coefficients,
)
from tfp_rmhmc.integrator.extended import A, B, Extended, Slope, kick
from tfp_rmhmc.metric.base import check_positive
from tfp_rmhmc.noise import split_seed, standard_normal_like

__all__ = ['MetricCoupling', 'TaoBinding']


class _Coupling(Dynamics):
    """Steps `A(h/2) B(h/2) C(h) B(h/2) A(h/2)` in the doubled phase space, with C of the subclass.

    The A's of consecutive steps are at the same point and become one: three force evaluations and one C a step.
    """

    _order: int

    @abc.abstractmethod
    def draw_gap(self, local: LocalHamiltonian, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The differences `(q - q~, p - p~)` that a trajectory starts with, less their mean."""

    @abc.abstractmethod
    def gap_energy(self, local: LocalHamiltonian, position_gap: tf.Tensor, momentum_gap: tf.Tensor) -> tf.Tensor:
        """Minus the log density of the differences, less their mean, up to a constant: `[batch...]`."""

    def center(
        self, hamiltonian: Hamiltonian, local: LocalHamiltonian, position: tf.Tensor, momentum: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The mean of the differences: any function of the end point that is odd in the momentum, for the second."""
        del hamiltonian, local, momentum, step
        return tf.zeros_like(position), tf.zeros_like(position)

    @abc.abstractmethod
    def couple(self, mean: LocalHamiltonian | None, state: Extended, step: tf.Tensor) -> Extended:
        """C(step), whose inverse is C(-step). `mean` is the Hamiltonian at the mean position, if the coupling needs it."""

    # Whether C needs the metric at the mean position, and metric evaluations at the two ends of a trajectory.
    _needs_mean = False
    _evaluations_at_ends = 2

    def integrate(self, hamiltonian: Hamiltonian, state: Extended, step_size: tf.Tensor, num_steps: tf.Tensor) -> Extended:
        """`num_steps` steps. Cost: three force evaluations and one C a step (nine and three at order 4), and one more.

        A trajectory is one loop over shears: `A(1/2)`, and then for each step `B(1/2) C B(1/2) A(1)`, where the A's at the
        seams of two steps have become one, and the last is `A(1/2)`. So the target is traced and compiled once, not once
        for each shear of a step.
        """
        lengths = substep_coefficients(self._order)
        # Half of each A's neighbours: [i] closes substep i and opens the next one of the same or the following step.
        seams = [0.5 * (length + following) for length, following in zip(lengths, lengths[1:] + lengths[:1], strict=True)]
        dtype = state.position.dtype
        lengths_of, seams_of = tf.constant(lengths, dtype), tf.constant(seams, dtype)
        num_substeps = num_steps * len(lengths)
        per_substep = 4 if self._needs_mean else 3
        last = num_substeps * per_substep

        def body(i: tf.Tensor, state: Extended) -> tuple[tf.Tensor, Extended]:
            substep = ((i - 1) // per_substep) % len(lengths)
            phase = (i - 1) % per_substep  # -1 % n is n - 1: the opening shear is an A
            is_a, is_c = tf.equal(phase, per_substep - 1), tf.equal(phase, 1) & self._needs_mean
            length = tf.gather(lengths_of, substep)
            at_end = tf.equal(i, 0) | tf.equal(i, last)
            a_length = tf.where(at_end, 0.5 * lengths_of[0], tf.gather(seams_of, substep))  # palindromic: both ends alike
            side = tf.cast(tf.where(is_c, 0.0, tf.where(is_a, A, B)), dtype)
            local = hamiltonian.at(state.position + 0.5 * side * state.position_gap)

            def shear() -> Extended:
                momentum = state.momentum - 0.5 * side * state.momentum_gap
                slope = Slope(local.velocity(momentum), local.force(momentum))
                step = step_size * tf.where(is_a, a_length, 0.5 * length)
                kicked = kick(state, slope, step, side)
                if self._needs_mean:
                    return kicked
                turned = self.couple(None, kicked, step_size * length)
                return tf.nest.map_structure(lambda x, y: tf.where(tf.equal(phase, 0), x, y), turned, kicked)

            if self._needs_mean:
                state = tf.cond(is_c, lambda: self.couple(local, state, step_size * length), shear)
            else:
                state = shear()
            return i + 1, state

        return tf.while_loop(lambda i, _: i <= last, body, (tf.constant(0), state))[1]

    def propose(
        self, hamiltonian: Hamiltonian, position: tf.Tensor, step_size: tf.Tensor, num_steps: tf.Tensor, seed: tf.Tensor
    ) -> Proposal:
        momentum_seed, gap_seed = split_seed(seed)
        start = hamiltonian.at(position)
        momentum = start.draw_momentum(momentum_seed)
        gap = self.draw_gap(start, gap_seed)
        center = self.center(hamiltonian, start, position, momentum, step_size)
        initial = Extended(position, momentum, gap[0] + center[0], gap[1] + center[1])
        final = self.integrate(hamiltonian, initial, step_size, num_steps)
        proposed_position, proposed_momentum = self._choose_copy(final)
        end = hamiltonian.at(proposed_position)
        center = self.center(hamiltonian, end, proposed_position, proposed_momentum, step_size)
        final_gap = final.position_gap - center[0], final.momentum_gap - center[1]
        none = tf.zeros_like(start.log_prob, dtype=tf.int32)
        per_step = len(substep_coefficients(self._order)) * (4 if self._needs_mean else 3)
        return finish(
            start,
            end,
            position,
            proposed_position,
            momentum,
            proposed_momentum,
            auxiliary_energy_change=self.gap_energy(end, *final_gap) - self.gap_energy(start, *gap),
            status=none + int(Status.OK),
            iterations=none,
            residual=tf.zeros_like(start.log_prob),
            metric_evaluations=none + num_steps * per_step + 1 + self._evaluations_at_ends,
        )

    def _choose_copy(self, final: Extended) -> tuple[tf.Tensor, tf.Tensor]:
        return final.position, final.momentum


class MetricCoupling(_Coupling):
    """Turns the difference of the copies by a fixed angle, in the metric at their mean: exact, no fixed point.

    The target is extended by the differences `a = q - q~` and `b = p - p~`, given the mean (m, P):

        a | m, P ~ N(c_a, slack^2 G(m)^-1),     b | m, P ~ N(c_b, slack^2 G(m)),

    whose normalisers cancel, so the marginal of the mean is the target itself. Each transition draws them afresh. The
    coupling is

        a_new = cos(angle) a + sin(angle) G(m)^-1 b,     b_new = -sin(angle) G(m) a + cos(angle) b;

    the mean does not move, so G(m) is a constant of it, and the map has determinant 1. Every piece of a step preserves
    volume and the whole is reversed by flipping the momenta (P and b), so the Metropolis step is exact for every step size,
    angle, slack, and centre (c_a, c_b) that is a function of the mean, even and odd in P.

    The centre is the difference that the splitting itself makes. From one step to the next the differences go
    `d -> R (d + g) - g` with R the coupling and `g = h^2/4 (d2q/dt2, -d2p/dt2)`, whose fixed point `-g` does not depend on
    the angle. A slack around zero pays for it at both ends of every trajectory; around `-g` it does not.

    Second order in the step size. (Composition would not make it fourth: the angle belongs to the step, not to time, and a
    triple jump comes out at third.) Cost of a step: three force evaluations and one factorisation; of a trajectory: seven
    evaluations more, six of them for the centres.

    The defaults are from `benchmarks/coupling.py`, over seven cases from 2 to 100 dimensions: with angle 1.3 and slack 0.3
    each has at least 0.94 of the acceptance of its own best pair. The optimum is flat: 1.2 to 1.5 and 0.2 to 0.5. Angles
    near pi or 0 accept nothing. Centring raised the acceptance on the 11-D funnel at step size 0.14 from 0.83 to 0.85, in
    51 dimensions from 0.82 to 0.94, on a logistic regression in 25 from 0.81 to 0.96 and on a Gaussian in 100 from 0.55 to
    0.95.

    Args:
      angle: in radians, not a multiple of pi. The copies drift apart when it is small and resonate near pi.
      slack: positive, the standard deviation of the differences in units of the metric. A large one perturbs the
        trajectory; a small one leaves no room for what the centre does not anticipate.
    """

    def __init__(self, angle: Any = 1.3, slack: Any = 0.3):
        static_angle = tf.get_static_value(tf.convert_to_tensor(angle))
        if static_angle is not None and not abs(math.sin(static_angle)) > 1e-3:
            raise ValueError(f'`angle` must not be a multiple of pi, got {angle!r}.')
        check_positive('slack', slack)
        self._angle = angle
        self._slack = slack

    _order = 2

    _needs_mean = True
    _evaluations_at_ends = 6

    def draw_gap(self, local: LocalHamiltonian, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        position_seed, momentum_seed = split_seed(seed)
        # G^-1 applied to a draw of covariance G has covariance G^-1.
        slack = tf.cast(self._slack, local.gradient.dtype)
        position_gap = slack * local.velocity(local.draw_momentum(position_seed))
        return position_gap, slack * local.draw_momentum(momentum_seed)

    def gap_energy(self, local: LocalHamiltonian, position_gap: tf.Tensor, momentum_gap: tf.Tensor) -> tf.Tensor:
        weighed = position_gap * local.factor.multiply(position_gap) + momentum_gap * local.factor.solve(momentum_gap)
        squares = tf.reduce_sum(weighed, axis=-1)
        return 0.5 * squares / tf.square(tf.cast(self._slack, squares.dtype))

    def center(
        self, hamiltonian: Hamiltonian, local: LocalHamiltonian, position: tf.Tensor, momentum: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`-(h^2 / 4) (d2q/dt2, -d2p/dt2)`, by a central difference along the flow. Cost: three force evaluations."""
        half = 0.5 * step
        velocity, force = local.velocity(momentum), local.force(momentum)

        def body(sign: tf.Tensor, d_velocity: tf.Tensor, d_force: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            there = hamiltonian.at(position + sign * half * velocity)
            shifted = momentum + sign * half * force
            return sign - 2.0, d_velocity + sign * there.velocity(shifted), d_force + sign * there.force(shifted)

        one, zero = tf.ones([], position.dtype), tf.zeros_like(position)
        _, d_velocity, d_force = tf.while_loop(lambda sign, *_: sign > -2.0, body, (one, zero, zero))
        return -0.5 * half * d_velocity, 0.5 * half * d_force

    def couple(self, mean: LocalHamiltonian | None, state: Extended, step: tf.Tensor) -> Extended:
        assert mean is not None
        del step  # the angle is per step, not per unit of time
        factor = mean.factor
        angle = tf.cast(self._angle, state.position.dtype)
        cosine, sine = tf.cos(angle), tf.sin(angle)
        a, b = state.position_gap, state.momentum_gap
        return state._replace(
            position_gap=cosine * a + sine * factor.solve(b), momentum_gap=cosine * b - sine * factor.multiply(a)
        )


class TaoBinding(_Coupling):
    """The paper's binding: turns the difference of the copies by the angle `2 omega step_size`, in the identity metric.

    This is the rotation of the paper's eq. 9, all four right-hand sides taken from the old values. (Its Algorithm 2 can be
    read as overwriting them one after another, which is a contraction and not reversible.)

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

    def draw_gap(self, local: LocalHamiltonian, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        like = local.gradient
        if self._slack is None:
            return tf.zeros_like(like), tf.zeros_like(like)
        position_seed, momentum_seed = split_seed(seed)
        position_gap = self._slack * standard_normal_like(like, position_seed)
        return position_gap, self._slack * standard_normal_like(like, momentum_seed)

    def gap_energy(self, local: LocalHamiltonian, position_gap: tf.Tensor, momentum_gap: tf.Tensor) -> tf.Tensor:
        if self._slack is None:
            return tf.zeros_like(local.log_prob)
        squares = tf.reduce_sum(tf.square(position_gap) + tf.square(momentum_gap), axis=-1)
        return squares / (2.0 * self._slack**2)

    def couple(self, mean: LocalHamiltonian | None, state: Extended, step: tf.Tensor) -> Extended:
        del mean
        angle = 2.0 * self._omega * step
        cosine, sine = tf.cos(angle), tf.sin(angle)
        a, b = state.position_gap, state.momentum_gap
        return state._replace(position_gap=cosine * a + sine * b, momentum_gap=cosine * b - sine * a)

    def _choose_copy(self, final: Extended) -> tuple[tf.Tensor, tf.Tensor]:
        if self._slack is not None:
            return final.position, final.momentum
        return final.position + 0.5 * final.position_gap, final.momentum + 0.5 * final.momentum_gap
