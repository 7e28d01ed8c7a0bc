"""`f(lam) = lam coth(alpha lam)`, its derivative and its divided differences, to rounding for every argument.

All are computed through `F(x) = x coth(x)` of `x = alpha lam`, for which `f(lam) = F(x) / alpha`, `f' = F'` and
`(f_i - f_j) / (lam_i - lam_j) = (F(x_i) - F(x_j)) / (x_i - x_j)`. `tf.where` chooses between forms of which each is fed
only arguments that it can take, so that no branch makes a NaN or an infinity.
"""

from __future__ import annotations

import tensorflow as tf

__all__ = ['softabs', 'softabs_derivative', 'softabs_divided_difference']

# F(x) = sum_n c_n x^2n, c_n = 2^2n B_2n / (2n)!; converges for |x| < pi. With |x| <= 1/2 the first omitted term is below
# 1e-15 of the first kept one.
_SERIES = [1.0 / 3, -1.0 / 45, 2.0 / 945, -1.0 / 4725, 2.0 / 93555, -1382.0 / 638512875, 4.0 / 18243225]
_SERIES += [-3617.0 / 162820783125, 87734.0 / 38979295480125]
_SERIES_LIMIT = 0.5


def softabs(lam: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """`lam coth(alpha lam)`, elementwise: `|lam|` far from zero and `1 / alpha` at zero."""
    y = tf.abs(alpha * lam)
    return _x_coth_x(y) / alpha


def softabs_derivative(lam: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """`coth(x) - x / sinh(x)^2` at `x = alpha lam`: odd, from -1 to 1."""
    x = alpha * lam
    return _divided_difference(x, x)


def softabs_divided_difference(lam_i: tf.Tensor, lam_j: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """`(f(lam_i) - f(lam_j)) / (lam_i - lam_j)`, and its limit `f'` where the two coincide."""
    return _divided_difference(alpha * lam_i, alpha * lam_j)


def _divided_difference(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`(F(a) - F(b)) / (a - b)` for `F(x) = x coth(x)`.

    Three forms: the power series where both are small; the quotient itself where the gap is of the size of the larger;
    else, for close arguments of one sign away from zero, with `d = a - b`,

        (coth a + coth b) / 2  -  (a + b) / 2 * (sinh d / d) / (sinh a sinh b),

    which has no difference of nearly equal numbers.
    """
    larger = tf.maximum(tf.abs(a), tf.abs(b))
    gap = a - b
    is_small = larger <= _SERIES_LIMIT
    is_far = tf.abs(gap) > 0.25 * larger
    one = tf.ones_like(gap)

    series = _series_difference(tf.where(is_small, a, 0.0 * one), tf.where(is_small, b, 0.0 * one))
    safe_gap = tf.where(is_far & ~is_small, gap, one)
    quotient = (_x_coth_x(tf.abs(a)) - _x_coth_x(tf.abs(b))) / safe_gap
    is_close = ~is_far & ~is_small
    close = tf.sign(a) * _close_difference(tf.where(is_close, tf.abs(a), one), tf.where(is_close, tf.abs(b), one))
    result = tf.where(is_small, series, tf.where(is_far, quotient, close))
    return tf.where(tf.math.is_nan(gap), gap, result)


def _x_coth_x(y: tf.Tensor) -> tf.Tensor:
    """`y coth(y) = y + 2y / expm1(2y)` for `y >= 0`."""
    is_zero = tf.equal(y, 0.0)
    # Beyond 40 the second term is below 1e-32: clipping keeps expm1 finite, in float32 too.
    two_y = 2.0 * tf.where(is_zero, tf.ones_like(y), tf.minimum(y, 40.0))
    return y + tf.where(is_zero, tf.ones_like(y), two_y / tf.math.expm1(two_y))


def _series_difference(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`(a + b) sum_n c_n h_(n-1)(a^2, b^2)`, h the complete homogeneous symmetric polynomials."""
    a2, b2 = a * a, b * b
    homogeneous, power = tf.ones_like(a2), tf.ones_like(b2)
    total = tf.zeros_like(a2)
    for coefficient in _SERIES:
        total += coefficient * homogeneous
        power *= b2
        homogeneous = a2 * homogeneous + power
    return (a + b) * total


def _close_difference(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The third form above for positive `a`, `b`, in decaying exponentials so that nothing overflows."""
    lower, gap = tf.minimum(a, b), tf.abs(a - b)
    decay_a, decay_b = tf.math.expm1(-2.0 * a), tf.math.expm1(-2.0 * b)  # -(1 - e^-2x)
    coth_sum = -(2.0 + decay_a) / decay_a - (2.0 + decay_b) / decay_b
    is_zero = tf.equal(gap, 0.0)
    two_gap = 2.0 * tf.where(is_zero, tf.ones_like(gap), gap)
    sinhc = tf.where(is_zero, tf.ones_like(gap), -tf.math.expm1(-two_gap) / two_gap)  # e^-d sinh(d) / d
    return 0.5 * coth_sum - 2.0 * (a + b) * tf.exp(-2.0 * lower) * sinhc / (decay_a * decay_b)
