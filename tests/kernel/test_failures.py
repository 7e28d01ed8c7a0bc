"""Chains that fail: rejected, explained, and alone."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm
from tests import targets
from tests.conftest import compiled_variants
from tests.integrator.registry import CountingMetric, separable_metric

KERNELS = {
    'metric-coupling': (rm.ExplicitRiemannianHMC, {'coupling': rm.MetricCoupling()}),
    'tao-binding': (rm.ExplicitRiemannianHMC, {'coupling': rm.TaoBinding(2.0, slack=0.2)}),
    'symmetric-projection': (rm.ExplicitRiemannianHMC, {'coupling': rm.SymmetricProjection()}),
    'generalized-leapfrog': (rm.ImplicitRiemannianHMC, {'integrator': rm.GeneralizedLeapfrog()}),
    'implicit-midpoint': (rm.ImplicitRiemannianHMC, {'integrator': rm.ImplicitMidpoint()}),
    'separable-leapfrog': (rm.RiemannianHMC, {'metric': separable_metric(3)}),
}


def transition_of(name, log_prob, step_size, num_steps=3, **kwargs):
    cls, arguments = KERNELS[name]
    kernel = cls(log_prob, step_size, num_steps, **(arguments | kwargs))

    def transition(state):
        return kernel.one_step(state, kernel.bootstrap_results(state), seed=tf.constant([1, 2]))

    return transition


@pytest.mark.parametrize('mode', ['graph', 'xla'])
@pytest.mark.parametrize('name', KERNELS)
def test_a_chain_that_cannot_start_stays_and_says_so(name, mode):
    def log_prob(q):  # chain 1 starts where the density is 0, chain 2 where it is NaN
        value = targets.skewed(q)
        value = tf.where(q[..., 0] > 50.0, tf.constant(-np.inf, q.dtype), value)
        return tf.where(q[..., 0] < -50.0, tf.constant(np.nan, q.dtype), value)

    start = targets.skewed_draws(4, 3)
    transition = compiled_variants(transition_of(name, log_prob, np.float64(0.1)))[mode]
    good, _ = transition(tf.constant(start))
    start[1, 0], start[2, 0] = 60.0, -60.0
    state, results = transition(tf.constant(start))
    status = results.proposed_results.status.numpy()
    assert list(status) == [rm.Status.OK, rm.Status.NON_FINITE, rm.Status.NON_FINITE, rm.Status.OK]
    np.testing.assert_array_equal(state.numpy()[[1, 2]], start[[1, 2]])
    assert not np.any(results.is_accepted.numpy()[[1, 2]])
    np.testing.assert_allclose(state.numpy()[[0, 3]], good.numpy()[[0, 3]], rtol=1e-9)
    assert np.all(np.isfinite(results.proposed_state))


@pytest.mark.parametrize('name', KERNELS)
def test_divergence_is_reported_and_rejected(name):
    """A constant metric and a step far beyond stability: the energy explodes, no solve fails."""
    steep = lambda q: -50.0 * tf.reduce_sum(tf.square(q), axis=-1)
    state, results = transition_of(name, steep, np.float64(0.45), 6, metric=rm.EuclideanMetric())(
        tf.ones([5, 2], tf.float64)
    )
    status = results.proposed_results.status.numpy()
    expected = {rm.Status.DIVERGED, rm.Status.NON_FINITE}
    if name in ('implicit-midpoint', 'symmetric-projection'):
        expected |= {rm.Status.NOT_CONVERGED, rm.Status.OK}  # stable at any step, where it can be solved
    else:
        assert np.all(results.proposed_results.has_divergence)
        np.testing.assert_array_equal(state, np.ones([5, 2]))
    assert set(status) <= expected


@pytest.mark.parametrize('name', ['symmetric-projection', 'generalized-leapfrog', 'implicit-midpoint'])
@pytest.mark.parametrize('mode', ['graph', 'xla'])
def test_a_solve_that_fails_is_reported_and_alone(name, mode):
    """One iteration is too few for any chain."""
    start = targets.funnel_draws(4, 5)
    transition = transition_of(name, targets.funnel, np.float64(0.1))
    _, expected_results = compiled_variants(transition)['graph'](tf.constant(start))
    assert np.all(expected_results.proposed_results.status == rm.Status.OK)
    iterations = expected_results.proposed_results.solver_iterations.numpy()
    assert np.all(iterations > 3)
    assert np.all(expected_results.proposed_results.solver_residual.numpy() <= 1e-6)
    _, arguments = KERNELS[name]
    strict = {key: type(value)(max_iterations=1, tolerance=1e-14) for key, value in arguments.items()}
    state, results = compiled_variants(transition_of(name, targets.funnel, np.float64(0.1), **strict))[mode](
        tf.constant(start)
    )
    assert np.all(results.proposed_results.status == rm.Status.NOT_CONVERGED)
    assert not np.any(results.proposed_results.has_divergence)
    assert np.all(np.isneginf(results.log_accept_ratio))
    np.testing.assert_array_equal(state, start)


@pytest.mark.parametrize('name', ['symmetric-projection', 'generalized-leapfrog', 'implicit-midpoint'])
def test_a_failing_neighbour_changes_nothing(name):
    start = targets.skewed_draws(3, 3)
    both = start.copy()
    both[1] = 9.0  # curvature exp(9): far outside, the solves there take long or fail
    transition = transition_of(name, targets.skewed, np.float64(0.3), metric=rm.EuclideanMetric())
    _, alone = transition(tf.constant(start))
    _, together = transition(tf.constant(both))
    assert together.proposed_results.status[1] != rm.Status.OK or together.proposed_results.solver_iterations[1] > 10
    np.testing.assert_allclose(together.proposed_state.numpy()[[0, 2]], alone.proposed_state.numpy()[[0, 2]], rtol=1e-12)


def test_the_reversibility_check_finds_a_loose_tolerance():
    start = tf.constant(targets.funnel_draws(100, 5))
    loose = rm.GeneralizedLeapfrog(tolerance=0.3, reversibility_tolerance=1e-4)
    run = lambda step, integrator: tf.function(
        transition_of('generalized-leapfrog', targets.funnel, np.float64(step), 5, integrator=integrator), autograph=False
    )(start)
    _, results = run(0.2, loose)
    assert np.mean(results.proposed_results.status == rm.Status.NOT_REVERSIBLE) > 0.5
    tight = rm.GeneralizedLeapfrog(tolerance=1e-9, reversibility_tolerance=1e-4)
    _, results = run(0.1, tight)
    assert np.mean(results.proposed_results.status == rm.Status.OK) > 0.95


def test_metric_evaluations_are_counted():
    metric = CountingMetric()
    kernel = rm.ExplicitRiemannianHMC(targets.funnel, np.float64(0.1), 4, metric=metric)
    q = tf.constant(targets.funnel_draws(2, 4))
    _, results = kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))
    np.testing.assert_array_equal(results.proposed_results.num_metric_evaluations, [len(metric.forces)] * 2)
    metric.forces.clear()
    kernel = rm.ImplicitRiemannianHMC(targets.funnel, np.float64(0.1), 4, metric=metric)
    _, results = kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))
    assert results.proposed_results.num_metric_evaluations.numpy().max() == len(metric.forces)
