"""Checkpoints: whose they are, what is wrong with them, and that nothing is lost."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm
from tests import targets
from tfp_rmhmc.sampling.checkpoint import Checkpoint, Identity

pytestmark = pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction', 'ignore:.*of the trajectories')
NAME = 'tfp_rmhmc_checkpoint'
QUICK = {'kernel': 'hmc', 'num_burnin': 0, 'num_adaptation': 4, 'trajectory_length': 0.5, 'jit_compile': False}
X, LABELS = targets.logistic_data(40, 3)


def run(directory, num_draws=10, target=targets.skewed, start=None, **kwargs):
    start = targets.skewed_draws(4, 3) if start is None else start
    return rm.sample_posterior(
        num_draws, target, initial_state=start, checkpoint_dir=directory, **(QUICK | {'seed': 1} | kwargs)
    )


def test_a_model_that_looks_the_same_at_the_start_is_told_apart(tmp_path):
    """At zero weights a logistic regression's log density is the same for any labels."""
    zeros = np.zeros((4, 3))
    first, second = (targets.logistic_regression(X, y) for y in (LABELS, 1.0 - LABELS))
    np.testing.assert_array_equal(first(tf.constant(zeros)), second(tf.constant(zeros)))
    run(tmp_path, target=first, start=zeros)
    with pytest.raises(ValueError, match='another model or setting: log density .*gradient '):
        run(tmp_path, target=second, start=zeros)
    # And by the gradient too where only that is different: at the start, labels that are turned around.
    run(tmp_path, target=first, start=zeros)


@pytest.mark.parametrize(('change', 'word'), [({'num_adaptation': 5}, 'adaptation 5'), ({'seed': 2}, r'seed \[0, 2\]')])
def test_another_setting_is_refused(change, word, tmp_path):
    run(tmp_path)
    with pytest.raises(ValueError, match=f'another model or setting: {word} .checkpoint: '):
        run(tmp_path, **change)


def test_another_version_is_refused(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setattr('tfp_rmhmc.sampling.identity.__version__', '0.0.0')
    with pytest.raises(ValueError, match=r'another model or setting: version 0\.0\.0 .checkpoint: '):
        run(tmp_path)


def test_a_metric_is_known_by_its_values(tmp_path):
    """Two functions of equal values are one metric, and others are not; a function's address does not matter."""

    def fisher(scale):
        return rm.FisherMetric(lambda q: scale * tf.eye(3, batch_shape=[q.shape[0]], dtype=q.dtype))

    kernel = {'kernel': 'explicit'}
    first = run(tmp_path, metric=fisher(2.0), **kernel)
    again = run(tmp_path, metric=fisher(2.0), **kernel)
    np.testing.assert_array_equal(first.draws, again.draws)
    with pytest.raises(ValueError, match='another model or setting: metric '):
        run(tmp_path, metric=fisher(2.0 + 1e-9), **kernel)


def test_more_draws_and_fewer(tmp_path):
    ten = run(tmp_path, 10)
    sixty = run(tmp_path, 60)
    np.testing.assert_array_equal(sixty.draws[:10], ten.draws)
    np.testing.assert_array_equal(sixty.draws, run(None, 60, chunk_size=7).draws)
    np.testing.assert_array_equal(run(tmp_path, 5).draws, ten.draws[:5])
    np.testing.assert_array_equal(run(tmp_path, 5).extend(7).draws, sixty.draws[:12])


def test_no_seed_goes_on_with_the_one_that_was_drawn(tmp_path):
    ten = run(tmp_path, 10, seed=None)
    np.testing.assert_array_equal(run(tmp_path, 20, seed=None).draws[:10], ten.draws)
    assert not np.array_equal(run(None, 10, seed=None).draws, ten.draws)


def foreign(path):
    np.savez(path, x=np.arange(3))


def an_array(path):
    with open(path, 'wb') as file:
        np.save(file, np.arange(3))


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-200])


def damaged(path):
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2 :: 50] = bytes(len(whole[len(whole) // 2 :: 50]))
    path.write_bytes(bytes(whole))


@pytest.mark.parametrize('harm', [foreign, an_array, cut_short, damaged, lambda path: path.write_bytes(b'')])
def test_a_file_that_is_not_a_checkpoint_is_said_and_kept(harm, tmp_path):
    path = tmp_path / f'{NAME}.npz'
    run(tmp_path)
    harm(path)
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match=f'^`checkpoint_dir` holds {NAME}.npz, which cannot be read.*begin anew.$'
    ) as raised:
        run(tmp_path)
    assert '\n' not in str(raised.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    whole = run(None, 40)
    run(tmp_path, 10)
    before = (tmp_path / f'{NAME}.npz').read_bytes()

    def full(file, **arrays):
        file.write(b'some')
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(np, 'savez', full)
    with pytest.warns(UserWarning, match='could not be saved to `checkpoint_dir`: No space left on device; it holds those'):
        result = run(tmp_path, 40, chunk_size=10)
    np.testing.assert_array_equal(result.draws, whole.draws)
    assert (tmp_path / f'{NAME}.npz').read_bytes() == before
    assert os.listdir(tmp_path) == [f'{NAME}.npz']
    monkeypatch.undo()
    assert run(tmp_path, 40).remarks == []


def test_a_directory_that_cannot_be_written_is_found_before_anything_is_run(tmp_path):
    def target(q):
        raise AssertionError('the target was evaluated')

    (tmp_path / 'file').write_text('')
    with pytest.raises(
        ValueError, match="`checkpoint_dir` must be a directory that can be written, got '.*file/a'"
    ) as raised:
        run(tmp_path / 'file' / 'a', target=target)
    assert '\n' not in str(raised.value)


HOLD = """
import sys, time
from tfp_rmhmc.sampling.checkpoint import Checkpoint
with Checkpoint(sys.argv[1]).held():
    print('held', flush=True)
    time.sleep(600)
"""


def test_two_processes_on_one_directory(tmp_path):
    with subprocess.Popen([sys.executable, '-c', HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == 'held\n'
            with pytest.raises(ValueError, match=f'`checkpoint_dir` .* is in use by process {process.pid}: '):
                run(tmp_path)
        finally:
            process.kill()
    assert (tmp_path / f'{NAME}.lock').exists()
    run(tmp_path)  # what the killed process left behind does not matter
    assert os.listdir(tmp_path) == [f'{NAME}.npz']


def test_two_runs_of_one_process_and_locks_of_others(tmp_path):
    lock = tmp_path / f'{NAME}.lock'
    with Checkpoint(tmp_path).held():
        text = lock.read_text()
        with pytest.raises(ValueError, match='is in use by another run of this process'), Checkpoint(tmp_path).held():
            pass
        assert lock.exists()
    assert not lock.exists()
    lock.write_text(text)  # as one that had our number before us would leave it
    with Checkpoint(tmp_path).held():
        pass
    lock.write_text('{"pid": 1, "host": "elsewhere", "began": ""}')
    with pytest.raises(ValueError, match='is in use by process 1 on elsewhere: .* remove tfp_rmhmc_checkpoint.lock'):
        run(tmp_path)


def test_rounding_is_no_difference():
    ours = np.array([[1e6, 1.0], [np.nan, -np.inf]])
    same = ours + np.array([[1e-9, 1e-9], [0.0, 0.0]])
    assert Identity({}, {'gradient': ours}).differences(Identity({}, {'gradient': same})) == []
    for other in (ours + np.array([[0.0, 1e-3], [0.0, 0.0]]), np.where(np.isnan(ours), 0.0, ours)):
        (difference,) = Identity({}, {'gradient': ours}).differences(Identity({}, {'gradient': other}))
        assert difference.startswith('gradient ')
