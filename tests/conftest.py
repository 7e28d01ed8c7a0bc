"""Shared fixtures."""

import os

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import numpy as np
import pytest
import tensorflow as tf


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
