"""`sample_posterior` with nothing but a model and a number of draws, where the answer is known."""

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.numeric import assert_moments

tfd = tfp.distributions
pytestmark = [
    pytest.mark.statistical,
    # ArviZ's figures come from its own code; what it warns of is not ours.
    pytest.mark.filterwarnings('ignore::FutureWarning', 'ignore:The energy fraction', 'ignore:.*trajectories diverged'),
]
SIGMA = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


def eight_schools(dtype=np.float32):
    """Centred; mu ~ N(0, 10), log tau ~ N(5, 1)."""
    return tfd.JointDistributionNamed(
        {
            'mu': tfd.Normal(dtype(0.0), dtype(10.0)),
            'log_tau': tfd.Normal(dtype(5.0), dtype(1.0)),
            'theta': lambda mu, log_tau: tfd.Sample(tfd.Normal(mu, tf.exp(log_tau)), 8),
            'y': lambda theta: tfd.Independent(tfd.Normal(theta, SIGMA.astype(dtype)), 1),
        }
    )


def eight_schools_moments():
    """Mean and standard deviation by quadrature over log tau: given it, everything is Gaussian."""
    log_tau = np.linspace(-10.0, 12.0, 4001)[:, None]
    variance = np.exp(2.0 * log_tau) + SIGMA**2  # of y given mu
    mu_precision = np.sum(1.0 / variance, axis=1) + 1.0 / 100.0
    mu_mean = np.sum(EFFECTS / variance, axis=1) / mu_precision
    log_weight = (
        -0.5 * (log_tau[:, 0] - 5.0) ** 2
        - 0.5 * np.sum(np.log(variance) + EFFECTS**2 / variance, axis=1)
        + 0.5 * mu_precision * mu_mean**2
        - 0.5 * np.log(mu_precision)
    )
    weight = np.exp(log_weight - scipy.special.logsumexp(log_weight))
    shrink = SIGMA**2 / variance  # theta = shrink mu + (1 - shrink) y + noise
    theta_mean = shrink * mu_mean[:, None] + (1.0 - shrink) * EFFECTS
    theta_variance = shrink**2 / mu_precision[:, None] + np.exp(2.0 * log_tau) * shrink

    def moments(mean, variance):
        average = weight @ mean
        return average, np.sqrt(weight @ (variance + mean**2) - average**2)

    return {
        'mu': moments(mu_mean, 1.0 / mu_precision),
        'log_tau': moments(log_tau[:, 0], np.zeros(len(log_tau))),
        'theta': moments(theta_mean, theta_variance),
    }


def assert_mixed(result):
    assert max(np.max(value) for value in result.r_hat().values()) < 1.01


def report(name, result):
    total = result.seconds['total']
    print(f'\n{name}: {total:.0f} s, acceptance {result.trace["acceptance_rate"].mean():.2f}')


def test_eight_schools_centred():
    result = rm.sample_posterior(1200, eight_schools(), y=EFFECTS.astype(np.float32), seed=1)
    report('eight schools', result)
    for name, (mean, deviation) in eight_schools_moments().items():
        assert_moments(result.variables()[name], mean, deviation)
    assert_mixed(result)


def test_the_funnel():
    start = np.random.default_rng(0).normal(size=(4, 11))
    result = rm.sample_posterior(1200, targets.funnel, initial_state=start, seed=1)
    report('funnel', result)
    v, x = result.draws[..., 0].numpy(), result.draws[..., 1:].numpy()
    assert_moments(v, 0.0, 3.0)
    # x itself has a kurtosis of exp(9) and no usable standard error; in units of its scale it is standard normal.
    assert_moments(x * np.exp(0.5 * v)[..., None], np.zeros(10), np.ones(10))
    assert_mixed(result)


def test_a_gaussian():
    scale = np.geomspace(0.01, 100.0, 5)
    target = lambda q: -0.5 * tf.reduce_sum(tf.square(q / tf.constant(scale)), axis=-1)
    result = rm.sample_posterior(1000, target, initial_state=np.ones((4, 5)), seed=1)
    report('Gaussian', result)
    assert_moments(result.draws.numpy(), np.zeros(5), scale)
    assert_mixed(result)


def test_a_logistic_regression():
    x, y = targets.logistic_data(200, 5)
    target = targets.logistic_regression(x, y)
    result = rm.sample_posterior(1000, target, initial_state=np.zeros((4, 5)), seed=1)
    report('logistic regression', result)
    # The reference: importance sampling from a wide Gaussian around the mode.
    draws = np.reshape(result.draws, [-1, 5])
    rng = np.random.default_rng(0)
    center, root = draws.mean(0), 1.3 * np.linalg.cholesky(np.cov(draws.T))
    noise = rng.standard_normal((400_000, 5))
    proposals = center + noise @ root.T
    # In pieces: TensorFlow keeps the memory of its largest tensors.
    log_prob = np.concatenate([target(tf.constant(piece)) for piece in np.split(proposals, 40)])
    log_weight = log_prob + 0.5 * np.sum(noise**2, axis=1)
    weight = np.exp(log_weight - scipy.special.logsumexp(log_weight))
    mean = weight @ proposals
    assert_moments(result.draws.numpy(), mean, np.sqrt(weight @ (proposals - mean) ** 2))
    assert_mixed(result)
