"""Targets made of branches, loops, sorting, factorisations; each against the same target written plainly."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests.conftest import compiled_variants
from tests.numeric import relative_error


def plain(q):
    """Skewed, with a term that couples its coordinates."""
    return -tf.reduce_sum(tf.exp(0.5 * q) + 0.3 * tf.square(q), axis=-1) - 0.2 * tf.square(q[..., 0] * q[..., 1])


def with_cond(q):
    return tf.cond(tf.reduce_sum(q) > -100.0, lambda: plain(q), lambda: 2.0 * plain(q))


def with_while_loop(q):
    start = (0, tf.zeros_like(q[..., 0]))
    add = lambda i, total: (i + 1, total + plain(q) / 3.0)
    return tf.while_loop(lambda i, _: i < 3, add, start, maximum_iterations=3)[1]


def with_sort(q):
    """At points whose coordinates descend."""
    return plain(tf.sort(q, axis=-1))


def with_gather(q):
    return plain(tf.gather(q, [1, 0], axis=-1))


def reversed_plain(q):
    return plain(tf.stack([q[..., 1], q[..., 0]], axis=-1))


def with_cholesky(q):
    """The density of N(0, A(q)) at (1, 2)."""
    off = 0.3 * q[..., 1]
    matrix = tf.stack([tf.stack([tf.exp(q[..., 0]), off], -1), tf.stack([off, 1.0 + tf.square(q[..., 1])], -1)], -2)
    root = tf.linalg.cholesky(matrix)
    z = tf.linalg.triangular_solve(root, tf.constant([[1.0], [2.0]], q.dtype) * tf.ones_like(matrix[..., :1]))
    log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)), axis=-1)
    return plain(q) - log_det - 0.5 * tf.reduce_sum(tf.square(z), axis=(-2, -1))


def without_cholesky(q):
    a, b, c = tf.exp(q[..., 0]), 0.3 * q[..., 1], 1.0 + tf.square(q[..., 1])
    determinant = a * c - tf.square(b)
    return plain(q) - 0.5 * tf.math.log(determinant) - 0.5 * (c - 4.0 * b + 4.0 * a) / determinant


def with_map_fn(q):
    return tf.map_fn(plain, q)


def with_scan(q):
    """A path x_t = x_t-1 / 2 + sin(q_t)."""
    path = tf.scan(lambda x, step: 0.5 * x + tf.sin(step), tf.transpose(q), tf.zeros_like(q[..., 0]))
    return plain(q) - tf.reduce_sum(tf.square(path), axis=0)


def without_scan(q):
    first = tf.sin(q[..., 0])
    return plain(q) - tf.square(first) - tf.square(0.5 * first + tf.sin(q[..., 1]))


def with_concat(q):
    return plain(tf.concat([tf.square(q[..., :1]), q[..., 1:]], axis=-1))


def without_concat(q):
    first, second = tf.square(q[..., 0]), q[..., 1]
    separate = tf.exp(0.5 * first) + 0.3 * tf.square(first) + tf.exp(0.5 * second) + 0.3 * tf.square(second)
    return -separate - 0.2 * tf.square(first * second)


def with_ode(q):
    """Decay at the rate exp(q_0) from 1, for a time of 1."""
    rate = tf.exp(q[..., 0])
    solver = tfp.math.ode.DormandPrince(rtol=1e-10, atol=1e-10)
    solution = solver.solve(
        lambda _, y, rate: -rate * y, 0.0, tf.ones_like(rate), solution_times=[1.0], constants={'rate': rate}
    )
    return plain(q) - tf.square(solution.states[0])


def without_ode(q):
    return plain(q) - tf.exp(-2.0 * tf.exp(q[..., 0]))


TARGETS = {
    'ode': (with_ode, without_ode),
    'cond': (with_cond, plain),
    'while_loop': (with_while_loop, plain),
    'sort': (with_sort, reversed_plain),
    'gather': (with_gather, reversed_plain),
    'cholesky': (with_cholesky, without_cholesky),
    'map_fn': (with_map_fn, plain),
    'scan': (with_scan, without_scan),
    'concat': (with_concat, without_concat),
}
METRICS = {  # by the number of derivatives of the target that their force takes
    3: rm.SoftAbsMetric(1.0),
    2: rm.MongeMetric(),
    1: rm.SeparableMetric(lambda a, b: [0.2 * tf.sin(b), -0.3 * a], blocks=[[0], [1]]),
}
Q = np.array([[0.9, -0.4], [0.3, 0.1]])  # descending
P = np.array([[0.5, 1.0], [-0.7, 0.2]])


def energy_and_force(target, metric):
    def evaluate(q, p):
        local = rm.Hamiltonian(rm.LogDensity.at_state(target, [q]), metric).at(q)
        return local.energy(p), local.force(p)

    return evaluate


# XLA has no second derivatives of arrays that loops fill.
SAID = [('scan', 3, 'xla'), ('map_fn', 3, 'xla')]
CASES = [(name, order, mode) for name in TARGETS for order in METRICS for mode in ('graph', 'xla')]
# Derivatives of the adjoint equation's solution take minutes to trace, which a warning says when a chain begins.
LEFT_OUT = [('ode', order, mode) for order in (2, 3) for mode in ('graph', 'xla')]


@pytest.mark.parametrize(('name', 'order', 'mode'), [c for c in CASES if c not in SAID + LEFT_OUT])
def test_energy_and_force_are_those_of_the_plain_target(name, order, mode):
    target, same = TARGETS[name]
    got = compiled_variants(energy_and_force(target, METRICS[order]))[mode](tf.constant(Q), tf.constant(P))
    expected = energy_and_force(same, METRICS[order])(tf.constant(Q), tf.constant(P))
    for ours, exact in zip(got, expected, strict=True):
        assert relative_error(ours, exact) < 1e-8


@pytest.mark.parametrize(('name', 'order', 'mode'), SAID)
def test_what_xla_cannot_compile_is_said_before_it_tries(name, order, mode):
    evaluate = compiled_variants(energy_and_force(TARGETS[name][0], METRICS[order]))[mode]
    sentence = r'(?s)^(?!.*\n)SoftAbsMetric.*under XLA.*`tf.TensorArray`.*`SeparableMetric`'
    with pytest.raises(NotImplementedError, match=sentence):
        evaluate(tf.constant(Q), tf.constant(P))


@pytest.mark.parametrize('order', METRICS)
def test_what_takes_minutes_is_said_when_a_chain_begins(order):
    kernel = rm.RiemannianHMC(with_ode, 0.1, 1, metric=METRICS[order])
    begin = tf.function(kernel.bootstrap_results, autograph=False).get_concrete_function
    if order == 1:  # no warning, which would be an error here
        begin(tf.constant(Q))
        return
    with pytest.warns(UserWarning, match=r'^The log density has a loop inside a loop.*minutes.*`SeparableMetric`'):
        begin(tf.constant(Q))


def test_errors_of_the_target_itself_are_left_alone():
    def target(q):
        return plain(q) * {}['scale']

    with pytest.raises(KeyError, match='scale'):
        METRICS[3].at(rm.LogDensity(target, rm.LogDensity.at_state(plain, [tf.constant(Q)]).layout), tf.constant(Q))
