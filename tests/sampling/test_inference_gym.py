"""Targets of TFP's inference gym, whose true means and standard deviations come with it."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm
from tests.numeric import assert_moments

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.filterwarnings(
        'ignore:R-hat', 'ignore:The energy fraction', 'ignore:.*trajectories (diverged|could not be)'
    ),
]
# Metric (None: sample_posterior's own), chains, draws, mean trajectory length, `jit_compile`. The gym's banana and funnel
# are flows, slow for each step and hardly slower for more chains; XLA cannot compile their derivatives, and to find that
# out (`sample_posterior` would) takes a third of the time.
SETTINGS = {
    'Banana': (None, 16, 100, 2.0, False),
    'NealsFunnel': (None, 16, 120, 3.0, False),
    'IllConditionedGaussian': (rm.HessianMetric(), 4, 150, 2.0, None),
    'EightSchools': (None, 8, 300, 4.0, None),
}


# One for each, for the sake of time: that both kernels are exact is shown elsewhere, from exact draws.
KERNELS = {
    'Banana': 'explicit',
    'NealsFunnel': 'implicit',
    'IllConditionedGaussian': 'explicit',
    'EightSchools': 'implicit',
}


def gym_target(name):
    with np.testing.suppress_warnings() as quiet:
        quiet.filter(Warning)
        from inference_gym.using_tensorflow import targets

        return getattr(targets, name)()


# On the banana the explicit kernel's steps are short, and 200 of them are shorter than some trajectories should be.
@pytest.mark.filterwarnings('ignore:.*of the trajectories were cut at 200 steps:UserWarning')
@pytest.mark.parametrize(('name', 'kernel'), KERNELS.items())
def test_the_gyms_true_moments(name, kernel):
    target = gym_target(name)
    metric, num_chains, num_draws, length, jit_compile = SETTINGS[name]
    rng = np.random.default_rng(0)
    start = tf.nest.map_structure(
        lambda shape, dtype: tf.constant(rng.normal(size=[num_chains, *shape]), dtype), target.event_shape, target.dtype
    )
    structure = target.dtype

    def log_prob(*parts):
        return target.unnormalized_log_prob(tf.nest.pack_sequence_as(structure, parts))

    result = rm.sample_posterior(
        num_draws,
        log_prob,
        num_chains=num_chains,
        initial_state=start,
        kernel=kernel,
        metric=metric,
        trajectory_length=length,
        num_adaptation=60,
        seed=2,
        jit_compile=jit_compile,
    )
    truth = target.sample_transformations['identity']
    truth_error = truth.ground_truth_mean_standard_error
    if truth_error is None:
        truth_error = tf.nest.map_structure(np.zeros_like, truth.ground_truth_mean)
    for draws, mean, deviation, error in zip(
        *[
            tf.nest.flatten(x)
            for x in (result.draws, truth.ground_truth_mean, truth.ground_truth_standard_deviation, truth_error)
        ],
        strict=True,
    ):
        draws = draws.numpy().astype(np.float64)
        if name == 'NealsFunnel':
            # The coordinates after the first have a kurtosis of exp(9), so no usable standard error; in units of their own
            # scale, exp(first / 2), they are standard normal.
            draws[..., 1:] *= np.exp(-0.5 * draws[..., :1])
            deviation = np.append(deviation[0], np.ones(9))
        # The gym's standard deviations come without errors; they are from the same runs as its means.
        assert_moments(draws, mean, deviation, error)
