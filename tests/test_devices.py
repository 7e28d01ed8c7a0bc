"""Every operation of the package's programs can run on a GPU, in a graph and under XLA; no machine with a GPU is needed.

TensorFlow's wheels register their GPU kernels on every machine. So a program is traced, and for each of its operations, in
the bodies of loops, branches and functions too, a kernel is looked up that is registered for a GPU and for the operation's
dtypes; for a program of XLA's, one that XLA can compile for a GPU.

What is *not* an operation of the host: arithmetic of int32. TensorFlow registers it for GPUs with arguments and results in
the host's memory, because shapes and loop counters are needed there to launch the next operation. Ours are these, and
one status and some counts for each chain; XLA has them on the device.
"""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.framework import kernels as registered

import tfp_rmhmc as rm
from tests import targets, test_data_sum
from tests.integrator.registry import DEFAULTS, metric_for
from tests.metric.test_metrics import CASES, KINDS, local_at
from tfp_rmhmc.metric import ScaleStructure
from tfp_rmhmc.sampling.engine import Engine, Tuning

# Registered for every device, but they call back into Python or print on the host.
CALLBACKS = {'EagerPyFunc', 'PyFunc', 'PyFuncStateless', 'PrintV2', 'Print'}
# A graph of functions has these for its arguments, and an executor never runs them.
ARGUMENTS = {'Placeholder'}
DEVICES = {'graph': {'GPU', 'DEFAULT'}, 'xla': {'XLA_GPU_JIT'}}


def reachable_nodes(graph):
    """The nodes of a graph and of all functions that these call."""
    definition = graph.as_graph_def()
    bodies = {function.signature.name: function.node_def for function in definition.library.function}
    nodes, waiting, seen = [], [definition.node], set()
    while waiting:
        for node in waiting.pop():
            nodes.append(node)
            for attribute in node.attr.values():
                for function in [attribute.func, *attribute.list.func]:
                    if function.name in bodies and function.name not in seen:
                        seen.add(function.name)
                        waiting.append(bodies[function.name])
    return nodes


def fits(kernel, node):
    """Whether a kernel takes the dtypes of a node."""
    for constraint in kernel.constraint:
        attribute = node.attr[constraint.name]
        given = list(attribute.list.type) or [attribute.type]
        if constraint.allowed_values.list.type and not set(given) <= set(constraint.allowed_values.list.type):
            return False
    return True


def described(node):
    """`Op(dtypes)`."""
    dtypes = [t for a in node.attr.values() for t in (list(a.list.type) or [a.type]) if t]
    return f'{node.op}({", ".join(sorted({tf.as_dtype(t).name for t in dtypes}))})'


def host_operations(graph, mode, may_name_a_cpu=False):
    """What of a graph a GPU cannot run, as counts by description."""
    found, known = collections.Counter(), {}
    for node in reachable_nodes(graph):
        if node.op in ARGUMENTS:
            continue
        key = (node.op, node.device, tuple((name, str(node.attr[name])) for name in sorted(node.attr) if name[0] != '_'))
        if key not in known:
            kernels = registered.get_registered_kernels_for_op(node.op).kernel
            known[key] = (
                node.op not in CALLBACKS
                and (may_name_a_cpu or 'CPU' not in node.device)
                and any(kernel.device_type in DEVICES[mode] and fits(kernel, node) for kernel in kernels)
            )
        if not known[key]:
            found[described(node)] += 1
    return dict(found)


def traced(fn, mode, *arguments):
    """The graph of a function."""
    return tf.function(fn, autograph=False, jit_compile=mode == 'xla').get_concrete_function(*arguments).graph


@pytest.fixture(scope='module', autouse=True)
def _xla_kernels_are_registered():
    """XLA registers its kernels when it is first used."""
    tf.function(lambda x: x + 1.0, jit_compile=True)(1.0)
    assert registered.get_registered_kernels_for_op('Cholesky').kernel
    assert {k.device_type for k in registered.get_registered_kernels_for_op('Cholesky').kernel} >= {'GPU', 'XLA_GPU_JIT'}


MODES = pytest.mark.parametrize('mode', ['graph', 'xla'])
DTYPES = pytest.mark.parametrize('dtype', [tf.float32, tf.float64], ids=['float32', 'float64'])


def transition(kernel):
    return lambda state, seed: kernel.one_step(state, kernel.bootstrap_results(state), seed=seed)


SEED = tf.TensorSpec([2], tf.int32)


@DTYPES
@MODES
@pytest.mark.parametrize('name', DEFAULTS)
def test_integrators(name, mode, dtype):
    metric = metric_for(name, rm.DiagonalMetric(), 3)
    kernel = rm.RiemannianHMC(targets.skewed, tf.constant(0.1, dtype), 3, metric=metric, integrator=DEFAULTS[name])
    assert host_operations(traced(transition(kernel), mode, tf.TensorSpec([4, 3], dtype), SEED), mode) == {}


@DTYPES
@MODES
@pytest.mark.parametrize('case', KINDS)
def test_metrics(case, mode, dtype):
    _, _, q = CASES[case]

    def everything(q, p, seed):
        local = local_at(case, q, dtype)
        return local.energy(p), local.velocity(p), local.force(p), local.draw_momentum(seed)

    spec = tf.TensorSpec([4, q.size], dtype)
    assert host_operations(traced(everything, mode, spec, spec, SEED), mode) == {}


def adapted_length(target, dtype):
    inner = rm.RiemannianHMC(
        target, tf.constant(0.1, dtype), 3, metric=rm.EuclideanMetric(), store_parameters_in_results=True
    )
    kernel = rm.WorstCoordinateLengthAdaptation(inner, 6)
    return tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, 6, target_accept_prob=tf.constant(0.8, dtype))


def random_length(target, dtype):
    inner = rm.ExplicitRiemannianHMC(
        target, tf.constant(0.1, dtype), 3, metric=rm.MongeMetric(), store_parameters_in_results=True
    )
    return rm.RandomTrajectoryLength(inner, 1.0)


def compiled_groups(target, dtype):
    metric = rm.EuclideanMetric()
    return rm.RiemannianHMC(target, tf.constant(0.1, dtype), 3, metric=metric, compiled_groups=2)


def no_u_turn(metric):
    return lambda target, dtype: rm.RiemannianNUTS(target, tf.constant(0.1, dtype), metric=metric, max_tree_depth=3)


KERNELS = {
    'no-U-turn': no_u_turn(rm.DiagonalMetric()),
    'no-U-turn, separable': no_u_turn(rm.EuclideanMetric()),
    'WorstCoordinateLengthAdaptation': adapted_length,
    'RandomTrajectoryLength': random_length,
    'compiled groups': compiled_groups,
}


@DTYPES
@MODES
@pytest.mark.parametrize('name', KERNELS)
def test_kernels(name, mode, dtype):
    kernel = KERNELS[name](targets.skewed, dtype)
    assert host_operations(traced(transition(kernel), mode, tf.TensorSpec([4, 3], dtype), SEED), mode) == {}


@MODES
@pytest.mark.parametrize('kernel', [rm.ExplicitRiemannianHMC, rm.ImplicitRiemannianHMC])
def test_chains_with_defaults(kernel, mode):
    def chain(state, seed):
        return tfp.mcmc.sample_chain(
            2, state, kernel=kernel(targets.skewed, 0.1, 3), trace_fn=rm.default_trace_fn, seed=seed
        )

    assert host_operations(traced(chain, mode, tf.TensorSpec([4, 3], tf.float32), SEED), mode) == {}


@DTYPES
@MODES
@pytest.mark.parametrize('matrices', [('root', 'inverse'), ('directions', 'dual', 'mixture')])
def test_the_engine_of_sample_posterior_with_a_learned_metric(matrices, mode, dtype):
    """Two blocks, the second with a dense correlation or directions, and scales that the first sets."""
    structure = ScaleStructure(((0,), (1, 2)), ((), (0,)), (False, 'directions' in matrices))
    engine = Engine(targets.skewed, structure, 4, mode == 'xla')
    of = lambda *shape: tf.TensorSpec(shape, dtype)
    second = {'c': of(2), 'a': of(2), 'w': of(1, 2)} | {name: of(2, 2) for name in matrices}
    whole, truth = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.bool)
    arguments = ([of(4, 3)], [{'c': of(1)}, second], Tuning(*[of()] * 6), of(4), whole, SEED, truth, of())
    assert host_operations(traced(engine._transitions, mode, *arguments), mode) == {}


def test_a_keras_model_as_target():
    x, y = np.random.default_rng(0).normal(size=(2, 20, 1)).astype(np.float32)
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(3, activation='tanh'), keras.layers.Dense(1)])
    posterior = rm.keras.make_posterior(model, x, y, likelihood='gaussian', noise_scale=None)
    kernel = rm.ExplicitRiemannianHMC(posterior.target_log_prob_fn, 0.1, 2, metric=rm.MongeMetric(0.1))
    specs = [tf.TensorSpec(part.shape, part.dtype) for part in posterior.initial_state(2, seed=(1, 2))]
    for mode in DEVICES:
        assert host_operations(traced(transition(kernel), mode, specs, SEED), mode) == {}


# A dataset is read by the host; what it reads is copied to the device. All else of the sum is as above.
READING = {'AnonymousIteratorV3', 'IteratorGetNextAsOptional', 'MakeIterator'}


@pytest.mark.parametrize('name', test_data_sum.SUMS)
def test_sums_over_data(name):
    kernel = rm.ExplicitRiemannianHMC(test_data_sum.SUMS[name](), np.float64(0.1), 2, metric=rm.DiagonalMetric())
    graph = traced(transition(kernel), 'graph', tf.TensorSpec([2, 3], tf.float64), SEED)
    # The strategy names the devices of its replicas, which here are two of the CPU's.
    found = host_operations(graph, 'graph', may_name_a_cpu=name == 'replicas')
    assert {description.split('(')[0] for description in found} == (READING if name == 'batches' else set())


HOST = {  # what a graph must not hold, and what XLA cannot compile
    'a callback': (lambda x: tf.py_function(tf.sin, [x], x.dtype), 'EagerPyFunc', 'EagerPyFunc'),
    'NumPy': (lambda x: tf.numpy_function(np.sin, [x], x.dtype), 'PyFunc', 'PyFunc'),
    'strings': (lambda x: tf.strings.to_number(tf.strings.as_string(x)), 'AsString', 'AsString'),
    'a device': (lambda x: on_the_host(tf.sin)(x), 'Sin', 'Sin'),
    'a dtype': (lambda x: x * tf.cast(tf.linalg.cholesky(tf.cast(tf.eye(3), tf.half))[0], x.dtype), 'Cholesky', None),
    'not for XLA': (tf.math.special.bessel_k0, None, 'BesselK0'),
}


def on_the_host(fn):
    def run(x):
        with tf.device('CPU:0'):
            return fn(x)

    return run


@pytest.mark.parametrize('inside', ['itself', 'a loop', 'a branch'])
@pytest.mark.parametrize('name', HOST)
def test_controls(name, inside):
    """Host operations are found by name, wherever they are."""
    fn, in_graph, under_xla = HOST[name]
    wrapped = {
        'itself': fn,
        'a loop': lambda x: tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, tf.ensure_shape(fn(x), [3])), (0, x))[1],
        'a branch': lambda x: tf.cond(x[0] > 0.0, lambda: tf.ensure_shape(fn(x), [3]), lambda: x),
    }[inside]
    for mode, expected in (('graph', in_graph), ('xla', under_xla)):
        found = host_operations(traced(wrapped, mode, tf.TensorSpec([3], tf.float32)), mode)
        names = {description.split('(')[0] for description in found}
        assert expected in names if expected else names == set()
