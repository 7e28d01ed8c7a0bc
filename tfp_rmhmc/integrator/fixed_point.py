"""Fixed points of a batch of contractions, each chain on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

__all__ = ['FixedPoint', 'Weigh', 'check_solver_arguments', 'default_tolerance', 'solve_fixed_point']

# A linear map W of residuals: their size is measured as sqrt(r' W r). With the metric, that is in standard deviations.
Weigh = Callable[[tf.Tensor], tf.Tensor]


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
    if tolerance is not None and not tolerance > 0:
        raise ValueError(f'`tolerance` must be positive, got {tolerance!r}.')
    if int(max_iterations) != max_iterations or max_iterations < 1:
        raise ValueError(f'`max_iterations` must be a positive integer, got {max_iterations!r}.')


def solve_fixed_point(
    fn: Callable[[tf.Tensor], tuple[tf.Tensor, Weigh]],
    guess: tf.Tensor,
    active: tf.Tensor,
    tolerance: float,
    max_iterations: int,
) -> FixedPoint:
    """Solves `x = fn(x)` by Anderson acceleration over two columns.

    With `f_k = fn(x_k) - x_k`, the next iterate is `fn(x_k) - sum_j gamma_j (fn(x_k-j+1) - fn(x_k-j))`, where gamma
    minimises `|f_k - sum_j gamma_j (f_k-j+1 - f_k-j)|` (Walker and Ni 2011). The 2 x 2 normal equations are solved in
    closed form, for each chain by itself: a linear solver would raise for the whole batch on a singular one. A chain that
    has converged, or has left the finite numbers, is frozen, so its result does not depend on its neighbours; the loop
    ends when all are frozen. Nothing here is to be differentiated.

    Args:
      fn: the map, from `[batch..., n]` to the same shape, beside the `Weigh` by which its residuals are measured.
      guess: first iterate, `[batch..., n]`.
      active: bool `[batch...]`; the others are not solved for and count no iterations.
      tolerance: for `sqrt(r' W r)`. A residual at rounding level of every coordinate counts as solved too.
      max_iterations: evaluations of `fn` at most.
    """
    rounding = 4.0 * guess.dtype.as_numpy_dtype(_EPSILON[guess.dtype])

    def is_running(iteration: tf.Tensor, running: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return (iteration < max_iterations) & tf.reduce_any(running)

    def iterate(
        iteration: tf.Tensor,
        running: tf.Tensor,
        x: tf.Tensor,
        value: tf.Tensor,
        history: list[tf.Tensor],
        residual: tf.Tensor,
        solved: tf.Tensor,
        count: tf.Tensor,
    ) -> tuple[object, ...]:
        image, weigh = fn(x)
        error = image - x
        weighed = weigh(error)
        last_image, last_error, last_weighed, image_step, error_step, weighed_step = history
        d_image, d_error, d_weighed = image - last_image, error - last_error, weighed - last_weighed
        gamma_1, gamma_2 = _least_squares(d_error, d_weighed, error_step, weighed_step, weighed, iteration)
        accelerated = image - gamma_1 * d_image - gamma_2 * image_step
        following = tf.where(tf.math.is_finite(accelerated), accelerated, image)

        new_residual = tf.sqrt(_dot(error, weighed))[..., 0]
        at_rounding = tf.reduce_all(tf.abs(error) <= rounding * tf.abs(x), axis=-1)
        is_solved = (new_residual <= tolerance) | at_rounding
        mask = running[..., tf.newaxis]
        return (
            iteration + 1,
            running & ~is_solved & tf.math.is_finite(new_residual),
            tf.where(mask, following, x),
            tf.where(mask, image, value),
            [image, error, weighed, d_image, d_error, d_weighed],
            tf.where(running, new_residual, residual),
            tf.where(running, is_solved, solved),
            count + tf.cast(running, tf.int32),
        )

    start = (
        tf.constant(0),
        active,
        guess,
        guess,
        [tf.zeros_like(guess)] * 6,
        tf.zeros_like(guess[..., 0]),
        tf.zeros_like(active),
        tf.zeros_like(active, dtype=tf.int32),
    )
    _, _, _, value, _, residual, solved, count = tf.while_loop(
        is_running, iterate, start, maximum_iterations=max_iterations
    )
    return FixedPoint(value, solved, residual, count)


_EPSILON = {tf.float32: 2.0**-23, tf.float64: 2.0**-52}


def _dot(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(a * b, axis=-1, keepdims=True)


def _least_squares(
    column_1: tf.Tensor,
    weighed_1: tf.Tensor,
    column_2: tf.Tensor,
    weighed_2: tf.Tensor,
    weighed_target: tf.Tensor,
    iteration: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Least squares of `target ~ gamma_1 column_1 + gamma_2 column_2`, each chain alone; fewer columns in the beginning."""
    a11, a12, a22 = _dot(column_1, weighed_1), _dot(column_1, weighed_2), _dot(column_2, weighed_2)
    b1, b2 = _dot(column_1, weighed_target), _dot(column_2, weighed_target)
    determinant = a11 * a22 - tf.square(a12)
    # Nearly parallel columns carry one direction: 1e-6 bounds the loss of digits at half of float32's.
    has_two = (determinant > 1e-6 * a11 * a22) & (iteration >= 2)
    has_one = (a11 > 0.0) & (iteration >= 1)
    zero, one = tf.zeros_like(a11), tf.ones_like(a11)
    safe_determinant, safe_a11 = tf.where(has_two, determinant, one), tf.where(has_one, a11, one)
    gamma_1 = tf.where(has_two, (a22 * b1 - a12 * b2) / safe_determinant, tf.where(has_one, b1 / safe_a11, zero))
    gamma_2 = tf.where(has_two, (a11 * b2 - a12 * b1) / safe_determinant, zero)
    return gamma_1, gamma_2
