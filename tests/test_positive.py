"""Positive variables by their logarithm."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc import positive
from tfp_rmhmc.model import PinnedModel
from tfp_rmhmc.sampling.problem import problem_of

tfd, tfb = tfp.distributions, tfp.bijectors
FLOATS = [np.float32, np.float64]


@pytest.mark.parametrize('dtype', FLOATS)
def test_softplus_of_the_coordinate_is_the_exponential(dtype):
    u = np.array([-80.0, -20.0, -15.95, -15.9, -1.0, 0.0, 3.0, 40.0], dtype)
    y = positive.to_softplus(tf.constant(u))
    assert y.dtype == dtype
    np.testing.assert_allclose(tf.math.softplus(y), np.exp(u), rtol=20 * np.finfo(dtype).eps)
    np.testing.assert_allclose(positive.to_logarithm(y), u, rtol=20 * np.finfo(dtype).eps, atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize('dtype', FLOATS)
def test_jacobian_is_the_derivative(dtype):
    u = tf.constant([-500.0, -36.1, -36.0, -15.95, -15.9, -3.0, 0.0, 2.0, 6.0], dtype)
    with tf.GradientTape() as outer:
        outer.watch(u)
        with tf.GradientTape() as tape:
            tape.watch(u)
            y = positive.to_softplus(u)
        log_slope = tf.math.log(tape.gradient(y, u))
    np.testing.assert_allclose(positive.log_jacobian(u), log_slope, rtol=1e-5, atol=20 * np.finfo(dtype).eps)
    assert np.all(np.isfinite(outer.gradient(log_slope, u)))


def test_softplus_is_told_from_other_maps():
    y = tf.constant(np.random.default_rng(0).normal(size=(4, 3)))
    assert positive.sign_of_softplus(y, tf.math.softplus(y)) == 1
    assert positive.sign_of_softplus(y, 2.0 + tf.math.softplus(y)) == 1
    assert positive.sign_of_softplus(y, 1.0 / tf.math.softplus(y)) == -1
    for other in (y, tf.exp(y), tf.sigmoid(y), 2.0 * tf.math.softplus(y), tf.zeros_like(y), y[:, :2]):
        assert positive.sign_of_softplus(y, other) == 0


@tfd.JointDistributionCoroutineAutoBatched
def model():
    scale = yield tfd.Sample(tfd.HalfNormal(np.float64(3.0)), 2, name='scale')
    variance = yield tfd.InverseGamma(np.float64(3.0), np.float64(2.0), name='variance')
    cauchy = yield tfd.HalfCauchy(np.float64(0.0), 2.0, name='cauchy')
    share = yield tfd.Beta(np.float64(2.0), 3.0, name='share')
    yield tfd.Normal(scale[0] * share, tf.sqrt(variance) + scale[1] + cauchy, name='y')


def test_density_is_that_of_logarithms():
    """Of the model at `exp(u)`, times the exponential's Jacobian; HalfCauchy is by its logarithm in TFP already."""
    pinned = PinnedModel(model, {'y': np.float64(1.5)})
    assert pinned.labels == ['log scale', 'log variance', 'log cauchy', 'share']
    rng = np.random.default_rng(1)
    scale, variance, cauchy, share = (2.0 * rng.normal(size=(5, *shape)) for shape in pinned.shapes)
    found = pinned.target_log_prob_fn(*map(tf.constant, (scale, variance, cauchy, share)))
    inverse_logit = tfb.Sigmoid().forward(share)
    expected = model.log_prob(
        np.exp(scale), np.exp(variance), np.exp(cauchy), inverse_logit, np.full(5, 1.5)
    ) + tfb.Sigmoid().forward_log_det_jacobian(share, event_ndims=0)
    np.testing.assert_allclose(found, expected + scale.sum(axis=-1) + variance + cauchy, rtol=1e-10)


def test_values_go_there_and_back():
    pinned = PinnedModel(model, {'y': np.float64(1.5)})
    parts = [tf.constant(np.random.default_rng(2).normal(size=(5, *shape))) for shape in pinned.shapes]
    values = pinned.constrain(parts)
    np.testing.assert_allclose(values.scale, np.exp(parts[0]))
    np.testing.assert_allclose(values.variance, np.exp(parts[1]))
    for part, again in zip(parts, pinned.unconstrain(values), strict=True):
        np.testing.assert_allclose(again, part, rtol=1e-8)


def test_coordinates_are_named_by_what_they_are():
    problem = problem_of(model, 2, None, tf.constant([1, 2]), {'y': np.float64(1.5)})
    assert problem.coordinate_names() == ['log scale[0]', 'log scale[1]', 'log variance', 'log cauchy', 'share']
    assert problem.names == ['scale', 'variance', 'cauchy', 'share']
