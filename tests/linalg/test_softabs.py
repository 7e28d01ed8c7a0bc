"""SoftAbs against mpmath, everywhere it may be asked."""

import mpmath
import numpy as np
import pytest
import tensorflow as tf

from tfp_rmhmc.linalg.softabs import softabs

mpmath.mp.dps = 60
SCALED = [0.0, 1e-300, 1e-12, 1e-8, 1e-4, 0.01, 0.3, 0.4999, 0.5, 0.5001, 1.0, 3.0, 17.0, 39.9, 40.1, 300.0, 1e4, 1e8, 1e12]


def exact_f(x):
    x = mpmath.mpf(x)
    return x * mpmath.coth(x) if x else mpmath.mpf(1)


def exact_derivative(x):
    x = mpmath.mpf(x)
    if not x:
        return mpmath.mpf(0)
    if abs(x) < mpmath.mpf(10) ** -20:
        return 2 * x / 3
    return mpmath.coth(x) - x / mpmath.sinh(x) ** 2 if abs(x) < 1e6 else mpmath.sign(x)


def exact_difference(a, b):
    a, b = mpmath.mpf(a), mpmath.mpf(b)
    if a == b:
        return exact_derivative(a)
    if max(abs(a), abs(b)) < mpmath.mpf(10) ** -20:
        return (a + b) / 3
    return (exact_f(a) - exact_f(b)) / (a - b)


def divided_difference(a, b):
    """Of elementwise pairs, alpha = 1."""
    return softabs(tf.stack([a, b], axis=-1), tf.constant(1.0, a.dtype)).differences[..., 0, 1]


@pytest.mark.parametrize('alpha', [1.0, 1e6])
@pytest.mark.parametrize('sign', [1.0, -1.0])
def test_value_and_derivative(alpha, sign):
    lam = sign * np.array(SCALED) / alpha
    x = alpha * lam  # in floating point: the argument that the functions see
    f, derivative, _ = softabs(tf.constant(lam), tf.constant(alpha, tf.float64))
    np.testing.assert_allclose(f, [float(exact_f(v) / alpha) for v in x], rtol=1e-13)
    np.testing.assert_allclose(derivative, [float(exact_derivative(v)) for v in x], rtol=1e-10, atol=0)


@pytest.mark.parametrize('jit', [False, True])
def test_divided_difference_for_gaps_from_zero_to_one(jit):
    gaps = np.concatenate([[0.0], 10.0 ** np.arange(-16, 1)])
    base = np.concatenate([SCALED, -np.array(SCALED)])
    a = np.repeat(base, len(gaps))
    b = a + np.tile(gaps, len(base))
    fn = tf.function(divided_difference, jit_compile=jit)
    for left, right in [(a, b), (b, a)]:
        got = fn(tf.constant(left), tf.constant(right)).numpy()
        expected = np.array([float(exact_difference(u, v)) for u, v in zip(left, right, strict=True)])
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-14)


def test_divided_difference_of_every_pair():
    base = np.concatenate([SCALED, -np.array(SCALED)])
    a, b = np.meshgrid(base, base)
    got = divided_difference(tf.constant(a), tf.constant(b)).numpy()
    expected = np.vectorize(lambda u, v: float(exact_difference(u, v)))(a, b)
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-14)


def test_float32_is_finite_and_close():
    base = np.concatenate([SCALED, -np.array(SCALED)]).astype(np.float32)
    a, b = np.meshgrid(base, base)
    got = divided_difference(tf.constant(a), tf.constant(b)).numpy()
    expected = np.vectorize(lambda u, v: float(exact_difference(float(u), float(v))))(a, b)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_nan_stays_nan():
    nan = tf.constant([float('nan'), 1.0], tf.float64)
    f, derivative, differences = softabs(nan, tf.constant(1.0, tf.float64))
    for got in (f, derivative, differences[0], differences[:, 0]):
        assert np.isnan(got[0])
    assert np.isfinite([f[1], derivative[1], differences[1, 1]]).all()
    assert np.isnan(differences[0, 1])


def test_the_derivative_stands_on_the_diagonal_of_the_differences():
    lam = tf.constant([-3.0, -0.2, 0.0, 0.2, 0.2, 5.0], tf.float64)
    _, derivative, differences = softabs(lam, tf.constant(2.0, tf.float64))
    np.testing.assert_array_equal(np.diag(differences), derivative)
    assert differences[3, 4] == derivative[3]
