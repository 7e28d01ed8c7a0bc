"""Runs of kernels by name: extended, interrupted, stopped when there is enough, cut into other chunks."""

import numpy as np
import pytest

import tfp_rmhmc as rm
from tests import targets
from tfp_rmhmc.sampling.by_name import NamedRun

pytestmark = pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction', 'ignore:.*of the trajectories')
KERNELS = ['explicit', 'implicit', 'rnuts', 'hmc', 'nuts']


def run(kernel, num_draws, **kwargs):
    settings = {'num_burnin': 10, 'num_adaptation': 12, 'jit_compile': False, 'seed': 5, 'num_chains': 3}
    if kernel in ('explicit', 'implicit', 'rnuts'):
        settings['metric'] = rm.DiagonalMetric()  # whose programs are soon made
    start = targets.skewed_draws(3, 2)
    return rm.sample_posterior(num_draws, targets.skewed, initial_state=start, kernel=kernel, **(settings | kwargs))


@pytest.mark.parametrize('kernel', KERNELS)
def test_extended_and_interrupted_runs_are_the_longer_run(kernel, monkeypatch):
    whole = run(kernel, 30)
    draw_on = NamedRun._stretch

    def interrupted(self, *arguments):
        if self.num_draws >= 14:
            raise KeyboardInterrupt
        return draw_on(self, *arguments)

    monkeypatch.setattr(NamedRun, '_stretch', interrupted)
    partial = run(kernel, 30, chunk_size=7)
    assert partial.is_partial
    assert partial.draws.shape == (14, 3, 2)
    monkeypatch.undo()
    longer = partial.extend(16)
    assert not longer.is_partial
    np.testing.assert_allclose(longer.draws, whole.draws, rtol=1e-9)
    np.testing.assert_array_equal(longer.draws[:20], partial.extend(6).draws)  # a result can be extended again
    assert longer.trace['lp'].shape == (30, 3)
    assert len(longer.warmup['lp']) == 12
    assert longer.gradients['warmup'] == whole.gradients['warmup']


def test_enough_is_enough():
    result = run('nuts', 3000, target_ess=60.0, chunk_size=20)
    assert 20 <= len(result.draws) < 3000
    assert np.min(result.ess()['x']) >= 60.0
    seconds = result.seconds
    assert seconds['total'] >= seconds['compiling'] + seconds['warmup'] + seconds['sampling']
    assert min(seconds.values()) > 0.0


def test_seeds():
    np.testing.assert_array_equal(run('hmc', 5, seed=np.int64(3)).draws, run('hmc', 5, seed=3).draws)
    assert np.any(run('hmc', 5, seed=2**33).draws != run('hmc', 5, seed=0).draws)
    for seed in (2**70, True):
        with pytest.raises((TypeError, ValueError), match=f'`seed` must be .* got {seed}'):
            run('hmc', 5, seed=seed)
