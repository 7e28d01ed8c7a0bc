"""Fixed points of a batch of contractions, each chain on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.argument import check_integer, check_positive

__all__ = ['FixedPoint', 'Map', 'Weigh', 'check_solver_arguments', 'default_tolerance', 'solve_fixed_point']

# A linear map W of residuals: their size is measured as sqrt(r' W r). With the metric, that is in standard deviations.
Weigh = Callable[[tf.Tensor], tf.Tensor]
# A map from an iterate to its image, beside the `Weigh` by which its residuals are measured.
Map = Callable[[tf.Tensor], tuple[tf.Tensor, Weigh]]


class FixedPoint(NamedTuple):
    """Where the iteration ended. `value: [batch..., n]`, the rest `[batch...]`.

    Attributes:
      value: the image of the last iterate.
      has_converged: whether its residual met the tolerance.
      residual: `sqrt(r' W r)`.
      iterations: evaluations of the map, int32.
    """

    value: tf.Tensor
    has_converged: tf.Tensor
    residual: tf.Tensor
    iterations: tf.Tensor


def default_tolerance(tolerance: float | None, dtype: tf.DType) -> float:
    """The tolerance, or what the dtype allows: 1e-6 in float64 and 1e-4 in float32, both far below sampling error."""
    return tolerance if tolerance is not None else {tf.float64: 1e-6}.get(dtype, 1e-4)


def check_solver_arguments(tolerance: float | None, max_iterations: int) -> None:
    """Raises on a tolerance or an iteration limit that no solve can meet."""
    if tolerance is not None:
        check_positive('tolerance', tolerance)
    check_integer('max_iterations', max_iterations, least=1)


def solve_fixed_point(
    fn: Map,
    guess: tf.Tensor,
    active: tf.Tensor,
    tolerance: float,
    max_iterations: int,
) -> FixedPoint:
    """Solves `x = fn(x)` by Anderson acceleration over two columns.

    With `f_k = fn(x_k) - x_k`, the next iterate is `fn(x_k) - sum_j gamma_j (fn(x_k-j+1) - fn(x_k-j))`, where gamma
    minimises `|f_k - sum_j gamma_j (f_k-j+1 - f_k-j)|` (Walker and Ni 2011). The 2 x 2 normal equations are solved in
    closed form, for each chain by itself: a linear solver would raise for the whole batch on a singular one. A chain that
    has converged, or has left the finite numbers, is frozen, so that its result does not depend on its neighbours. The loop
    ends when all chains are frozen. Do not differentiate through it.

    Args:
      fn: the map, from `[batch..., n]` to the same shape, beside the `Weigh` by which its residuals are measured.
      guess: first iterate, `[batch..., n]`.
      active: bool `[batch...]`; the others are not solved for and count no iterations.
      tolerance: for `sqrt(r' W r)`. A residual at rounding level of every coordinate counts as solved too.
      max_iterations: evaluations of `fn` at most.
    """
    rounding = 4.0 * guess.dtype.as_numpy_dtype(_EPSILON[guess.dtype])

    def iterate(state: _Iteration) -> tuple[_Iteration]:
        image, weigh = fn(state.x)
        error = image - state.x
        now = _Evaluation(image, error, weigh(error))
        change = _Evaluation(*[new - old for new, old in zip(now, state.last, strict=True)])
        gamma_1, gamma_2 = _least_squares(change, state.last_change, now.weighed, state.number)
        accelerated = image - gamma_1 * change.image - gamma_2 * state.last_change.image
        following = tf.where(tf.math.is_finite(accelerated), accelerated, image)

        residual = tf.sqrt(_dot(error, now.weighed))[..., 0]
        at_rounding = tf.reduce_all(tf.abs(error) <= rounding * tf.abs(state.x), axis=-1)
        is_solved = (residual <= tolerance) | at_rounding
        running = state.is_running
        mask = running[..., tf.newaxis]
        following_state = _Iteration(
            number=state.number + 1,
            is_running=running & ~is_solved & tf.math.is_finite(residual),
            x=tf.where(mask, following, state.x),
            value=tf.where(mask, image, state.value),
            last=now,
            last_change=change,
            residual=tf.where(running, residual, state.residual),
            is_solved=tf.where(running, is_solved, state.is_solved),
            count=state.count + tf.cast(running, tf.int32),
        )
        return (following_state,)

    nothing = _Evaluation(*[tf.zeros_like(guess)] * 3)
    start = _Iteration(
        number=tf.constant(0),
        is_running=active,
        x=guess,
        value=guess,
        last=nothing,
        last_change=nothing,
        residual=tf.zeros_like(guess[..., 0]),
        is_solved=tf.zeros_like(active),
        count=tf.zeros_like(active, dtype=tf.int32),
    )
    (end,) = tf.while_loop(
        lambda state: tf.reduce_any(state.is_running), iterate, (start,), maximum_iterations=max_iterations
    )
    return FixedPoint(end.value, end.is_solved, end.residual, end.count)


class _Evaluation(NamedTuple):
    """One evaluation of the map, or the difference of two, all `[batch..., n]`."""

    image: tf.Tensor
    error: tf.Tensor  # image - x
    weighed: tf.Tensor  # W error


class _Iteration(NamedTuple):
    """The loop's variables. Vectors are `[batch..., n]`, the rest `[batch...]`, but for `number`, a scalar."""

    number: tf.Tensor
    is_running: tf.Tensor
    x: tf.Tensor
    value: tf.Tensor
    last: _Evaluation
    last_change: _Evaluation
    residual: tf.Tensor
    is_solved: tf.Tensor
    count: tf.Tensor


_EPSILON = {tf.float32: 2.0**-23, tf.float64: 2.0**-52}


def _dot(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(a * b, axis=-1, keepdims=True)


def _least_squares(
    first: _Evaluation, second: _Evaluation, weighed_target: tf.Tensor, number: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Least squares of `target ~ gamma_1 first.error + gamma_2 second.error`, each chain alone; fewer columns at first."""
    a11, a22 = _dot(first.error, first.weighed), _dot(second.error, second.weighed)
    a12 = _dot(first.error, second.weighed)
    b1, b2 = _dot(first.error, weighed_target), _dot(second.error, weighed_target)
    determinant = a11 * a22 - tf.square(a12)
    # Nearly parallel columns carry one direction: 1e-6 bounds the loss of digits at half of float32's.
    has_two = (determinant > 1e-6 * a11 * a22) & (number >= 2)
    has_one = (a11 > 0.0) & (number >= 1)
    zero, one = tf.zeros_like(a11), tf.ones_like(a11)
    safe_determinant, safe_a11 = tf.where(has_two, determinant, one), tf.where(has_one, a11, one)
    gamma_1 = tf.where(has_two, (a22 * b1 - a12 * b2) / safe_determinant, tf.where(has_one, b1 / safe_a11, zero))
    gamma_2 = tf.where(has_two, (a11 * b2 - a12 * b1) / safe_determinant, zero)
    return gamma_1, gamma_2
