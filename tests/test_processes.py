"""Two worker processes on this machine: the chain of one process; one that dies; and the restart from the checkpoint."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import worker

MOST_SECONDS = 900  # after which something hangs; TensorFlow notices lost workers within a minute or two


def free_ports(num):
    sockets = [socket.socket() for _ in range(num)]
    for one in sockets:
        one.bind(('127.0.0.1', 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def start():
    """A function that starts two workers; whatever of them is left ends with the test."""
    running = []

    def start(output, *arguments):
        output.mkdir()
        addresses = [f'127.0.0.1:{port}' for port in free_ports(2)]
        workers = []
        for index in range(2):
            config = {'cluster': {'worker': addresses}, 'task': {'type': 'worker', 'index': index}}
            with open(output / f'log{index}', 'w') as log:
                workers.append(
                    subprocess.Popen(
                        [sys.executable, '-m', 'tests.worker', str(output), *map(str, arguments)],
                        stdout=log,
                        stderr=log,
                        cwd=worker.ROOT,
                        env=os.environ | {'TF_CONFIG': json.dumps(config)},
                    )
                )
        running.extend(workers)
        return workers

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_two_processes(start, tmp_path):
    checkpoint = tmp_path / 'checkpoints' / 'tfp_rmhmc_checkpoint.npz'
    workers = start(tmp_path / 'first', checkpoint.parent, 10**6, 'chains')
    end = time.monotonic() + MOST_SECONDS
    while not checkpoint.exists():
        assert time.monotonic() < end
        assert all(one.poll() is None for one in workers), (tmp_path / 'first' / 'log0').read_text()
        time.sleep(0.1)

    # The chains of every kernel, which each worker has in whole, are those of one process that has all data.
    names, (x, y) = {}, worker.data()
    exec(worker.block_of_page().split('strategy = ')[0], {'tf': worker.tf, 'x': x, 'y': y}, names)
    whole = worker.chains(lambda w: names['log_likelihood']((x, y), w) + names['log_prior'](w))
    for index in range(2):
        found = np.load(tmp_path / 'first' / f'chains{index}.npz')
        assert set(found) == {'explicit', 'implicit', 'separable'}
        for name, draws in whole.items():
            assert np.ptp(draws, axis=0).min() > 1e-3
            np.testing.assert_allclose(found[name], draws, rtol=1e-7, atol=1e-7)

    # One worker dies: the other ends, and says why.
    workers[1].send_signal(signal.SIGKILL)
    assert workers[0].wait(timeout=MOST_SECONDS) != 0
    log = (tmp_path / 'first' / 'log0').read_text()
    assert '/job:worker/replica:0/task:1' in log
    assert 'RuntimeError: Another process of this run does not answer' in log

    # Both go on from the file, which the first worker has written.
    saved = np.load(checkpoint)['state.0'] if 'state.0' in np.load(checkpoint) else np.zeros([0, 2, 2])
    for one in start(tmp_path / 'second', checkpoint.parent, len(saved) + 10):
        assert one.wait(timeout=MOST_SECONDS) == 0, (tmp_path / 'second' / 'log0').read_text()
    draws = [np.load(tmp_path / 'second' / f'draws{index}.npy') for index in range(2)]
    np.testing.assert_array_equal(*draws)
    assert len(draws[0]) == len(saved) + 10
    np.testing.assert_array_equal(draws[0][: len(saved)], saved)
    assert sorted(path.name for path in pathlib.Path(checkpoint.parent).iterdir()) == [checkpoint.name]
