"""Shared fixtures, and workers of bounded memory."""

import os
import pathlib
import tempfile

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import arviz  # noqa: F401 (here first: of two workers that import it for the first time on a day, one may fail)
import numpy as np
import pytest
import tensorflow as tf

from tfp_rmhmc.sampling import reuse

# Workers beside each other have a core each; threads of both would wait for one another, an eighth of the time.
if 'PYTEST_XDIST_WORKER' in os.environ:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
# Two devices on any machine, for the tests of tf.distribute; everything else stays on the first.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


def compiled_variants(fn):
    """The same function eagerly, in a graph, and compiled by XLA."""
    return {
        'eager': fn,
        'graph': tf.function(fn, autograph=False),
        'xla': tf.function(fn, autograph=False, jit_compile=True),
    }


@pytest.fixture
def rng():
    return np.random.default_rng(20260)


@pytest.fixture(autouse=True)
def _no_programs_of_other_tests(request):
    """What a test breaks on purpose, later tests must not find compiled, nor it what earlier tests compiled."""
    if 'monkeypatch' not in request.fixturenames:
        yield
        return
    reuse.forget()
    yield
    reuse.forget()


# TensorFlow keeps what XLA has compiled, some 50 MB a program, for as long as a process lives, and the tests compile
# hundreds. So a worker that has grown large leaves before its next test, and another one takes its place.
LARGE = 3000  # MB
LEFT = 'left to another worker'
STATM = pathlib.Path('/proc/self/statm')  # of Linux; elsewhere workers stay


def resident_megabytes():
    return int(STATM.read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6 if STATM.exists() else 0.0


def farewell(workerinput):
    """The file by which a worker says that it has not crashed."""
    return pathlib.Path(tempfile.gettempdir()) / f'left-{workerinput["testrunuid"]}-{workerinput["workerid"]}'


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    workerinput = getattr(item.config, 'workerinput', None)
    if workerinput is not None and resident_megabytes() > LARGE:
        farewell(workerinput).touch()
        os._exit(0)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem, report, sched):
    """A worker is gone. If it left, the test had not begun."""
    note = farewell(report.node.workerinput)
    if note.exists():
        note.unlink()
        report.outcome = LEFT
        sched.mark_test_pending(crashitem)


def pytest_report_teststatus(report):
    return ('', '', '') if report.outcome == LEFT else None
