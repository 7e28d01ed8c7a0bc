"""Lagrangian steps: what they cost, what they refuse, and what becomes of a chain that they lose."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm
from tests import targets
from tests.conftest import compiled_variants
from tests.integrator.registry import flow, twisted
from tfp_rmhmc.linalg import solve_and_log_det
from tfp_rmhmc.metric.connection import DenseConnection
from tfp_rmhmc.metric.factor import CholeskyFactor


@pytest.mark.parametrize('metric', [rm.DiagonalMetric(), rm.EuclideanMetric(), rm.SeparableMetric(lambda x: [0.0])])
def test_other_metrics_are_refused_in_one_sentence(metric):
    with pytest.raises(TypeError, match=f'`metric` must be given by a matrix.*{type(metric).__name__}'):
        rm.RiemannianHMC(targets.skewed, 0.1, 3, metric=metric, integrator=rm.Lagrangian())


def test_steps_of_each_coordinate_are_refused_with_a_monge_metric():
    kernel = rm.RiemannianHMC(targets.skewed, [[0.1, 0.2, 0.3]], 3, metric=rm.MongeMetric(), integrator=rm.Lagrangian())
    q = tf.constant(targets.skewed_draws(2, 3), tf.float32)
    with pytest.raises(ValueError, match='`step_size` must be a scalar.*MongeMetric'):
        kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))


def test_the_closed_form_is_the_dense_one(rng):
    """A Monge metric's kick, and that of its matrix: two independent derivations of velocity and determinant."""
    q, v = tf.constant(targets.skewed_draws(3, 4)), tf.constant(rng.standard_normal((3, 4)))
    metric = rm.MongeMetric(0.7)
    density = rm.LogDensity.at_state(targets.skewed, [q])

    def parameters(q):
        log_prob, gradient, w = metric.parameters(density, q)
        return log_prob, gradient, tf.eye(4, dtype=q.dtype) + w[..., :, None] * w[..., None, :]

    h = tf.constant(0.3, tf.float64)
    closed = metric.connection(density, q).kick(v, h)
    dense = DenseConnection.of(parameters, CholeskyFactor, q).kick(v, h)
    np.testing.assert_allclose(closed.velocity, dense.velocity, rtol=1e-10)
    np.testing.assert_allclose(closed.log_determinant, dense.log_determinant, rtol=1e-9)
    assert np.abs(closed.log_determinant).min() > 1e-3


def test_fourth_order(rng):
    """The errors at the end of a trajectory fall like the fourth power of the step."""
    z = np.concatenate([targets.skewed_draws(1, 3), rng.standard_normal((1, 3))], axis=1)

    def end(count):
        return flow(rm.Lagrangian(order=4), targets.skewed, rm.MongeMetric(0.5), 1.0 / count, count)(z)

    errors = [np.linalg.norm(end(count) - end(128)) for count in (8, 16)]
    assert 3.5 < np.log2(errors[0] / errors[1]) < 4.6


def test_one_value_and_gradient_a_step_and_one_at_the_end():
    """Calls of the target in eager code, where nothing is pruned: steps, and the end; what is known is not asked for."""
    calls = []

    def counted(q):
        calls.append(1)
        return targets.skewed(q)

    kernel = rm.RiemannianHMC(counted, 0.1, 5, metric=rm.MongeMetric(0.5), integrator=rm.Lagrangian())
    q = tf.constant(targets.skewed_draws(4, 3))
    results = kernel.bootstrap_results(q)
    calls.clear()
    _, results = kernel.one_step(q, results, seed=(1, 2))
    assert len(calls) == 6
    assert np.all(results.proposed_results.num_metric_evaluations == 6)


@pytest.mark.parametrize('mode', ['eager', 'graph', 'xla'])
@pytest.mark.parametrize('metric', [rm.MongeMetric(1.5), rm.FisherMetric(twisted)], ids=['monge', 'dense'])
def test_a_determinant_that_is_not_positive_rejects_its_chain_only(metric, mode):
    """Chain 1 takes a step that is far too long. The others are as they would be without it."""
    q = targets.skewed_draws(3, 3)
    steps = np.array([[0.1], [8.0], [0.1]])

    def kick(q, v, steps):
        return metric.connection(rm.LogDensity.at_state(targets.skewed, [q]), q).kick(v, steps)

    v = tf.constant([[0.5, -0.4, 0.3], [-1.5, -2.0, -1.2], [0.1, 0.2, -0.5]], tf.float64)
    kicked = compiled_variants(kick)[mode](tf.constant(q), v, tf.constant(steps))
    np.testing.assert_array_equal(np.isfinite(kicked.log_determinant), [True, False, True])
    alone = kick(tf.constant(q[::2]), v[::2], tf.constant(steps[::2]))
    np.testing.assert_allclose(kicked.velocity.numpy()[::2], alone.velocity, rtol=1e-10)
    np.testing.assert_allclose(kicked.log_determinant.numpy()[::2], alone.log_determinant, rtol=1e-8)


def test_a_lost_chain_keeps_its_state_and_says_so():
    kernel = rm.RiemannianHMC(targets.skewed, np.float64(3.0), 1, metric=rm.MongeMetric(3.0), integrator=rm.Lagrangian())
    q = tf.constant(targets.skewed_draws(1000, 3))
    state, results = kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))
    lost = results.proposed_results.status.numpy() == rm.Status.NON_FINITE
    assert lost.sum() > 0
    np.testing.assert_array_equal(state.numpy()[lost], q.numpy()[lost])
    assert np.all(np.isfinite(state))


@pytest.mark.parametrize('mode', ['graph', 'xla'])
def test_equations_and_determinants(mode, rng):
    matrix = np.eye(5) + 0.4 * rng.standard_normal((4, 5, 5))
    matrix[1] = np.nan
    matrix[2, 0] *= -np.sign(np.linalg.det(matrix[2]))
    vector = rng.standard_normal((4, 5))
    solution, log_det = compiled_variants(solve_and_log_det)[mode](tf.constant(matrix), tf.constant(vector))
    for i, (a, b) in enumerate(zip(matrix, vector, strict=True)):
        if i != 1 and np.linalg.det(a) > 0:
            np.testing.assert_allclose(solution[i], np.linalg.solve(a, b), rtol=1e-8)
            np.testing.assert_allclose(log_det[i], np.log(np.linalg.det(a)), rtol=1e-8)
        else:
            assert np.all(np.isnan(solution[i]))
            assert np.isnan(log_det[i])


@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
def test_eager_graph_and_xla_propose_the_same_with_a_dense_metric(dtype):
    kernel = rm.UncalibratedRiemannianHMC(
        targets.skewed, tf.constant(0.2, dtype), 2, metric=rm.FisherMetric(twisted), integrator=rm.Lagrangian()
    )

    def transition(state):
        end, results = kernel.one_step(state, kernel.bootstrap_results(state), seed=tf.constant([1, 2]))
        return end, results.log_acceptance_correction

    q = tf.constant(targets.skewed_draws(4, 3), dtype)
    results = {mode: fn(q) for mode, fn in compiled_variants(transition).items()}
    tolerance = {'rtol': 1e-9, 'atol': 1e-9} if dtype == tf.float64 else {'rtol': 1e-3, 'atol': 1e-3}
    for mode in ('graph', 'xla'):
        for got, expected in zip(results[mode], results['eager'], strict=True):
            np.testing.assert_allclose(got, expected, **tolerance)
