"""Chains in compiled groups: the same trajectories as alone, wherever the kernel goes."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.hamiltonian import Hamiltonian
from tfp_rmhmc.integrator import MetricCoupling, propose
from tfp_rmhmc.kernel.groups import largest_division, propose_in_groups
from tfp_rmhmc.noise import split_seed


def test_the_largest_division():
    assert [largest_division(n, 4) for n in (1, 2, 6, 7, 8, 12)] == [1, 2, 3, 1, 4, 4]


@pytest.mark.parametrize('step', [0.2, np.linspace(0.1, 0.3, 18).reshape(6, 3)], ids=['scalar', 'by-chain'])
def test_each_group_is_proposed_for_with_its_own_seed(step):
    q = tf.constant(targets.skewed_draws(6, 3))
    hamiltonian = Hamiltonian(LogDensity.at_state(targets.skewed, [q]), rm.SoftAbsMetric())
    known = hamiltonian.evaluate(q)
    step, num_steps, seed = tf.constant(step, tf.float64), tf.constant(4), tf.constant([3, 4])
    together = tf.function(
        lambda q, seed: propose_in_groups(3, MetricCoupling(), hamiltonian, q, step, num_steps, seed, known),
        autograph=False,
    )(q, seed)
    for i in range(3):
        group_seed, seed = split_seed(seed)
        group_step = step if step.shape.rank == 0 else step[2 * i : 2 * i + 2]
        alone = propose(MetricCoupling(), hamiltonian, q[2 * i : 2 * i + 2], group_step, num_steps, group_seed)
        for batched, single in zip(tf.nest.flatten(together), tf.nest.flatten(alone), strict=True):
            np.testing.assert_allclose(batched[2 * i : 2 * i + 2], single, rtol=1e-9, atol=1e-11)


# The implicit kernel at an acceptance where solves do not fail: to reject failed ones is not exactly reversible.
@pytest.mark.parametrize(('cls', 'target'), [(rm.ExplicitRiemannianHMC, 0.8), (rm.ImplicitRiemannianHMC, 0.95)])
def test_adaptation_and_draws_in_groups(cls, target):
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        cls(targets.skewed, np.float64(0.1), 6, metric=rm.DiagonalMetric(), compiled_groups=4),
        num_adaptation_steps=100,
        target_accept_prob=np.float64(target),
        reduce_fn=tfp.math.reduce_logmeanexp,
    )
    draws, ratio = tf.function(
        lambda: tfp.mcmc.sample_chain(
            150,
            tf.constant(targets.skewed_draws(64, 2)),
            kernel=kernel,
            num_burnin_steps=100,
            trace_fn=lambda _, results: results.inner_results.log_accept_ratio,
            seed=(1, 2),
        ),
        autograph=False,
    )()
    assert abs(np.exp(np.minimum(ratio, 0.0)).mean() - target) < 0.05
    exact = targets.skewed_draws(200_000, 2, seed=5)
    ess = tfp.mcmc.effective_sample_size(draws, cross_chain_dims=1, filter_beyond_positive_pairs=True)
    error = np.std(exact, axis=0) / np.sqrt(ess)
    assert np.all(np.abs(np.mean(draws, axis=(0, 1)) - exact.mean(0)) < 4.0 * error)


def test_no_effect_eagerly_and_where_xla_compiles_the_whole():
    q = tf.constant(targets.skewed_draws(4, 3))

    def end(groups):
        kernel = rm.UncalibratedExplicitRiemannianHMC(
            targets.skewed, np.float64(0.2), 3, metric=rm.DiagonalMetric(), compiled_groups=groups
        )
        return kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))[0]

    np.testing.assert_array_equal(end(2), end(None))
    compiled = tf.function(end, autograph=False, jit_compile=True)
    np.testing.assert_array_equal(compiled(2), compiled(None))


def test_a_wrong_number_of_groups():
    with pytest.raises(ValueError, match='`compiled_groups`.*0'):
        rm.ExplicitRiemannianHMC(targets.skewed, 0.1, 3, compiled_groups=0)
