"""Positive variables by their logarithm, where TFP's default bijector is a softplus or its reciprocal.

TFP maps a real number y to most positive variables by `x = softplus(y)`, which is `exp(y)` on one side and y itself on the
other. What such a scale parameter scales goes with `exp(y)` here and with y there. With `x = exp(u)` it is log-linear in u,
which a learned separable metric can follow, and no tail in u is heavier than exponential. The functions here go from u to y
and back; composed with TFP's bijector they make `exp`.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

__all__ = ['is_exponential', 'log_jacobian', 'sign_of_softplus', 'to_logarithm', 'to_softplus']

# By how many times the rounding error of its size an image may differ from a softplus.
_TOLERANCE = 100.0


def to_softplus(u: tf.Tensor) -> tf.Tensor:
    """`y = log(exp(exp(u)) - 1)`, for which `softplus(y) = exp(u)`."""
    is_small, u_large = _split(u)
    return tf.where(is_small, u, tf.exp(u_large) + _log_of_less_than_one(u_large))


def to_logarithm(y: tf.Tensor) -> tf.Tensor:
    """`u = log(softplus(y))`, the inverse."""
    is_small, y_large = _split(y)
    return tf.where(is_small, y, tf.math.log(tf.math.softplus(y_large)))


def log_jacobian(u: tf.Tensor) -> tf.Tensor:
    """`log dy/du = u - log(1 - exp(-exp(u)))`, elementwise."""
    is_small, u_large = _split(u)
    return tf.where(is_small, tf.zeros_like(u), u_large - _log_of_less_than_one(u_large))


def sign_of_softplus(points: tf.Tensor, images: tf.Tensor) -> int:
    """1 where images are softplus of points plus a constant, -1 where they are its reciprocal, else 0.

    Both are `[n, event...]`. Only what is faster to sample hangs on the answer: each is a one-to-one map.
    """
    for sign, values in ((1, images), (-1, tf.math.reciprocal_no_nan(images))):
        if _is_shifted(values, tf.math.softplus(points)):
            return sign
    return 0


def is_exponential(points: tf.Tensor, images: tf.Tensor) -> bool:
    """Whether images are exponentials of points, plus a constant."""
    return _is_shifted(images, tf.exp(points))


def _is_shifted(values: tf.Tensor, by: tf.Tensor) -> bool:
    """Whether two tensors `[n, event...]` differ by a constant for each entry of an event."""
    if values.shape != by.shape:
        return False
    rounding = _TOLERANCE * np.finfo(values.dtype.as_numpy_dtype).eps
    return bool(np.all(np.ptp(values - by, axis=0) <= rounding * np.maximum(1.0, np.max(np.abs(values), axis=0))))


def _log_of_less_than_one(u: tf.Tensor) -> tf.Tensor:
    """`log(1 - exp(-exp(u)))`, by which a softplus and an exponential differ."""
    return tf.math.log(-tf.math.expm1(-tf.exp(u)))


def _split(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where x is so small that `softplus(x)` and `exp(x)` are equal to rounding, and x kept away from there."""
    least = tf.constant(np.log(np.finfo(x.dtype.as_numpy_dtype).eps), x.dtype)
    return x < least, tf.maximum(x, least)
