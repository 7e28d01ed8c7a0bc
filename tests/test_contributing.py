"""The recipes of CONTRIBUTING, executed from outside the package, as a user would."""

import pathlib
import re

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc
from tests import targets
from tests.numeric import central_gradient, relative_error

GUIDE = (pathlib.Path(__file__).parents[1] / 'CONTRIBUTING.md').read_text()


def recipe(name):
    """The class of that name in the guide, made by its code with nothing but the public package at hand."""
    code = re.search(rf'```python\n(class {name}.*?)```', GUIDE, re.DOTALL).group(1)
    namespace = {'tfp_rmhmc': tfp_rmhmc, 'tf': tf}
    exec(code, namespace)
    return namespace[name]


def test_the_metric_against_finite_differences():
    q, p = np.array([0.5, -1.0, 0.1]), np.array([0.2, 1.0, -0.7])
    metric = recipe('RidgeMetric')(0.5)

    def local(points):
        density = tfp_rmhmc.LogDensity.at_state(targets.skewed, [tf.constant(points)])
        return tfp_rmhmc.Hamiltonian(density, metric).at(tf.constant(points))

    expected = -central_gradient(lambda x: local(x).energy(tf.constant(np.broadcast_to(p, x.shape))), q, 1e-3)
    assert relative_error(local(q[None]).force(tf.constant(p[None]))[0], expected) < 1e-8


@pytest.mark.statistical
@pytest.mark.parametrize('jit', [False, True])
def test_the_integrator_leaves_a_target_invariant_with_the_metrics_that_it_takes(jit):
    integrator = recipe('PositionVerlet')()
    start = tf.constant(targets.skewed_draws(20_000, 3))

    @tf.function(autograph=False, jit_compile=jit)
    def transition(q, seed, power):
        kernel = tfp_rmhmc.RiemannianHMC(
            lambda q: power * targets.skewed(q),
            np.float64(0.6),
            4,
            metric=tfp_rmhmc.EuclideanMetric(2.0),
            integrator=integrator,
        )
        q, results = kernel.one_step(q, kernel.bootstrap_results(q), seed=seed)
        return q, tf.reduce_mean(tf.exp(tf.minimum(results.log_accept_ratio, 0.0)))

    def p_value(power):
        q = start
        for i in range(8):
            q, acceptance = transition(q, tf.constant([1, i]), tf.constant(power, tf.float64))
        assert 0.8 < acceptance < 0.99
        shapes = np.linspace(1.5, 3.0, 3)
        return min(scipy.stats.kstest(q[:, i], scipy.stats.loggamma(shapes[i]).cdf).pvalue for i in range(3))

    assert p_value(1.0) > 1e-3
    assert p_value(1.2) < 1e-6  # the control


def test_the_integrator_refuses_other_metrics_in_one_sentence():
    with pytest.raises(TypeError, match=r'`metric` must be.*SoftAbsMetric'):
        tfp_rmhmc.RiemannianHMC(
            targets.skewed, 0.1, 3, metric=tfp_rmhmc.SoftAbsMetric(), integrator=recipe('PositionVerlet')()
        )


def test_the_integrator_in_the_explicit_kernel_and_in_sample_chain():
    kernel = tfp_rmhmc.ExplicitRiemannianHMC(
        targets.skewed, np.float64(0.3), 4, metric=tfp_rmhmc.EuclideanMetric(), coupling=recipe('PositionVerlet')()
    )
    draws = tfp.mcmc.sample_chain(5, tf.zeros([2, 3], tf.float64), kernel=kernel, trace_fn=None, seed=(1, 2))
    assert np.all(np.isfinite(draws))
    assert np.abs(draws[-1] - draws[0]).max() > 0.1
