"""From a model to draws: the draws, the result's reports, bad input, and runs that are killed."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets

tfd = tfp.distributions
# Short runs are told that they are short.
pytestmark = pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction', 'ignore:.*of the trajectories')
QUICK = {'num_burnin': 40, 'num_adaptation': 60, 'progress': False, 'jit_compile': False}


def gamma_model():
    """rate ~ Gamma(2, 1), ten counts ~ Poisson(rate): the posterior is Gamma(2 + sum, 11)."""
    return tfd.JointDistributionNamed(
        {
            'rate': tfd.Gamma(np.float64(2.0), np.float64(1.0)),
            'counts': lambda rate: tfd.Sample(tfd.Poisson(rate), 10),
        }
    )


COUNTS = np.array([3, 1, 4, 1, 5, 2, 6, 5, 3, 5], np.float64)


@pytest.mark.statistical
@pytest.mark.parametrize('kernel', ['explicit', 'implicit', 'hmc', 'nuts'])
def test_a_constrained_model_in_its_own_space(kernel):
    result = rm.sample_posterior(150, gamma_model(), num_chains=8, kernel=kernel, seed=3, counts=COUNTS, **QUICK)
    rate = result.draws['rate'].numpy()
    shape, rate_parameter = 2.0 + COUNTS.sum(), 11.0
    assert rate.shape == (150, 8)
    assert np.all(rate > 0)
    ess = np.sum(tfp.mcmc.effective_sample_size(rate, filter_beyond_positive_pairs=True))
    assert abs(rate.mean() - shape / rate_parameter) < 4.5 * np.sqrt(shape) / rate_parameter / np.sqrt(ess)
    assert abs(rate.std() / (np.sqrt(shape) / rate_parameter) - 1.0) < 4.5 / np.sqrt(2.0 * ess)
    assert result.names == ['rate']
    assert result.trace['acceptance_rate'].shape == (150, 8)
    assert len(result.warmup['step_size']) == 60
    assert np.ptp(result.trace['step_size']) == 0.0
    assert 0.55 < result.trace['acceptance_rate'].mean() <= 1.0


def test_a_log_density_with_a_start_and_reports():
    start = {'a': targets.skewed_draws(4, 2), 'b': targets.skewed_draws(4, 3, seed=1)}
    log_prob = lambda a, b: targets.skewed(a) + targets.skewed(b)
    result = rm.sample_posterior(60, log_prob, initial_state=start, seed=1, **QUICK)
    assert result.draws['a'].shape == (60, 4, 2)
    np.testing.assert_allclose(
        log_prob(result.draws['a'], result.draws['b']) - result.trace['lp'],
        np.full((60, 4), (log_prob(result.draws['a'], result.draws['b']) - result.trace['lp'])[0, 0]),
        atol=1e-8,
    )
    data = result.to_arviz()
    assert data.posterior['b'].shape == (4, 60, 3)
    assert {'diverging', 'acceptance_rate', 'energy', 'step_size'} <= set(data.sample_stats)
    summary = result.summary()
    assert {'r_hat', 'ess_bulk', 'ess_tail', 'mcse_mean'} <= set(summary.columns)
    assert len(summary) == 5


def test_problems_are_said_in_plain_words():
    result = rm.PosteriorDraws(
        draws=tf.constant(np.arange(4.0) + 0.01 * np.random.default_rng(0).standard_normal((50, 4))),
        trace={
            'lp': np.zeros((50, 4)),
            'diverging': np.ones((50, 4), bool),
            'status': np.full((50, 4), int(rm.Status.NOT_CONVERGED)),
            'energy': np.cumsum(0.1 * np.random.default_rng(1).standard_normal((50, 4)), axis=0),
        },
        warmup={},
        names=['x'],
        seconds={},
    )
    problems = result.problems()
    assert [
        key for key in ('R-hat of `x`', 'diverged', 'could not be solved', 'E-BFMI') if not any(key in p for p in problems)
    ] == []


BAD = [
    ({'num_draws': 0}, ValueError, '`num_draws`.*0'),
    ({'num_draws': 1.5}, ValueError, '`num_draws`.*1.5'),
    ({'num_chains': 0}, ValueError, '`num_chains`.*0'),
    ({'kernel': 'gibbs'}, ValueError, '`kernel`.*gibbs'),
    ({'kernel': 'nuts', 'metric': rm.SoftAbsMetric()}, ValueError, '`metric`.*nuts'),
    ({'cuonts': COUNTS}, ValueError, '`cuonts` is not a variable.*counts'),
    ({'rate': 1.0}, ValueError, 'All variables.*pinned'),
    ({'initial_state': {'rate': np.full(4, -1.0)}}, ValueError, '`initial_state`.*support'),
    ({'initial_state': {'rate': np.ones(3)}}, ValueError, '`initial_state` must have 4 chains'),
]


@pytest.mark.parametrize(('change', 'error', 'message'), BAD)
def test_bad_input_to_a_model_is_one_sentence(change, error, message):
    arguments = {'num_draws': 5, 'model': gamma_model(), 'counts': COUNTS, **QUICK} | change
    with pytest.raises(error, match=message):
        rm.sample_posterior(arguments.pop('num_draws'), arguments.pop('model'), **arguments)


def test_more_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match='`initial_state` must be given'):
        rm.sample_posterior(5, targets.skewed)
    with pytest.raises(ValueError, match='no gradient with respect to `x`'):
        rm.sample_posterior(5, lambda x: tf.reduce_sum(tf.stop_gradient(x), -1), initial_state=np.zeros((4, 2)))
    bad = lambda x: tf.where(tf.range(4) == 2, np.float64(np.nan), targets.skewed(x))
    with pytest.raises(ValueError, match='start of chain 2 is nan'):
        rm.sample_posterior(5, bad, initial_state=np.zeros((4, 2)))
    with pytest.raises(ValueError, match='Values are pinned for a joint distribution only'):
        rm.sample_posterior(5, targets.skewed, initial_state=np.zeros((4, 2)), y=1.0)
    with pytest.raises(ValueError, match=r'one value for each of 4 chains, got shape \(\)'):
        rm.sample_posterior(5, lambda x: tf.reduce_sum(x), initial_state=np.zeros((4, 2)))
    with pytest.raises(TypeError, match='`model` must be'):
        rm.sample_posterior(5, 'model')
    discrete = tfd.JointDistributionNamed({'p': tfd.Beta(1.0, 1.0), 'n': lambda p: tfd.Bernoulli(probs=p)})
    with pytest.raises(ValueError, match='`n` is of dtype int32.*pin it'):
        rm.sample_posterior(5, discrete)


RUN = """
import sys
import numpy as np
import tfp_rmhmc as rm
from tests import targets
result = rm.sample_posterior(
    90, targets.skewed, initial_state=targets.skewed_draws(3, 2), num_chains=3, seed=7,
    num_burnin=20, num_adaptation=20, chunk_size=10, metric=rm.DiagonalMetric(), checkpoint_dir=sys.argv[1] or None,
)
np.save(sys.argv[2], np.asarray(result.draws))
"""


def test_a_killed_run_resumes_to_the_same_draws(tmp_path):
    root = pathlib.Path(__file__).parents[2]
    environment = os.environ | {'PYTHONPATH': str(root), 'PYTHONWARNINGS': 'ignore'}

    def start(directory, output):
        return subprocess.Popen([sys.executable, '-c', RUN, str(directory), str(output)], env=environment, cwd=root)

    assert start('', tmp_path / 'whole.npy').wait(300) == 0
    saved = tmp_path / 'run' / 'tfp_rmhmc_checkpoint.npz'
    process = start(tmp_path / 'run', tmp_path / 'resumed.npy')
    deadline = time.monotonic() + 300

    def done():
        if not saved.exists():
            return -1
        with np.load(saved) as file:
            return len(file['trace.lp']) if 'trace.lp' in file else 0

    while process.poll() is None and done() < 10 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / 'resumed.npy').exists()
    assert 0 < done() < 90
    assert start(tmp_path / 'run', tmp_path / 'resumed.npy').wait(300) == 0
    np.testing.assert_array_equal(np.load(tmp_path / 'resumed.npy'), np.load(tmp_path / 'whole.npy'))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    arguments = {'initial_state': targets.skewed_draws(3, 2), 'num_chains': 3, 'checkpoint_dir': tmp_path, **QUICK}
    arguments['metric'] = rm.DiagonalMetric()
    first = rm.sample_posterior(10, targets.skewed, seed=1, **arguments)
    again = rm.sample_posterior(10, targets.skewed, seed=1, **arguments)
    np.testing.assert_array_equal(first.draws, again.draws)
    with pytest.raises(ValueError, match='another model or setting: seed'):
        rm.sample_posterior(10, targets.skewed, seed=2, **arguments)
    with pytest.raises(ValueError, match='another model or setting: log density'):
        rm.sample_posterior(10, lambda q: 2.0 * targets.skewed(q), seed=1, **arguments)
    (tmp_path / 'tfp_rmhmc_checkpoint.npz').write_bytes(b'not a checkpoint')
    with pytest.raises(ValueError, match='`checkpoint_dir`.*cannot be read'):
        rm.sample_posterior(10, targets.skewed, seed=1, **arguments)
