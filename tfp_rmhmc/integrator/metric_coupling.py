"""The exact explicit integrator: a base point and a companion that is turned around it, in the metric at the base."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.argument import check_positive, check_real, shown, static_real
from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian, Slope
from tfp_rmhmc.integrator.base import Integrator, Leg
from tfp_rmhmc.integrator.doubled import Doubled
from tfp_rmhmc.integrator.schedule import Schedule
from tfp_rmhmc.integrator.status import Ledger
from tfp_rmhmc.noise import split_seed

__all__ = ['MetricCoupling']


class _Phase(NamedTuple):
    """One evaluation of velocity and force f, and what it moves. Lengths are in units of the step size h.

    Attributes:
      companion: 1 where f is evaluated at the companion, 0 where at the base.
      ahead: how far from there along the slope, which turns around with each phase, as a multiple of h.
      pull: x += pull h f, by which the gap shrinks.
      center: gap += center h f.
      turns: 1 where the gap is turned, with h/2 f added before and after.
    """

    companion: float = 0.0
    ahead: float = 0.0
    pull: float = 0.0
    center: float = 0.0
    turns: float = 0.0


# The centre `-(h^2 / 4) d2x/dt2` of the gap, by a central difference over half a step along the flow on each side.
_CENTER = [_Phase(ahead=0.5, center=-0.25), _Phase(ahead=0.5, center=0.25)]
# A(h/2), then `B(h/2) C B(h/2)` and A(h) for each step, where the A's of two consecutive steps are one; the last is A(h/2).
_HALF_PULL = _Phase(companion=1.0, pull=0.5)
_SCHEDULE = Schedule(
    opening=[*_CENTER, _HALF_PULL], cycle=[_Phase(turns=1.0), _Phase(companion=1.0, pull=1.0)], closing=[_HALF_PULL]
)


class _Looking(NamedTuple):
    """A point and the slope along which the phases of the centre look: it turns around with each phase.

    A slope that stayed the same would be a constant of the loop. XLA then believes that it must know the slope's value
    before it compiles, and so the seed's: it would compile a kernel anew for each seed.
    """

    point: Doubled
    slope: Slope

    @property
    def position(self) -> tf.Tensor:
        return self.point.position


class MetricCoupling(Integrator):
    """Two copies that move each other and are turned together in the metric: exact, and no equation is solved.

    With f = (velocity, force), a step of size h from the base x = (q, p) and its companion y = x + d, with the gap
    d = (a, b), is

        A(h/2) B(h/2) C B(h/2) A(h/2),     A(h): x += h f(y),     B(h): y += h f(x),     C: d -> R d.

    A and B are the shears of the doubled phase space (the paper's eq. 8); base and companion are (q~, p) and (q, p~). The
    coupling C turns the gap by a fixed angle in the metric at the base, which it does not move:

        a_new = cos(angle) a - sin(angle) / k G(q)^-1 b,     b_new = sin(angle) k G(q) a + cos(angle) b.

    The rate k is `stiffness / h`, and at most `max_rate` if the metric follows the curvature. The target is extended by the
    gap, given the base,

        a | x ~ N(c_a, (slack h)^2 G(q)^-1),     b | x ~ N(c_b, (slack h k r)^2 G(q)),

    whose normalisers cancel, so that the marginal of the base is the target itself. Each transition draws the gap afresh.
    Every piece of a step preserves volume (C has determinant 1, since G(q) is a constant of it), and the whole is reversed
    by flipping the momenta p and b. So the Metropolis step is exact for every step size, angle, slack, stiffness, and
    centre (c_a, c_b) that is a function of the base, even and odd in p.

    Neither B nor C moves the base, so B C B has one point and one metric. The A's of consecutive steps are at one point. So
    a step costs two force evaluations, and a trajectory seven more, six of them for the centres.

    Why about the base: turning about the mean of the copies, as in `TaoBinding`, moves both of them, and a step costs three
    force evaluations and a fourth metric. It allows steps that are longer by a quarter, which does not pay for that
    (`benchmarks/README.md`).

    Why in units of the step size: in a direction of frequency w (in units of the metric), the copies stay together if both
    `h k` and `h w^2 / k` are small beside the angle. With a constant k, `h w^2` has to be small, and no useful step size
    can do that for a metric that does not follow the curvature (Euclidean, Monge). With k proportional to 1 / h it is `h w`
    that has to be small, as for the leapfrog. The same holds for the slack. With a metric that follows the curvature w is
    about 1 and k need not grow. Then the gaps of momenta, `slack h k`, vanish with the step size, and so does what they do
    to a long trajectory in many dimensions; without the bound its acceptance would not go to 1 with short steps.

    Why this way round: the target itself turns the gap, by about h a step. The coupling turns it against that.

    The centre is the gap that the splitting itself makes. From one step to the next the gap goes `d -> R (d + g) - g` with
    `g = h^2/4 d2x/dt2`, whose fixed point `-g` does not depend on the angle. Gaps drawn around zero pay for it at both
    ends of every trajectory; gaps drawn around `-g` do not.

    Second order in the step size. Composition would not make it fourth order: the angle belongs to the step, not to time.

    The ratio r, close to 1, is that of the axes of the ellipse on which the steps turn the gap of a free particle; with
    `e = h k / 2` it is `(1 + 2 e cot(angle) - e^2)^(-1/2)`. Without it every coordinate would lose a little acceptance at
    the ends of a trajectory, and a state of half a million coordinates would lose all of it.

    The defaults are from `python -m benchmarks coupling`, whose optimum is flat. Angles near pi or 0 accept nothing.

    Args:
      angle: in radians, not a multiple of pi. The copies drift apart when it is small and resonate near pi.
      slack: positive, the standard deviation of the gaps of positions, in units of the metric and the step size. A large
        one perturbs the trajectory; a small one leaves no room for what the centre does not anticipate.
      stiffness: positive, the largest value of `h k`: how much of the angle belongs to momenta.
      max_rate: positive, the largest k where the metric follows the curvature. Acceptance is highest from 1.5 to 2; from 3
        on the gaps of momenta are too large for small steps.
    """

    point_type = Doubled
    is_explicit = True
    has_auxiliary_variables = True

    def __init__(self, angle: Any = 1.4, slack: Any = 0.3, stiffness: Any = 0.45, max_rate: Any = 2.0):
        check_real('angle', angle)
        static_angle = static_real('angle', angle)
        if static_angle is not None and not abs(math.sin(static_angle)) > 1e-3:
            raise ValueError(f'`angle` must not be a multiple of pi, got {shown(angle)}.')
        check_positive('slack', slack)
        check_positive('stiffness', stiffness)
        check_real('max_rate', max_rate, above=0.0, may_be_infinite=True)
        self._angle = angle
        self._slack = slack
        self._stiffness = stiffness
        self._max_rate = max_rate
        static_stiffness = static_real('stiffness', stiffness)
        if static_angle is None or static_stiffness is None:
            return
        if not _axes(float(static_stiffness), math.tan(static_angle)) > 0.0:
            raise ValueError(f'`stiffness` must be smaller for an angle of {shown(angle)}, got {shown(stiffness)}.')

    def draw(
        self, local: LocalHamiltonian, position: tf.Tensor, step_size: tf.Tensor, ledger: Ledger, seed: tf.Tensor
    ) -> Doubled:
        """A fresh momentum, and the gap less its centre, which `travel` adds."""
        momentum_seed, gap_seed = split_seed(seed)
        point = super().draw(local, position, step_size, ledger, momentum_seed)
        position_seed, momentum_seed = split_seed(gap_seed)
        position_scale, momentum_scale = self._gap_scales(local, step_size)
        return point._replace(
            # G^-1 applied to a draw of covariance G has covariance G^-1.
            position_gap=position_scale * local.velocity(local.draw_momentum(position_seed)),
            momentum_gap=momentum_scale * local.draw_momentum(momentum_seed),
        )

    def step(self, hamiltonian: Hamiltonian, point: Doubled, step_size: tf.Tensor) -> Doubled:
        """`A(h/2) B(h/2) C B(h/2) A(h/2)`. Cost: three force evaluations."""
        return self.steps(hamiltonian, point, step_size, 1)

    def steps(self, hamiltonian: Hamiltonian, point: Doubled, step_size: tf.Tensor, num_steps: int) -> Doubled:
        """Cost: two force evaluations a step, and one more."""
        zeros = tf.zeros_like(point.position)
        still = Slope(zeros, zeros)
        perform = self._performer(hamiltonian, step_size, tf.ones([], zeros.dtype))
        return _SCHEDULE.run(perform, _Looking(point, still), tf.constant(num_steps), first=len(_CENTER)).point

    def launched(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Doubled, step_size: tf.Tensor) -> Doubled:
        """Adds the centre to the gap. Cost: two force evaluations."""
        return self._moved_center(hamiltonian, local, point, step_size, 1.0)

    def landed(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Doubled, step_size: tf.Tensor) -> Doubled:
        """Takes the centre away. Cost: two force evaluations."""
        return self._moved_center(hamiltonian, local, point, step_size, -1.0)

    def _moved_center(
        self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Doubled, step_size: tf.Tensor, sign: float
    ) -> Doubled:
        slope, one = local.slope(point.momentum), tf.ones([], point.position.dtype)
        perform = self._performer(hamiltonian, step_size, sign * one)
        return _SCHEDULE.run(perform, _Looking(point, slope), tf.constant(1), last=tf.constant(len(_CENTER))).point

    def travel(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Doubled, leg: Leg) -> Doubled:
        """From the start: adds the centre to the gap and makes the steps. At the end: takes the centre away.

        Cost: two force evaluations a step and three more, and two at the end.
        """
        one = tf.ones([], point.position.dtype)
        center_sign = tf.where(leg.is_start, one, -one)
        perform = self._performer(hamiltonian, leg.step_size, center_sign)
        looking = _Looking(point, local.slope(point.momentum))
        last = tf.where(leg.is_start, _SCHEDULE.length(leg.num_steps), len(_CENTER))
        return _SCHEDULE.run(perform, looking, leg.num_steps, last=last).point

    def _performer(self, hamiltonian: Hamiltonian, step_size: tf.Tensor, center_sign: tf.Tensor) -> Any:
        """What performs a phase; with a `center_sign` of -1 the centre is taken away."""

        def perform(phase: _Phase, looking: _Looking) -> _Looking:
            point, slope = looking
            along = phase.ahead * step_size
            local = hamiltonian.at(point.position + phase.companion * point.position_gap + along * slope.velocity)
            momentum = point.momentum + phase.companion * point.momentum_gap + along * slope.force
            velocity, force = local.slope(momentum)
            point = point._replace(ledger=point.ledger.evaluated(1))

            def turned() -> Doubled:
                d_position, d_momentum = 0.5 * step_size * velocity, 0.5 * step_size * force
                a, b = self._turn(local, point.position_gap + d_position, point.momentum_gap + d_momentum, step_size)
                return point._replace(position_gap=a + d_position, momentum_gap=b + d_momentum)

            def pulled() -> Doubled:
                pull, gain = phase.pull * step_size, (center_sign * phase.center - phase.pull) * step_size
                return point._replace(
                    position=point.position + pull * velocity,
                    momentum=point.momentum + pull * force,
                    position_gap=point.position_gap + gain * velocity,
                    momentum_gap=point.momentum_gap + gain * force,
                )

            return _Looking(tf.cond(phase.turns > 0.0, turned, pulled), Slope(-slope.velocity, -slope.force))

        return perform

    def _turn(
        self, base: LocalHamiltonian, a: tf.Tensor, b: tf.Tensor, step_size: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """C, a linear map of the gap with determinant 1. Its inverse belongs to the step of opposite sign."""
        angle, rate = tf.cast(self._angle, a.dtype), self._rate(base, step_size)
        cosine, sine = tf.cos(angle), tf.sin(angle) * _sign_of(step_size)
        return (
            cosine * a - (sine / rate) * base.factor.solve(b),
            (sine * rate) * base.factor.multiply(a) + cosine * b,
        )

    def flipped(self, point: Doubled) -> Doubled:
        return point._replace(momentum=-point.momentum, momentum_gap=-point.momentum_gap)

    def auxiliary_energies(self, local: LocalHamiltonian, point: Doubled, step_size: tf.Tensor) -> tf.Tensor:
        position_scale, momentum_scale = self._gap_scales(local, step_size)
        a, b = point.position_gap / position_scale, point.momentum_gap / momentum_scale
        return 0.5 * (a * local.factor.multiply(a) + b * local.factor.solve(b))

    def _gap_scales(self, local: LocalHamiltonian, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Standard deviations of the gaps of positions and momenta, in units of the metric."""
        rate = self._rate(local, step)
        # With the size, not the length: steps of size zero turn on a circle.
        axes = _axes(rate * _size_of(step), tf.tan(tf.cast(self._angle, step.dtype)))
        position_scale = tf.cast(self._slack, step.dtype) * _length_of(step)
        return position_scale, position_scale * rate / tf.sqrt(axes)

    def _rate(self, local: LocalHamiltonian, step: tf.Tensor) -> tf.Tensor:
        """k."""
        rate = tf.cast(self._stiffness, step.dtype) / _length_of(step)
        return tf.minimum(rate, tf.cast(self._max_rate, step.dtype)) if local.follows_curvature else rate


def _axes(stiffness: Any, tangent: Any) -> Any:
    """`1 / r^2`."""
    return 1.0 + stiffness / tangent - 0.25 * stiffness * stiffness


def _size_of(step: tf.Tensor) -> tf.Tensor:
    """One number for each chain: the size of a step, whose parts may differ between coordinates."""
    return tf.abs(step) if step.shape.rank == 0 else tf.reduce_mean(tf.abs(step), axis=-1, keepdims=True)


def _length_of(step: tf.Tensor) -> tf.Tensor:
    """The size of a step, or a tiny positive number for a step of size zero."""
    return tf.maximum(_size_of(step), tf.cast(1e-20, step.dtype))


def _sign_of(step: tf.Tensor) -> tf.Tensor:
    """1 for a step forwards and -1 for a step backwards, one number for each chain."""
    total = step if step.shape.rank == 0 else tf.reduce_sum(step, axis=-1, keepdims=True)
    return tf.where(total < 0.0, -tf.ones_like(total), tf.ones_like(total))
