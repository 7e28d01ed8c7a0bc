"""Programs of earlier runs: the same target finds its own, and no other target does."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tfp_rmhmc.model import PinnedModel
from tfp_rmhmc.sampling import reuse
from tfp_rmhmc.sampling.engine import Engine

tfd = tfp.distributions
SHORT = {'num_burnin': 20, 'num_adaptation': 60, 'seed': 1}
pytestmark = pytest.mark.filterwarnings(
    'ignore:R-hat', 'ignore:The energy fraction', 'ignore:The curvature', 'ignore:.*of the trajectories'
)
X = tf.zeros([4, 3], tf.float64)


def key(fn, *parts):
    """As a run asks for it: of the value and the gradient."""
    both = lambda *parts: tfp.math.value_and_gradient(fn, parts)
    return reuse.graph_key(tf.function(both, autograph=False).get_concrete_function(*(parts or [X])))


def plain(scale):
    return lambda q: -scale * tf.reduce_sum(tf.square(q), axis=-1)


def with_data(scale):
    data = tf.constant(np.arange(12.0).reshape(3, 4) * scale)  # captured
    return lambda q: tf.reduce_sum(tf.math.log_sigmoid(tf.matmul(q, data)), axis=-1)


def looping(scale):
    def log_prob(q):
        total = tf.scan(lambda a, x: 0.5 * a + scale * x * q[..., 0], tf.range(9, dtype=q.dtype), tf.zeros_like(q[..., 0]))
        return -tf.reduce_sum(tf.square(total), axis=0) - tf.reduce_sum(tf.square(q), axis=-1)

    return log_prob


def branching(scale):
    def log_prob(q):
        total = tf.reduce_sum(q)
        return tf.cond(total > 1.0, lambda: -scale * tf.square(q[..., 0]), lambda: -tf.square(q[..., 1]))

    return log_prob


def with_a_gradient_of_its_own(scale):
    @tf.custom_gradient
    def fn(x):
        return x, lambda upstream: scale * upstream

    return lambda q: tf.reduce_sum(fn(q), axis=-1)


def nested(scale):
    inner = lambda q: tf.map_fn(lambda x: -scale * tf.reduce_sum(tf.square(x)), q)
    return lambda q: tf.vectorized_map(lambda x: -scale * tf.reduce_sum(x), q) + inner(q)


def in_order(scale):
    """Two that differ in which of two tensors is taken from the other."""
    first, second = (0, 1) if scale > 1.0 else (1, 0)
    return lambda q: (
        tf.nn.softplus(q[..., 0] + 1.0) - [q[..., 1], q[..., 2]][first] * [q[..., 1], tf.exp(q[..., 2])][second]
    )


def swapped_results(scale):
    """Two that differ in which result of a loop is taken."""

    def log_prob(q):
        _, a, b = tf.while_loop(
            lambda i, a, b: i < 5, lambda i, a, b: (i + 1, a + q[..., 0], b * 0.5 - q[..., 1]), (0, q[..., 0], q[..., 1])
        )
        return a if scale > 1.0 else b

    return log_prob


def batched(scale):
    model = tfd.JointDistributionCoroutineAutoBatched(two_levels(scale))
    return PinnedModel(model, {'y': [0.5, 1.0]}).target_log_prob_fn


def two_levels(scale):
    def model():
        mu = yield tfd.Normal(0.0, scale, name='mu')
        tau = yield tfd.HalfNormal(1.0, name='tau')
        yield tfd.Normal(mu * tf.ones(2), tau, name='y')

    return model


PARTS = {batched: [tf.zeros([4]), tf.zeros([4])]}


@pytest.mark.parametrize(
    'target',
    [plain, with_data, looping, branching, nested, in_order, swapped_results, with_a_gradient_of_its_own, batched],
    ids=lambda target: target.__name__,
)
def test_a_target_has_the_key_of_what_it_computes(target):
    parts = PARTS.get(target, [X])
    first = key(target(1.0), *parts)
    looping(3.0)  # TensorFlow counts what it names
    key(nested(4.0))
    assert isinstance(first, bytes)
    assert key(target(1.0), *parts) == first
    assert key(target(1.5), *parts) != first
    assert key(target(1.0), *[tf.zeros([5, *part.shape[1:]], part.dtype) for part in parts]) != first


def test_what_cannot_be_compared_has_no_key(monkeypatch):
    variable = tf.Variable(np.ones(3))
    assert key(lambda q: tf.reduce_sum(q * variable, axis=-1)) is None
    monkeypatch.setattr(reuse, '_MAX_BYTES', 100_000)
    large = tf.constant(np.ones((3, 10_000)))
    assert key(lambda q: tf.reduce_sum(tf.matmul(q, large), axis=-1)) is None


DATA = np.array([1.0, 2.0])


def log_prob(q):
    return -tf.reduce_sum(tf.square(q - DATA), axis=-1)


def drawn(**options):
    start = np.random.default_rng(0).uniform(-1.0, 1.0, size=(4, 2))
    return rm.sample_posterior(60, log_prob, initial_state=start, **(SHORT | options))


def test_a_second_run_compiles_nothing_and_has_the_same_draws(monkeypatch):
    traces = []
    transitions = Engine._transitions
    monkeypatch.setattr(Engine, '_transitions', lambda *arguments: traces.append(1) or transitions(*arguments))
    first = drawn()
    num = len(traces)
    assert num == len(reuse._programs) > 0
    second = drawn()
    assert len(traces) == num
    np.testing.assert_array_equal(first.draws, second.draws)
    assert drawn(seed=2).draws[0, 0, 0] != first.draws[0, 0, 0]


def test_a_function_that_has_changed_its_mind_has_the_draws_of_the_new_one(monkeypatch):
    before = drawn()
    monkeypatch.setitem(globals(), 'DATA', np.array([5.0, -3.0]))
    after = drawn()
    reuse.forget()
    np.testing.assert_array_equal(after.draws, drawn().draws)
    np.testing.assert_allclose(np.mean(before.draws, axis=(0, 1)), [1.0, 2.0], atol=0.5)
    np.testing.assert_allclose(np.mean(after.draws, axis=(0, 1)), [5.0, -3.0], atol=0.5)


def test_programs_that_were_used_last_are_kept_and_those_that_failed_are_not(monkeypatch):
    monkeypatch.setattr(reuse, '_MAX_PROGRAMS', 2)
    engines = [Engine(log_prob, None, 1, False) for _ in range(3)]
    reuse.keep('a', engines[0])
    reuse.keep('b', engines[1])
    reuse.keep('a', engines[0])
    reuse.keep('c', engines[2])
    reuse.keep(None, engines[1])
    assert list(reuse._programs) == ['a', 'c']
    assert reuse.engine_of('a') is engines[0]
    assert reuse.engine_of('b') is reuse.engine_of(None) is None
    reuse.forget()

    def failing(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(Engine, '_transitions', failing)
    with pytest.raises(ZeroDivisionError):
        drawn()
    assert not reuse._programs
