"""Which program runs a kernel, and that the result says so."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm
from tests import targets


def regression(num, dimension):
    """A log density that goes through `num` observations."""
    x = np.random.default_rng(0).standard_normal((dimension, num))
    return lambda w: -tf.reduce_sum(tf.nn.softplus(tf.matmul(w, x)), axis=-1) - 0.5 * tf.reduce_sum(w * w, axis=-1)


def states(num_chains, dimension):
    return tf.constant(0.1 * np.random.default_rng(1).standard_normal((num_chains, dimension)))


@pytest.mark.parametrize(
    ('metric', 'num', 'dimension', 'num_chains', 'expected'),
    [
        (rm.SoftAbsMetric(), 50, 5, 1, True),
        (rm.SoftAbsMetric(), 200, 11, 512, True),
        (rm.SoftAbsMetric(), 50, 25, 8, False),  # LAPACK's decompositions
        (rm.SoftAbsMetric(), 2000, 25, 64, True),  # the data weigh more
        (rm.HessianMetric(), 50, 25, 8, True),  # Cholesky's cost less
        (rm.HessianMetric(), 50, 100, 64, False),
        (rm.HessianMetric(), 50, 5, 20_000, True),  # as many chains as one likes
        (rm.MongeMetric(), 50, 100, 64, True),
        (None, 50, 100, 64, True),
    ],
)
def test_the_choice(metric, num, dimension, num_chains, expected):
    assert rm.prefers_xla(regression(num, dimension), states(num_chains, dimension), metric) is expected


def test_a_known_structure_is_checked_and_counts():
    funnel = tf.constant(targets.funnel_draws(8, 51))
    arrowhead = rm.SoftAbsMetric(structure='arrowhead')
    assert rm.prefers_xla(targets.funnel, funnel, arrowhead)
    assert not rm.prefers_xla(targets.funnel, funnel, rm.SoftAbsMetric())  # unknown: general matrices of 51 rows
    tilted = lambda q: targets.funnel(q) + 0.1 * q[..., 1] * q[..., 2] ** 2  # two entries of the shaft differ
    assert not rm.prefers_xla(tilted, funnel, arrowhead)


def test_parts_and_a_chain_without_a_batch():
    log_prob = lambda a, b: targets.skewed(a) + targets.skewed(b)
    assert rm.prefers_xla(log_prob, [states(4, 2), states(4, 3)], rm.SoftAbsMetric())
    assert rm.prefers_xla(targets.skewed, states(1, 5)[0], rm.SoftAbsMetric())


@pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction')
def test_the_result_says_which_it_was(tmp_path):
    settings = {
        'kernel': 'hmc',
        'num_burnin': 0,
        'num_adaptation': 4,
        'trajectory_length': 0.5,
        'progress': False,
        'seed': 1,
    }
    settings['initial_state'] = states(4, 2)
    assert rm.sample_posterior(4, targets.skewed, **settings).is_compiled
    assert not rm.sample_posterior(4, targets.skewed, jit_compile=False, **settings).is_compiled
    # XLA has no strings.
    with_strings = lambda q: targets.skewed(q) + 0.0 * tf.cast(tf.strings.length(tf.as_string(q[:, 0])), q.dtype)
    for _ in range(2):  # the second from the checkpoint
        assert not rm.sample_posterior(4, with_strings, checkpoint_dir=tmp_path, **settings).is_compiled
