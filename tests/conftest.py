"""Shared fixtures."""

import os

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
