"""Split HMC: where its approximation comes from, that it is followed exactly, and what it refuses."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.integrator.registry import flow
from tests.integrator.test_geometry import assert_reversible

MEAN = np.array([0.5, -1.0, 2.0])
PRECISION = np.array([[2.0, 0.6, 0.1], [0.6, 1.0, -0.3], [0.1, -0.3, 4.0]])
MASS = np.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.3], [0.0, 0.3, 1.5]])


def correlated(q):
    x = q - tf.cast(MEAN, q.dtype)
    return -0.5 * tf.reduce_sum(x * tf.linalg.matvec(tf.cast(PRECISION, q.dtype), x), axis=-1)


@pytest.mark.parametrize('mass', [None, 2.0, [1.0, 2.0, 0.5], MASS, PRECISION], ids=str)
def test_the_approximation_itself_is_followed_exactly(mass, rng):
    """One long step against the matrix exponential's, by many small ones of the leapfrog."""
    split, metric = rm.GaussianSplit(MEAN, PRECISION), rm.EuclideanMetric(mass)
    z = rng.standard_normal((2, 6))
    end = flow(split, correlated, metric, 1.3, 1)(z)
    reference = flow(rm.SeparableLeapfrog(order=4), correlated, metric, 1.3 / 200, 200)(z)
    np.testing.assert_allclose(end, reference, atol=1e-7)
    assert_reversible(flow(split, targets.skewed, metric, 0.3, 5), z, 2, 1e-12)


def test_a_quarter_turn_with_the_natural_mass_forgets_the_start():
    """Every proposal is accepted, and none depends on where it came from."""
    split = rm.GaussianSplit(MEAN, covariance=np.linalg.inv(PRECISION))
    kernel = rm.RiemannianHMC(correlated, np.float64(0.5 * np.pi), 1, metric=split.metric, integrator=split)
    ends = []
    for start in (-3.0, 5.0):
        q = tf.fill([4, 3], tf.constant(start, tf.float64))
        state, results = kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))
        np.testing.assert_allclose(results.log_accept_ratio, np.zeros(4), atol=1e-9)
        ends.append(state)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-9)


def test_a_laplace_fit_and_moments():
    x, y = targets.logistic_data(200, 4)
    target = targets.logistic_regression(x, y)
    split = rm.GaussianSplit.laplace(target, np.zeros(4))
    _, gradient = tfp.math.value_and_gradient(target, tf.constant(split.mean))
    assert np.abs(gradient).max() < 1e-4
    p = 1.0 / (1.0 + np.exp(-x @ split.mean))
    np.testing.assert_allclose(split.precision, (x.T * (p * (1 - p))) @ x + np.eye(4), rtol=1e-6)
    # As state parts, and in float32.
    parted = rm.GaussianSplit.laplace(
        lambda a, b: target(tf.concat([a, b], axis=-1)), [np.zeros(1, np.float32), np.zeros(3, np.float32)]
    )
    np.testing.assert_allclose(parted.mean, split.mean, atol=1e-2)
    draws = np.random.default_rng(0).multivariate_normal(MEAN, np.linalg.inv(PRECISION), size=(5000, 4))
    moments = rm.GaussianSplit.from_draws([draws[..., :1], draws[..., 1:]])
    np.testing.assert_allclose(moments.mean, MEAN, atol=0.05)
    np.testing.assert_allclose(moments.precision, PRECISION, atol=0.12)


def test_on_state_parts_inside_tfp_s_wrappers():
    """A bijector, adaptation and no-U-turn trees; the approximation is of the unconstrained state."""
    target = lambda a, b: tf.reduce_sum(-a + tf.math.log(a), axis=-1) - 0.5 * tf.reduce_sum(tf.square(b), axis=-1)
    unconstrained = lambda a, b: target(tf.exp(a), b) + tf.reduce_sum(a, axis=-1)
    split = rm.GaussianSplit.laplace(unconstrained, [np.zeros(1), np.zeros(2)])
    inner = rm.RiemannianHMC(target, np.float64(0.5), 3, metric=split.metric, integrator=split)
    bijectors = [tfp.bijectors.Exp(), tfp.bijectors.Identity()]
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.TransformedTransitionKernel(inner.copy(store_parameters_in_results=True), bijectors), 50
    )
    start = [tf.ones([16, 1], tf.float64), tf.zeros([16, 2], tf.float64)]

    @tf.function(autograph=False)
    def run():
        return tfp.mcmc.sample_chain(250, start, kernel=kernel, num_burnin_steps=60, trace_fn=None, seed=(1, 2))

    a, b = run()
    assert abs(np.mean(a) - 2.0) < 0.15  # gamma(2)
    assert abs(np.var(b) - 1.0) < 0.15
    tree = rm.RiemannianNUTS(unconstrained, np.float64(0.4), metric=split.metric, integrator=split, max_tree_depth=4)
    state, results = tree.one_step(start, tree.bootstrap_results(start), seed=(1, 2))
    assert np.exp(results.log_accept_ratio).mean() > 0.8
    assert [part.shape for part in state] == [part.shape for part in start]


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'mean': 0.0}, '`precision` or `covariance`'),
        ({'mean': 0.0, 'precision': 1.0, 'covariance': 1.0}, '`precision` or `covariance`'),
        ({'mean': 0.0, 'precision': -1.0}, '`precision` must be positive'),
        ({'mean': 0.0, 'covariance': np.diag([1.0, -2.0])}, '`covariance` must be positive'),
        ({'mean': 0.0, 'precision': np.ones([2, 3])}, r'`precision`.*\(2, 3\)'),
        ({'mean': np.nan, 'precision': 1.0}, '`mean`.*nan'),
        ({'mean': 0.0, 'precision': 1.0, 'order': 3}, '`order`.*3'),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        rm.GaussianSplit(**arguments)


def test_what_cannot_be_split_is_refused():
    split = rm.GaussianSplit(MEAN, PRECISION)
    with pytest.raises(TypeError, match='`metric` must be an EuclideanMetric for GaussianSplit.*SoftAbsMetric'):
        rm.RiemannianHMC(targets.skewed, 0.1, 3, integrator=split)
    q = tf.constant(targets.skewed_draws(2, 3))
    uneven = rm.RiemannianHMC(targets.skewed, np.array([0.1, 0.2, 0.3]), 3, metric=split.metric, integrator=split)
    with pytest.raises(ValueError, match='`step_size` must be a scalar'):
        uneven.one_step(q, uneven.bootstrap_results(q), seed=(1, 2))
    wide = tf.zeros([2, 5], tf.float64)
    kernel = rm.RiemannianHMC(targets.skewed, np.float64(0.1), 3, metric=rm.EuclideanMetric(), integrator=split)
    with pytest.raises(ValueError, match='must fit the 5 coordinates'):
        kernel.one_step(wide, kernel.bootstrap_results(wide), seed=(1, 2))
    with pytest.raises(ValueError, match='`start` must lead to a mode'):
        rm.GaussianSplit.laplace(lambda q: tf.reduce_sum(tf.square(q), axis=-1), np.ones(2))
    with pytest.raises(ValueError, match='`draws` must be more than the 3'):
        rm.GaussianSplit.from_draws(np.zeros([1, 2, 3]))
