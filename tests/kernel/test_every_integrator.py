"""The one kernel with each integrator: what TFP asks, and what holds whichever way a trajectory is made."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm
from tests import targets
from tests.conftest import compiled_variants
from tests.integrator.registry import DEFAULTS, metric_for

METRIC = rm.DiagonalMetric(diagonal_fn=lambda q, g: 1.0 + tf.sigmoid(q))


def make(name, step_size=0.15, cls=rm.RiemannianHMC, **kwargs):
    metric = metric_for(name, METRIC, 3)
    return cls(targets.skewed, step_size, 3, metric=metric, integrator=DEFAULTS[name], **kwargs)


@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
@pytest.mark.parametrize('name', DEFAULTS)
def test_structure_dtype_and_static_shape_are_kept(name, dtype):
    kernel = make(name, tf.constant(0.1, dtype), store_parameters_in_results=True)

    @tf.function(autograph=False)
    def check(q):
        first = kernel.bootstrap_results(q)
        state, second = kernel.one_step(q, first, seed=tf.constant([1, 2]))
        assert (state.shape, state.dtype) == (q.shape, dtype)
        tf.nest.assert_same_structure(first, second)
        for a, b in zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
        return state

    assert np.all(np.isfinite(check(tf.zeros([5, 3], dtype))))


@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
@pytest.mark.parametrize('name', DEFAULTS)
def test_eager_graph_and_xla_propose_the_same(name, dtype):
    kernel = make(name, tf.constant(0.15, dtype), cls=rm.UncalibratedRiemannianHMC)

    def transition(state):
        end, results = kernel.one_step(state, kernel.bootstrap_results(state), seed=tf.constant([1, 2]))
        return end, results.log_acceptance_correction

    q = tf.constant(targets.skewed_draws(4, 3), dtype)
    results = {mode: fn(q) for mode, fn in compiled_variants(transition).items()}
    tolerance = {'rtol': 1e-6, 'atol': 1e-6} if dtype == tf.float64 else {'rtol': 2e-3, 'atol': 5e-3}
    for mode in ('graph', 'xla'):
        for got, expected in zip(results[mode], results['eager'], strict=True):
            np.testing.assert_allclose(got, expected, **tolerance)


@pytest.mark.parametrize('name', DEFAULTS)
def test_zero_step_size_moves_nothing_and_accepts_all(name):
    kernel = make(name, tf.constant(0.0, tf.float64))
    q = tf.constant(targets.skewed_draws(20, 3))
    state, results = kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))
    np.testing.assert_array_equal(state, q)
    np.testing.assert_allclose(results.log_accept_ratio, np.zeros(20), atol=1e-9)


@pytest.mark.parametrize('name', DEFAULTS)
def test_explicit_and_implicit_kernels_are_the_one_kernel(name):
    integrator = DEFAULTS[name]
    cls, argument = {True: (rm.ExplicitRiemannianHMC, 'coupling'), False: (rm.ImplicitRiemannianHMC, 'integrator')}[
        integrator.is_explicit
    ]
    kernels = [make(name), cls(targets.skewed, 0.15, 3, metric=metric_for(name, METRIC, 3), **{argument: integrator})]
    q = tf.constant(targets.skewed_draws(4, 3))
    one, other = (kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))[0] for kernel in kernels)
    np.testing.assert_array_equal(one, other)
    assert kernels[1].integrator is integrator
