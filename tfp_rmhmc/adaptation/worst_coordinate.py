"""Trajectory lengths tuned by the coordinate that mixes worst."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.adaptation.random_length import LengthKernel, step_size_of
from tfp_rmhmc.argument import check_integer, check_positive
from tfp_rmhmc.diagnostic import find_result
from tfp_rmhmc.noise import checked_seed
from tfp_rmhmc.state import is_list_like

__all__ = ['WorstCoordinateLengthAdaptation', 'WorstCoordinateResults']

# Lengths that are tried, as multiples of the present one: coarse ladders first, a fine one at last. Each gets its share of
# the adaptation. A coarse rung may be chosen three times, so that the length can change by a factor of eight before the
# fine ladder.
_COARSE, _FINE = (0.5, 1.0, 2.0), (0.5, 2.0**-0.5, 1.0, 2.0**0.5, 2.0)
_PLACES = (-2.0, -1.0, 0.0, 1.0, 2.0)  # of the fine rungs, in logarithms
_LADDERS = [(_COARSE, 0.1), (_COARSE, 0.15), (_COARSE, 0.25), (_FINE, 0.5)]
# Autocorrelations are held in this range: a negative one of a coordinate says little of its square, and no estimate of one
# close to 1 from so few draws means what it says.
_LEAST_CORRELATION, _MOST_CORRELATION = -0.2, 0.999


class _Window(NamedTuple):
    """What a ladder has seen so far. Lists have an entry for each state part, `[event...]`, or with the rungs first.

    Attributes:
      location, scale: by which a part is standardised before it is compressed.
      jumps: sums of squared jumps, `[rungs, event...]`.
      total, squares: sums of compressed values and of their squares, over all rungs.
      cost: sums of the transitions' costs, `[rungs]`.
      count: transitions, `[rungs]`.
    """

    location: list[tf.Tensor]
    scale: list[tf.Tensor]
    jumps: list[tf.Tensor]
    total: list[tf.Tensor]
    squares: list[tf.Tensor]
    cost: tf.Tensor
    count: tf.Tensor


class WorstCoordinateResults(NamedTuple):
    """What `WorstCoordinateLengthAdaptation` knows of a transition.

    Attributes:
      inner_results: of the inner kernel.
      mean_length: the mean integration time that is in use, a scalar.
      is_capped: whether the transition would have made more than `max_steps` steps.
      step: transitions so far, int32.
      efficiency: of each rung of the last ladder, `[5]`; zero where there was none.
      window: what the present ladder has seen.
    """

    inner_results: Any
    mean_length: tf.Tensor
    is_capped: tf.Tensor
    step: tf.Tensor
    efficiency: tf.Tensor
    window: _Window


class WorstCoordinateLengthAdaptation(LengthKernel):
    """Finds the trajectory length at which the coordinate that mixes worst mixes best for its price, then keeps it.

    During `num_adaptation_steps` the transitions take turns on a ladder of lengths around the present one. For each rung
    and coordinate, with z the coordinate's values on a compressed scale and their variance taken **over all rungs
    together**,

        1 - rho_i = 1/2 mean (z_after - z_before)^2 / var(z),      efficiency = min_i (1 - rho_i) / (1 + rho_i) / mean cost

    and the ladder moves to the best rung. The first ladders are coarse (half, same, double). The last is fine, and the
    length is the top of a parabola through its rungs. Afterwards the length is fixed. Every transition's own length is
    uniform between a half and one and a half of it, and the same for all chains. The frozen kernel leaves the target
    invariant.

    The variance is taken over all rungs because within the draws of a rung a slow coordinate looks well mixed. The scale is
    `asinh((x - location) / scale)`, with location and scale from the ladder before: linear in the bulk, logarithmic in the
    tails, so that heavy tails do no harm. The cost is the number of metric evaluations where the kernel counts them, else
    of steps; so solver iterations count. A rung that diverges or is rejected does not jump, and loses by itself.

    Compose it with step-size adaptation around it:

        kernel = tfp_rmhmc.RiemannianHMC(log_prob, 0.1, 1, metric=metric, store_parameters_in_results=True)
        kernel = tfp_rmhmc.WorstCoordinateLengthAdaptation(kernel, num_adaptation_steps=600)
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, num_adaptation_steps=500)

    Memory: five times the size of one state, whatever the number of chains and transitions. In the spirit of Wang, Mohamed
    and de Freitas 2013, "Adaptive Hamiltonian and Riemann manifold Monte Carlo samplers", and of tuning by expected squared
    jumps.

    Args:
      inner_kernel: a kernel with `num_leapfrog_steps` and `step_size` in its results (`store_parameters_in_results=True`):
        ours, or `tfp.mcmc.HamiltonianMonteCarlo`, also inside other wrappers.
      num_adaptation_steps: after which the length is fixed.
      initial_length: mean integration time at first, in the units of the step size.
      max_steps: the largest number of steps. Where it binds, `results.is_capped` says so.
    """

    def __init__(
        self,
        inner_kernel: tfp.mcmc.TransitionKernel,
        num_adaptation_steps: int,
        initial_length: Any = 2.0,
        max_steps: int = 400,
    ):
        check_integer('num_adaptation_steps', num_adaptation_steps, least=0)
        check_positive('initial_length', initial_length)
        super().__init__(
            {
                'inner_kernel': inner_kernel,
                'num_adaptation_steps': num_adaptation_steps,
                'initial_length': initial_length,
                'max_steps': max_steps,
            }
        )
        shares = np.cumsum([share for _, share in _LADDERS])
        self._ends = np.round(shares * num_adaptation_steps).astype(np.int32)
        self._rungs = np.array([len(ladder) for ladder, _ in _LADDERS], np.int32)
        self._multiples = np.array([[*ladder, *[1.0] * (len(_FINE) - len(ladder))] for ladder, _ in _LADDERS])

    def bootstrap_results(self, init_state: Any) -> WorstCoordinateResults:
        """Results for the start of a chain. Coordinates are first measured from where the chains start."""
        inner, dtype = self._inner_start(init_state)
        batch_rank = find_result(inner, 'target_log_prob').shape.rank
        parts = [tf.convert_to_tensor(part) for part in (init_state if is_list_like(init_state) else [init_state])]
        location = [tf.reduce_mean(part, axis=list(range(batch_rank))) for part in parts]
        return WorstCoordinateResults(
            inner_results=inner,
            mean_length=tf.cast(self._parameters['initial_length'], dtype),
            is_capped=tf.constant(False),
            step=tf.constant(0),
            efficiency=tf.zeros([len(_FINE)], dtype),
            window=_new_window(location, [tf.ones_like(x) for x in location], dtype),
        )

    def one_step(
        self, current_state: Any, previous_kernel_results: WorstCoordinateResults, seed: Any = None
    ) -> tuple[Any, WorstCoordinateResults]:
        """One inner transition on a rung of the ladder, or, after the adaptation, of the length that was found."""
        previous = previous_kernel_results
        seed = checked_seed(seed)
        ladder = tf.minimum(tf.reduce_sum(tf.cast(previous.step >= self._ends, tf.int32)), len(_LADDERS) - 1)
        rung = previous.step % tf.gather(self._rungs, ladder)
        is_adapting = previous.step < self._parameters['num_adaptation_steps']
        multiples = tf.cast(tf.gather(self._multiples, ladder), previous.mean_length.dtype)
        multiple = tf.where(is_adapting, multiples[rung], tf.ones_like(previous.mean_length))
        state, inner, is_capped = self._transition(
            current_state, previous.inner_results, multiple * previous.mean_length, seed
        )
        window = _observed(previous.window, current_state, state, inner, rung)
        is_last = is_adapting & tf.reduce_any(tf.equal(previous.step + 1, self._ends))

        def climb() -> tuple[tf.Tensor, tf.Tensor, _Window]:
            efficiency = _efficiencies(window)
            step_size = step_size_of(inner)
            best = previous.mean_length * _best_multiple(multiples, efficiency)
            bounded = tf.clip_by_value(best, step_size, step_size * self._parameters['max_steps'])
            return bounded, efficiency, _renewed(window)

        def stay() -> tuple[tf.Tensor, tf.Tensor, _Window]:
            return previous.mean_length, previous.efficiency, window

        mean_length, efficiency, window = tf.cond(is_last, climb, stay)
        return state, WorstCoordinateResults(inner, mean_length, is_capped, previous.step + 1, efficiency, window)


def _new_window(location: list[tf.Tensor], scale: list[tf.Tensor], dtype: tf.DType) -> _Window:
    rungs = len(_FINE)
    return _Window(
        location=location,
        scale=scale,
        jumps=[tf.zeros([rungs, *x.shape], x.dtype) for x in location],
        total=[tf.zeros_like(x) for x in location],
        squares=[tf.zeros_like(x) for x in location],
        cost=tf.zeros([rungs], dtype),
        count=tf.zeros([rungs], dtype),
    )


def _observed(window: _Window, before: Any, after: Any, inner_results: Any, rung: tf.Tensor) -> _Window:
    """The window after one more transition on a rung; chains are averaged over."""
    batch_rank = find_result(inner_results, 'target_log_prob').shape.rank
    axes = list(range(batch_rank))
    is_rung = tf.one_hot(rung, len(_FINE), dtype=window.count.dtype)
    jumps, total, squares = [], [], []
    parts = zip(*[x if is_list_like(x) else [x] for x in (before, after)], window.location, window.scale, strict=True)
    for i, (x_before, x_after, location, scale) in enumerate(parts):
        z_before, z_after = (tf.asinh((x - location) / scale) for x in (x_before, x_after))
        jump = tf.reduce_mean(tf.square(z_after - z_before), axis=axes)
        mask = tf.reshape(tf.cast(is_rung, jump.dtype), [-1] + [1] * jump.shape.rank)
        jumps.append(window.jumps[i] + mask * jump)
        total.append(window.total[i] + tf.reduce_mean(z_after, axis=axes))
        squares.append(window.squares[i] + tf.reduce_mean(tf.square(z_after), axis=axes))
    cost = is_rung * tf.cast(_cost_of(inner_results), is_rung.dtype)
    return window._replace(jumps=jumps, total=total, squares=squares, cost=window.cost + cost, count=window.count + is_rung)


def _cost_of(inner_results: Any) -> tf.Tensor:
    """The mean number of metric evaluations of a chain where they are counted, else the number of steps."""
    proposed = find_result(inner_results, 'proposed_results')
    evaluations = getattr(proposed, 'num_metric_evaluations', None)
    if evaluations is not None:
        return tf.reduce_mean(tf.cast(evaluations, tf.float32))
    return tf.cast(find_result(inner_results, 'num_leapfrog_steps'), tf.float32)


def _moments(window: _Window) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Mean and variance of each part's compressed values, over all rungs."""
    num = tf.maximum(tf.reduce_sum(window.count), 1.0)
    found = []
    for total, squares in zip(window.total, window.squares, strict=True):
        mean = total / tf.cast(num, total.dtype)
        found.append((mean, tf.maximum(squares / tf.cast(num, total.dtype) - tf.square(mean), 0.0)))
    return found


def _efficiencies(window: _Window) -> tf.Tensor:
    """Of each rung, `[5]`; -1 for those that were not tried."""
    count = tf.maximum(window.count, 1.0)
    worst = tf.fill(tf.shape(count), tf.cast(np.inf, count.dtype))
    for jumps, (_, variance) in zip(window.jumps, _moments(window), strict=True):
        flat = tf.reshape(jumps, [len(_FINE), -1]) / tf.cast(count, jumps.dtype)[:, tf.newaxis]
        spread = tf.reshape(variance, [1, -1])
        moved = spread > 0.0  # a coordinate that is constant says nothing
        correlation = 1.0 - 0.5 * flat / tf.where(moved, spread, tf.ones_like(spread))
        correlation = tf.where(tf.math.is_finite(correlation), correlation, tf.ones_like(correlation))
        correlation = tf.clip_by_value(correlation, _LEAST_CORRELATION, _MOST_CORRELATION)
        efficiency = (1.0 - correlation) / (1.0 + correlation)
        efficiency = tf.where(moved, efficiency, tf.cast(np.inf, efficiency.dtype))
        worst = tf.minimum(worst, tf.cast(tf.reduce_min(efficiency, axis=1), worst.dtype))
    # Where nothing has moved at all, the cheapest rung is the one to take.
    worst = tf.where(tf.math.is_finite(worst), worst, tf.ones_like(worst))
    mean_cost = tf.maximum(window.cost, 1.0) / count
    return tf.where(window.count > 0.0, worst / mean_cost, -tf.ones_like(worst))


def _best_multiple(multiples: tf.Tensor, efficiency: tf.Tensor) -> tf.Tensor:
    """The multiple of the best rung; on a fine ladder, whose rungs are equally far apart, the top of a parabola.

    One rung alone is noisy. The parabola is that of log efficiency over log length, by least squares through all five.

    Args:
      multiples: of the length, `[5]`.
      efficiency: `[5]`, -1 for rungs that were not tried.
    """
    best = tf.gather(multiples, tf.argmax(efficiency, output_type=tf.int32))
    is_fine = tf.reduce_all(efficiency > 0.0)
    height = tf.math.log(tf.where(is_fine, efficiency, tf.ones_like(efficiency)))
    place = tf.constant(_PLACES, height.dtype)  # sums of these, of their cubes, and of `place^2 - 2` vanish
    slope, curvature = tf.reduce_sum(place * height) / 10.0, tf.reduce_sum((tf.square(place) - 2.0) * height) / 14.0
    top = tf.clip_by_value(-0.5 * slope / tf.minimum(curvature, -1e-6), _PLACES[0], _PLACES[-1])
    between = tf.exp(tf.cast(top * math.log(_FINE[-1]) / _PLACES[-1], multiples.dtype))
    return tf.where(is_fine & (curvature < 0.0), between, best)


def _renewed(window: _Window) -> _Window:
    """An empty window that measures coordinates from where they were seen to be."""
    location, scale = [], []
    for old_location, old_scale, (mean, variance) in zip(window.location, window.scale, _moments(window), strict=True):
        centre = old_location + old_scale * tf.sinh(mean)
        # The width of the bulk, in the coordinate itself: the derivative of the scale at its centre, times its deviation.
        width = old_scale * tf.cosh(mean) * tf.sqrt(variance)
        is_good = tf.math.is_finite(centre) & tf.math.is_finite(width) & (width > 0.0)
        location.append(tf.where(is_good, centre, old_location))
        scale.append(tf.where(is_good, width, old_scale))
    return _new_window(location, scale, window.count.dtype)
