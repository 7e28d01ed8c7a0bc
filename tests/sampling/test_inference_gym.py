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
# Chains, draws, and what differs from the defaults. The gym's banana and funnel are flows, slow for each step and hardly
# slower for more chains; XLA cannot compile their higher derivatives, and to find that out (`sample_posterior` would) takes
# a third of the time. A kernel for each: that all of them are exact is shown elsewhere, from exact draws.
BY_HESSIANS = {'kernel': 'explicit', 'trajectory_length': 2.0, 'num_adaptation': 60}
SETTINGS = {
    'Banana': (16, 100, BY_HESSIANS | {'jit_compile': False}),
    'NealsFunnel': (16, 120, {'jit_compile': False}),
    'IllConditionedGaussian': (4, 150, BY_HESSIANS | {'metric': rm.HessianMetric()}),
    'EightSchools': (8, 300, {}),
}


def gym_target(name):
    with np.testing.suppress_warnings() as quiet:
        quiet.filter(Warning)
        from inference_gym.using_tensorflow import targets

        return getattr(targets, name)()


# On the banana the explicit kernel's steps are short, and 200 of them are shorter than some trajectories should be.
@pytest.mark.filterwarnings('ignore:.*of the trajectories were cut at 200 steps:UserWarning')
@pytest.mark.parametrize('name', SETTINGS)
def test_the_gyms_true_moments(name):
    target = gym_target(name)
    num_chains, num_draws, options = SETTINGS[name]
    rng = np.random.default_rng(0)
    start = tf.nest.map_structure(
        lambda shape, dtype: tf.constant(rng.normal(size=[num_chains, *shape]), dtype), target.event_shape, target.dtype
    )
    structure = target.dtype

    def log_prob(*parts):
        return target.unnormalized_log_prob(tf.nest.pack_sequence_as(structure, parts))

    result = rm.sample_posterior(num_draws, log_prob, num_chains=num_chains, initial_state=start, seed=2, **options)
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
