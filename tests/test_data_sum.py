"""Sums over batches and over devices: the derivatives, the chain, the memory."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tfp_rmhmc import autodiff
from tfp_rmhmc.density import LogDensity

X, Y = targets.logistic_data(40, 3)
KERNELS = {'explicit': rm.ExplicitRiemannianHMC, 'implicit': rm.ImplicitRiemannianHMC}


def term(piece, w):
    x, y = piece
    logits = tf.linalg.matvec(tf.cast(x, w.dtype), w)
    return tf.reduce_sum(tf.cast(y, w.dtype) * logits - tf.nn.softplus(logits), axis=-1)


def prior(w):
    return -0.5 * tf.reduce_sum(tf.square(w), axis=-1)


def over_batches():
    return rm.SumOverBatches(term, tf.data.Dataset.from_tensor_slices((X, Y)).batch(7), prior)


def over_replicas():
    """Half of the data on each of the two logical CPU devices that conftest.py makes."""
    strategy = tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'], cross_device_ops=tf.distribute.ReductionToOneDevice())
    assert strategy.num_replicas_in_sync == 2
    half = lambda a, context: tf.constant(np.array_split(a, 2)[context.replica_id_in_sync_group])
    values = (
        strategy.experimental_distribute_values_from_function(lambda context: half(X, context)),
        (strategy.experimental_distribute_values_from_function(lambda context: half(Y, context))),
    )
    return rm.SumOverReplicas(term, values, strategy, prior)


SUMS = {'batches': over_batches, 'replicas': over_replicas}
WHOLE = targets.logistic_regression(X, Y)


def in_a_function_of_a_function(target):
    inner = tf.function(target, autograph=False)
    return lambda w: inner(w) * 1.0


WRAPS = {
    'itself': lambda target: target,
    'wrapped': lambda target: lambda w: target(w) * 1.0,
    'tf.function': lambda target: tf.function(lambda w: target(w), autograph=False),
    'inside': in_a_function_of_a_function,
}


@pytest.mark.parametrize(
    ('name', 'wrap'), [(name, wrap) for name in SUMS for wrap in WRAPS if (name, wrap) != ('replicas', 'inside')]
)
def test_value_and_three_derivatives(name, wrap):
    """Also behind a closure, as TransformedTransitionKernel makes one, and in a `tf.function` that was traced before."""
    target = WRAPS[wrap](SUMS[name]())
    w = tf.constant(np.random.default_rng(0).normal(size=(2, 3)))
    weights = tf.constant(np.random.default_rng(1).normal(size=(2, 3, 3)))

    def everything(target, w):
        density = LogDensity.at_state(target, [w])
        with tf.GradientTape() as tape:
            tape.watch(w)
            value, gradient, hessian = density.apply(autodiff.hessian, w)
        return value, gradient, hessian, tape.gradient(hessian, w, output_gradients=weights)

    expected = everything(WHOLE, w)
    target(w)
    for run in (everything, tf.function(everything, autograph=False)):
        for ours, exact in zip(run(target, w), expected, strict=True):
            np.testing.assert_allclose(ours, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('metric', [rm.SoftAbsMetric(), rm.MongeMetric(0.1)], ids=['softabs', 'monge'])
@pytest.mark.parametrize('kernel', KERNELS)
@pytest.mark.parametrize('name', SUMS)
def test_the_chain_is_that_of_the_whole(name, kernel, metric):
    start = tf.constant(np.random.default_rng(0).normal(size=(2, 3)))

    def draws(target):
        chain = KERNELS[kernel](target, np.float64(0.15), 2, metric=metric)
        return tf.function(
            lambda: tfp.mcmc.sample_chain(3, start, kernel=chain, trace_fn=None, seed=(1, 2)), autograph=False
        )()

    ours, whole = draws(SUMS[name]()), draws(WHOLE)
    assert np.ptp(whole, axis=0).min() > 0.01
    np.testing.assert_allclose(ours, whole, rtol=1e-7, atol=1e-7)


def test_bad_arguments_are_one_sentence():
    with pytest.raises(TypeError, match='`term_fn` must be callable, got 3'):
        rm.SumOverBatches(3, tf.data.Dataset.range(3))
    with pytest.raises(TypeError, match='`dataset` must be a tf.data.Dataset, got'):
        rm.SumOverBatches(term, [X, Y])
    with pytest.raises(ValueError, match='`dataset` must be finite'):
        rm.SumOverBatches(term, tf.data.Dataset.range(3).repeat())
    with pytest.raises(TypeError, match='`strategy` must be'):
        rm.SumOverReplicas(term, X, 'mirrored')
    with pytest.raises(TypeError, match='`base_fn` must be callable, got 1'):
        rm.SumOverBatches(term, tf.data.Dataset.range(3), 1)


ROWS = tf.data.Dataset.from_tensor_slices((X, Y))
CHANGING = {
    'shuffled and taken': lambda: ROWS.batch(7).shuffle(6).take(3),
    'shuffled, remainder dropped': lambda: ROWS.shuffle(40, seed=1).batch(7, drop_remainder=True),
    'augmented': lambda: ROWS.batch(7).map(lambda x, y: (x + 0.1 * tf.random.normal(tf.shape(x), dtype=x.dtype), y)),
}
SAME = {
    'as it is': lambda: ROWS.batch(7),
    'shuffled': lambda: ROWS.shuffle(40).batch(7),
    'shuffled once': lambda: ROWS.shuffle(40, reshuffle_each_iteration=False).batch(7, drop_remainder=True),
    'augmented by itself': lambda: ROWS.batch(7).map(
        lambda x, y: (x + tf.random.stateless_normal([3], (1, 2), dtype=x.dtype), y)
    ),
}


@pytest.mark.parametrize('in_graph', [False, True], ids=['eager', 'graph'])
@pytest.mark.parametrize('dtype', ['float32', 'float64'])
@pytest.mark.parametrize('kind', [*CHANGING, *SAME])
def test_a_dataset_that_differs_from_pass_to_pass_is_refused(kind, dtype, in_graph):
    tf.random.set_seed(None)  # with one, which another test may have set, each pass augments in the same way
    target = rm.SumOverBatches(term, (CHANGING | SAME)[kind](), prior)
    run = tf.function(target, autograph=False) if in_graph else target
    w = tf.constant(np.random.default_rng(0).normal(size=(2, 3)), dtype)
    if kind in SAME:
        run(w)
        return
    with pytest.raises(ValueError, match=r'`dataset` must hold the same elements on each pass, got log densities \['):
        run(w)


def test_data_that_belong_to_a_graph_are_not_compared():
    """Neither a dataset that is made in a graph, nor a term that uses its tensors, can be evaluated outside."""

    @tf.function(autograph=False)
    def run(w, shift):
        whole = tf.data.Dataset.from_tensor_slices((X + shift, Y)).batch(7)
        shifted = lambda piece, w: term((piece[0] + shift, piece[1]), w)
        return rm.SumOverBatches(term, whole, prior)(w), rm.SumOverBatches(shifted, ROWS.batch(7), prior)(w)

    w = tf.constant(np.random.default_rng(0).normal(size=(2, 3)))
    for value in run(w, tf.constant(0.0, tf.float64)):
        np.testing.assert_allclose(value, WHOLE(w), rtol=1e-12)
