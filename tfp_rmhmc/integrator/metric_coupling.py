"""The exact explicit integrator: a base point and a companion that is turned around it, in the metric at the base."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian, PhasePoint
from tfp_rmhmc.integrator.base import Dynamics, Proposal, Status, finish
from tfp_rmhmc.integrator.extended import Slope
from tfp_rmhmc.metric.base import check_positive
from tfp_rmhmc.noise import split_seed

__all__ = ['MetricCoupling', 'Pair']

# The largest k where frequencies are about 1: from 1.5 to 2 acceptance is highest, from 3 on the differences of momenta are
# too large for small steps (`benchmarks/README.md`).
_MAX_NATURAL_ASPECT = 2.0


class Pair(NamedTuple):
    """Two points of phase space, all `[batch..., D]`.

    Attributes:
      position, momentum: the base x = (q, p), which carries the target.
      position_gap, momentum_gap: the companion less the base, d = (a, b).
    """

    position: tf.Tensor
    momentum: tf.Tensor
    position_gap: tf.Tensor
    momentum_gap: tf.Tensor


class _End(NamedTuple):
    """An end of a trajectory, and what the differences there add to its energy, `[batch..., D]`."""

    point: PhasePoint
    slack_energies: tf.Tensor

    @classmethod
    def like(cls, position: tf.Tensor) -> _End:
        """Zeros, for before an end was visited."""
        vector, scalar = tf.zeros_like(position), tf.zeros_like(position[..., 0])
        return cls(PhasePoint(vector, vector, vector, scalar, vector, scalar), vector)


class MetricCoupling(Dynamics):
    """Two copies that move each other and are turned together in the metric: exact, and no equation is solved.

    With f = (velocity, force), a step of size h from the base x = (q, p) and its companion y = x + d, d = (a, b), is

        A(h/2) B(h/2) C B(h/2) A(h/2),     A(h): x += h f(y),     B(h): y += h f(x),     C: d -> R d.

    A and B are the shears of the doubled phase space (the paper's eq. 8), base and companion being (q~, p) and (q, p~).
    The coupling C turns the difference by a fixed angle in the metric at the base, which it does not move; k is
    `stiffness / h`, and at most 2 if the metric follows the curvature:

        a_new = cos(angle) a - sin(angle) / k G(q)^-1 b,     b_new = sin(angle) k G(q) a + cos(angle) b.

    The target is extended by the differences, given the base,

        a | x ~ N(c_a, (slack h)^2 G(q)^-1),     b | x ~ N(c_b, (slack h k r)^2 G(q)),

    whose normalisers cancel, so the marginal of the base is the target itself. Each transition draws them afresh. Every
    piece of a step preserves volume (C has determinant 1, since G(q) is a constant of it) and the whole is reversed by
    flipping the momenta p and b, so the Metropolis step is exact for every step size, angle, slack, stiffness, and centre
    (c_a, c_b) that is a function of the base, even and odd in p.

    Neither B nor C moves the base: B C B has one point and one metric. And the A's of consecutive steps are at one point.
    So a step costs two force evaluations, and a trajectory seven more, six of them for the centres.

    Why about the base: turning about the mean of the copies, as in `TaoBinding`, moves both of them, and a step costs three
    force evaluations and a fourth metric. It allows steps that are longer by a quarter, which does not pay for that
    (`benchmarks/README.md`).

    Why in units of the step size: copies in a direction of frequency w (in units of the metric) stay together if both
    `h k` and `h w^2 / k` are small beside the angle. With a constant k that asks for `h w^2` to be small, which a metric
    that does not follow the curvature (Euclidean, Monge) cannot give at any useful step; with k proportional to 1 / h it
    asks for `h w` to be small, as the leapfrog does. For slacks the same. With a metric that follows the curvature w is
    about 1 and k need not grow: differences of momenta, `slack h k`, then vanish with the step size, and with them what
    they do to a long trajectory in many dimensions, whose acceptance would otherwise not go to 1 with short steps.

    Why this way round: the target itself turns differences, by about h a step. The coupling turns them against that.

    The centre is the difference that the splitting itself makes. From one step to the next the differences go
    `d -> R (d + g) - g` with `g = h^2/4 d2x/dt2`, whose fixed point `-g` does not depend on the angle. A slack around zero
    pays for it at both ends of every trajectory; around `-g` it does not.

    Second order in the step size. (Composition would not make it fourth: the angle belongs to the step, not to time.)

    The ratio r, close to 1, is that of the axes of the ellipse on which the steps turn the differences of a free particle;
    with `e = h k / 2` it is `(1 + 2 e cot(angle) - e^2)^(-1/2)`. Without it each coordinate would lose a little at
    the ends of a trajectory, and half a million of them everything.

    The defaults are from `python -m benchmarks coupling`, whose optimum is flat. Angles near pi or 0 accept nothing.

    Args:
      angle: in radians, not a multiple of pi. The copies drift apart when it is small and resonate near pi.
      slack: positive, the standard deviation of the differences of positions, in units of the metric and the step size. A
        large one perturbs the trajectory; a small one leaves no room for what the centre does not anticipate.
      stiffness: positive, how much of the angle belongs to momenta: the frequency, times the step size, at which the
        coupling turns differences as the target itself would. The largest value of `h k`.
    """

    def __init__(self, angle: Any = 1.4, slack: Any = 0.3, stiffness: Any = 0.45):
        static_angle = tf.get_static_value(tf.convert_to_tensor(angle))
        if static_angle is not None and not abs(math.sin(static_angle)) > 1e-3:
            raise ValueError(f'`angle` must not be a multiple of pi, got {angle!r}.')
        check_positive('slack', slack)
        check_positive('stiffness', stiffness)
        self._angle = angle
        self._slack = slack
        self._stiffness = stiffness
        static_stiffness = tf.get_static_value(tf.convert_to_tensor(stiffness))
        is_known = static_angle is not None and static_stiffness is not None
        if is_known and not _axes(float(static_stiffness), math.tan(static_angle)) > 0.0:
            raise ValueError(f'`stiffness` must be smaller for an angle of {angle!r}, got {stiffness!r}.')

    def propose(
        self, hamiltonian: Hamiltonian, position: tf.Tensor, step_size: tf.Tensor, num_steps: tf.Tensor, seed: tf.Tensor
    ) -> Proposal:
        """Both ends of the trajectory are visits of one loop, so that the target is traced and compiled once for both."""
        momentum_seed, gap_seed = split_seed(seed)
        scales = self._slack_scales(hamiltonian, step_size)
        last = 2 * num_steps

        def visit(i: tf.Tensor, pair: Pair, start: _End, end: _End) -> tuple[tf.Tensor, Pair, _End, _End]:
            """The first visit draws and goes on to the trajectory's end, the second is there."""
            del start
            is_start = tf.equal(i, 0)
            local = hamiltonian.at(pair.position)

            def begin() -> Pair:
                return Pair(pair.position, local.draw_momentum(momentum_seed), *_draw_slack(local, scales, gap_seed))

            pair = tf.cond(is_start, begin, lambda: pair)
            point = PhasePoint.of(local, pair.position, pair.momentum)
            # The centre is added to the differences before the trajectory, and taken from them after it.
            moved = self._evolve(
                hamiltonian,
                pair,
                step_size,
                num_steps,
                first=-2,
                last=tf.where(is_start, last, -1),
                slope=Slope(point.velocity, local.force(pair.momentum)),
                center_sign=tf.where(is_start, tf.ones([], position.dtype), -tf.ones([], position.dtype)),
            )
            with_slack = tf.nest.map_structure(lambda x, y: tf.where(is_start, x, y), pair, moved)
            return i + 1, moved, end, _End(point, _slack_energies(local, scales, with_slack))

        none = tf.zeros_like(position[..., 0], dtype=tf.int32)
        first = (tf.constant(0), Pair(*[position] * 4), _End.like(position), _End.like(position))
        _, _, start, end = tf.while_loop(lambda i, *_: i < 2, visit, first)
        return finish(
            start.point,
            end.point,
            # Subtracted before the sum, as in `kinetic_energy_change`.
            auxiliary_energy_change=tf.reduce_sum(end.slack_energies - start.slack_energies, axis=-1),
            status=none + int(Status.OK),
            iterations=none,
            residual=tf.zeros_like(start.point.log_prob),
            metric_evaluations=none + 2 * num_steps + 7,
        )

    def integrate(self, hamiltonian: Hamiltonian, pair: Pair, step_size: tf.Tensor, num_steps: tf.Tensor) -> Pair:
        """`num_steps` steps. Cost: two force evaluations a step, and one more."""
        zero = tf.zeros_like(pair.position)
        last = 2 * num_steps
        return self._evolve(hamiltonian, pair, step_size, num_steps, 0, last, Slope(zero, zero), tf.ones([], zero.dtype))

    def _evolve(
        self,
        hamiltonian: Hamiltonian,
        pair: Pair,
        step_size: tf.Tensor,
        num_steps: tf.Tensor,
        first: int,
        last: tf.Tensor,
        slope: Slope,
        center_sign: tf.Tensor,
    ) -> Pair:
        """The evaluations `first` to `last` of a centre and a trajectory, as one loop.

        Evaluations -2 and -1 add the centre to the differences: `-(h^2 / 4) d2x/dt2`, by a central difference of half a
        step along the flow. 0 is `A(h/2)`, and then there are for each step `B(h/2) C B(h/2)` and `A(h)`, where the A's at
        the seams of two steps have become one; the last, `2 num_steps`, is `A(h/2)`.

        Args:
          slope: at the base, for the centre.
          center_sign: -1 takes the centre away.
        """
        dtype = pair.position.dtype
        aspect = self._aspect(hamiltonian, step_size)

        def body(i: tf.Tensor, pair: Pair) -> tuple[tf.Tensor, Pair]:
            is_center, is_at_base = i < 0, tf.equal(i % 2, 1)
            sign = tf.where(is_at_base, -tf.ones([], dtype), tf.ones([], dtype))  # of the central difference

            def aside() -> tuple[tf.Tensor, tf.Tensor]:
                along = 0.5 * sign * step_size
                return pair.position + along * slope.velocity, pair.momentum + along * slope.force

            def base_or_companion() -> tuple[tf.Tensor, tf.Tensor]:
                share = tf.cast(~is_at_base, dtype)
                return pair.position + share * pair.position_gap, pair.momentum + share * pair.momentum_gap

            position, momentum = tf.cond(is_center, aside, base_or_companion)
            local = hamiltonian.at(position)
            velocity, force = local.velocity(momentum), local.force(momentum)

            def add_to_center() -> Pair:
                weight = -0.25 * center_sign * sign * step_size
                return pair._replace(
                    position_gap=pair.position_gap + weight * velocity, momentum_gap=pair.momentum_gap + weight * force
                )

            def move_base() -> Pair:
                is_end = tf.equal(i, 0) | tf.equal(i, 2 * num_steps)
                step = step_size * tf.where(is_end, tf.constant(0.5, dtype), tf.constant(1.0, dtype))
                return Pair(
                    pair.position + step * velocity,
                    pair.momentum + step * force,
                    pair.position_gap - step * velocity,
                    pair.momentum_gap - step * force,
                )

            def move_companion() -> Pair:
                d_position, d_momentum = 0.5 * step_size * velocity, 0.5 * step_size * force
                a, b = self._turn(local, pair.position_gap + d_position, pair.momentum_gap + d_momentum, aspect)
                return pair._replace(position_gap=a + d_position, momentum_gap=b + d_momentum)

            def follow_trajectory() -> Pair:
                return tf.cond(is_at_base, move_companion, move_base)

            return i + 1, tf.cond(is_center, add_to_center, follow_trajectory)

        return tf.while_loop(lambda i, _: i <= last, body, (tf.constant(first), pair))[1]

    def _turn(self, base: LocalHamiltonian, a: tf.Tensor, b: tf.Tensor, aspect: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """C, a linear map of the difference with determinant 1."""
        angle = tf.cast(self._angle, a.dtype)
        cosine, sine = tf.cos(angle), tf.sin(angle)
        return (
            cosine * a - (sine / aspect) * base.factor.solve(b),
            (sine * aspect) * base.factor.multiply(a) + cosine * b,
        )

    def _slack_scales(self, hamiltonian: Hamiltonian, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Standard deviations of the differences of positions and momenta, in units of the metric."""
        aspect = self._aspect(hamiltonian, step)
        # With the size, not the length: steps of size zero turn on a circle.
        axes = _axes(aspect * _size_of(step), tf.tan(tf.cast(self._angle, step.dtype)))
        a_scale = tf.cast(self._slack, step.dtype) * _length_of(step)
        return a_scale, a_scale * aspect / tf.sqrt(axes)

    def _aspect(self, hamiltonian: Hamiltonian, step: tf.Tensor) -> tf.Tensor:
        """k."""
        aspect = tf.cast(self._stiffness, step.dtype) / _length_of(step)
        return tf.minimum(aspect, tf.cast(_MAX_NATURAL_ASPECT, step.dtype)) if hamiltonian.has_natural_units else aspect


def _draw_slack(
    local: LocalHamiltonian, scales: tuple[tf.Tensor, tf.Tensor], seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The differences that a trajectory starts with, less their centre."""
    position_seed, momentum_seed = split_seed(seed)
    # G^-1 applied to a draw of covariance G has covariance G^-1.
    return scales[0] * local.velocity(local.draw_momentum(position_seed)), scales[1] * local.draw_momentum(momentum_seed)


def _slack_energies(local: LocalHamiltonian, scales: tuple[tf.Tensor, tf.Tensor], pair: Pair) -> tf.Tensor:
    """Terms that add up to minus the log density of the slack in `pair`, up to a constant: `[batch..., D]`."""
    a, b = pair.position_gap / scales[0], pair.momentum_gap / scales[1]
    return 0.5 * (a * local.factor.multiply(a) + b * local.factor.solve(b))


def _axes(stiffness: Any, tangent: Any) -> Any:
    """`1 / r^2`."""
    return 1.0 + stiffness / tangent - 0.25 * stiffness * stiffness


def _size_of(step: tf.Tensor) -> tf.Tensor:
    """One number for each chain: the size of a step, whose parts may differ between coordinates."""
    return tf.abs(step) if step.shape.rank == 0 else tf.reduce_mean(tf.abs(step), axis=-1, keepdims=True)


def _length_of(step: tf.Tensor) -> tf.Tensor:
    """The size of a step, or a tiny positive number for a step of size zero."""
    return tf.maximum(_size_of(step), tf.cast(1e-20, step.dtype))
