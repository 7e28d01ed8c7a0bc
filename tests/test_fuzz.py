"""Malformed calls of everything that is public: each is refused by one sentence that names an argument, or is legitimate.

A call takes a valid set of arguments and replaces one or two of them by values of a pool: wrong types, wrong signs, numbers
that are not finite or too large, wrong shapes and dtypes, right things in wrong places. For each argument `KINDS` of the
entry says which values are legitimate; the call must succeed exactly with these. `TFP_RMHMC_FUZZ_CALLS` makes more
or fewer calls. A public name, or an argument of one, that has no entry here fails the first test.
"""

import collections
import decimal
import fractions
import inspect
import numbers
import os
import re
import signal
import warnings
import zlib

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm

tfd, tfb = tfp.distributions, tfp.bijectors

NUM_CALLS = int(os.environ.get('TFP_RMHMC_FUZZ_CALLS', '20000'))
SECONDS = 300  # after which a call hangs


class Reached(Exception):  # noqa: N818
    """Raised by a log density when it is evaluated: all arguments have been accepted, and nothing was traced before."""


class Unspeakable:
    """An object that cannot even be shown."""

    def __repr__(self):
        raise RuntimeError('no')


def gaussian(*parts):
    """The log density of one chain, for parts of any shape."""
    return -0.5 * tf.add_n([tf.reduce_sum(tf.square(part)) for part in parts])


def reaching(*parts):
    raise Reached


def dataset():
    return tf.data.Dataset.from_tensor_slices(np.ones((4, 3), np.float32)).batch(2)


KERNEL = rm.RiemannianHMC(gaussian, 0.1, 1, metric=rm.EuclideanMetric())
POOL = [
    *[None, True, False, np.bool_(True), 0, -1, 1, 2, 3, -7, 2**31, 2**33, 2**40, -(2**40), 2**70, -(2**70), 10**400],
    *[0.0, -0.0, 0.5, 1.0, 1.5, -2.5, 3.0, 1e-300, 1e300, np.nan, np.inf, -np.inf, 1j, 0.5 + 0j, complex(np.nan, 0)],
    *['', 'a', 'auto', 'fan_in', '1.0', b'x', ..., NotImplemented, object(), Unspeakable(), ValueError('x'), slice(1)],
    *[int, len, np.sin, lambda: 0, lambda *args: args, range(3), iter([]), decimal.Decimal('0.5'), type(None), super],
    *[fractions.Fraction(1, 2), [], (), {}, set(), {1}, [None], ['a'], [0.5], [0.5, -1.0], [1, 2], (1, 2), [True, False]],
    *[[[0], [1, 2]], [[1.0, 2.0], [3.0]], [np.nan], [[]], [{}], {'a': 1}, {'a': 1, 2: 3}, {'a': {'b': None}}, [[[0.5]]]],
    *[np.int64(3), np.int8(-1), np.uint64(2**63), np.float16(0.5), np.float32(0.5), np.longdouble(0.5), np.array(3)],
    *[np.array(0.5), np.array([]), np.array([0.5, 1.5]), np.array([0.5, np.nan]), np.array([1.0, -1.0]), np.ones((4, 3))],
    *[np.eye(2), np.tri(2), -np.eye(2), np.ones((2, 3)), np.zeros((2, 3, 4)), np.ones((4, 1)), np.zeros((0, 3))],
    *[np.array([[0.5]]), np.array([None]), np.array(['a']), np.array([1j]), np.array([True]), np.eye(2, dtype=bool)],
    *[np.array([object(), 1], object), np.datetime64('2020-01-01'), np.timedelta64(1, 's'), np.ma.masked, tf.float32],
    *[tf.constant(0.5), tf.constant(2), tf.constant(-1.0), tf.constant(np.nan), tf.constant('a'), tf.constant(1j)],
    *[tf.constant(True), tf.constant([0.5, 1.5]), tf.constant([1, 2]), tf.ones([2, 2, 2]), tf.cast(0.5, tf.bfloat16)],
    *[tf.zeros([0]), tf.Variable(0.5), tf.Variable(3), tf.Variable('a'), tf.Variable([0.5, 1.5]), np.dtype('float32')],
    *[tf.ragged.constant([[1.0], [2.0, 3.0]]), tf.sparse.from_dense([0.0, 1.0]), tf.TensorSpec([2]), tf.TensorShape([2])],
    *[dataset(), tf.distribute.get_strategy(), rm.MongeMetric(), rm.EuclideanMetric(), rm.TaoBinding(), KERNEL, rm],
    *[
        rm.GeneralizedLeapfrog(),
        tfb.Exp(),
        tfd.Normal(0.0, 1.0),
        rm.MongeMetric,
        collections.namedtuple('P', 'a b')(0.5, 1.5),
    ],
    memoryview(b'abc'),
]

# What is legitimate: True if the call must succeed, False if it must be refused, None if either will do, SKIP if the call
# would come to a function of the user's that does what it likes.
SKIP = object()


def numbers_of(value):
    """The value as an array of real numbers; None if it is not made of these."""
    if tf.is_tensor(value) or isinstance(value, tf.Variable):
        is_dense = isinstance(value, (tf.Tensor, tf.Variable))
        return value.numpy() if is_dense and (value.dtype.is_floating or value.dtype.is_integer) else None
    try:
        array = np.asarray(value)
    except Exception:
        return None
    return array if array.dtype.kind in 'fiu' and array.dtype.itemsize <= 8 else None


def real(is_good, max_rank=0):
    def kind(value):
        array = numbers_of(value)
        if array is None or array.ndim > max_rank or array.size == 0:
            return False
        is_legal = bool(np.all(is_good(array.astype(np.float64))))
        return None if isinstance(value, tf.Variable) else is_legal  # a variable's value is a matter of run time

    return kind


positive = real(lambda x: (x > 0) & (x < np.inf))
positive_or_infinite = real(lambda x: x > 0)
non_negative = real(lambda x: (x >= 0) & (x < np.inf))
share = real(lambda x: (x > 0) & (x < 1))
positive_in_single = real(lambda x: (x > 1e-30) & (x < 1e30), max_rank=1)
positives = real(lambda x: (x > 0) & (x < np.inf), max_rank=1)
anything = lambda value: None
nothing = lambda value: False
function = lambda value: callable(value) and not isinstance(value, (type, np.ufunc))
flag = lambda value: isinstance(value, (bool, np.bool_))
name = lambda value: value is None or isinstance(value, str)
path = lambda value: isinstance(value, (str, os.PathLike))


def is_integral(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.timedelta64))


def integer(least, most=2**31 - 1):
    return lambda value: is_integral(value) and least <= int(value) <= most


def lists(value):
    """Perhaps lists of what is asked for."""
    is_list = isinstance(value, (list, tuple)) and all(isinstance(entry, (list, tuple)) for entry in value)
    return None if is_list or getattr(value, 'ndim', 0) == 2 else False


def optional(kind):
    return lambda value: True if value is None else kind(value)


def one_of(*choices):
    return lambda value: isinstance(value, str) and value in choices


def instance(*types):
    return lambda value: isinstance(value, types)


def moderate(kind):
    """Numbers that single precision does not hold are refused in one way or another."""
    return lambda value: None if kind(value) and not positive_in_single(value) else kind(value)


def called(kind):
    """Of an argument that is called at once."""
    return lambda value: SKIP if callable(value) else kind(value)


def precision(value):
    array = numbers_of(value)
    if array is None or array.ndim < 2:
        return positives(value)
    if (
        array.ndim > 2
        or array.shape[0] != array.shape[1]
        or not np.isfinite(array).all()
        or not np.array_equal(array, array.T)
    ):
        return False
    return bool(np.linalg.eigvalsh(array.astype(float)).min() > 0)


def mean(value):
    """Of a Gaussian: a scalar, a vector, or state parts."""
    if isinstance(value, (list, tuple)):
        return None
    found = real(np.isfinite, max_rank=1)(value)
    return False if isinstance(value, tf.Variable) else found


def matrix(value):
    array = numbers_of(value)
    return array is not None and array.ndim == 2 and array.size > 0 and bool(np.isfinite(array).all())


def step_size(value):
    steps = value if isinstance(value, (list, tuple)) else [value]
    found = [real(lambda x: (x >= 0) & (x < np.inf), max_rank=9)(step) for step in steps]
    return False if not steps or False in found else None if None in found else True


def num_steps(value):
    array = numbers_of(value)
    if isinstance(value, tf.Variable):
        return None if array is not None else False
    return array is not None and array.ndim == 0 and bool(1 <= array <= 10**8) and float(array).is_integer()


def angle(value):
    return None if real(np.isfinite)(value) in (True, None) else False  # depends on the stiffness


def matrices(value):
    return value is None or (
        isinstance(value, (list, tuple)) and len(value) > 0 and all(c is None or matrix(c) for c in value)
    )


def blocks(value):
    return value is None or (isinstance(value, list) and value == [[0], [1, 2]])


def shard_axes(value):
    if isinstance(value, (list, tuple)):
        return all(map(shard_axes, value))
    if isinstance(value, dict):
        return len({type(key) for key in value}) < 2 and all(map(shard_axes, value.values()))
    return value is None or isinstance(value, str)


def seed(value):
    if value is None:
        return True
    if is_integral(value):
        return -(2**61) <= int(value) < 2**61
    array = numbers_of(value)
    return array is not None and array.shape == (2,) and array.dtype.kind in 'iu'


def state(value):
    """A tensor or a flat list of tensors, of float32 or float64."""
    if isinstance(value, (list, tuple)):
        parts = value
        if any(isinstance(part, (list, tuple, dict)) for part in parts):
            return False
    else:
        parts = [value]
    try:
        tensors = [tf.convert_to_tensor(part) for part in parts]
    except Exception:
        return False
    dtypes = {tensor.dtype for tensor in tensors}
    is_full = all(tensor.shape.num_elements() for tensor in tensors)
    return len(dtypes) == 1 and dtypes <= {tf.float32, tf.float64} and is_full


def step_of_the_state(value):
    """A step size that fits a state of shape [2, 3]."""
    if step_size(value) is False:
        return False
    steps = value if isinstance(value, (list, tuple)) else [value]
    shapes = [np.shape(numbers_of(step)) for step in steps]
    fits = len(steps) == 1 and shapes[0] in [(), (1,), (3,), (1, 1), (2, 1), (1, 3), (2, 3)]
    return step_size(value) if fits else False


def start_of_four(value):
    """State parts of four chains, for a log density."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    arrays = [numbers_of(part) for part in parts]
    is_good = parts and all(
        x is not None and x.ndim and x.shape[0] == 4 and x.dtype in (np.float32, np.float64) for x in arrays
    )
    return bool(is_good) and len({x.dtype for x in arrays}) == 1 and all(np.isfinite(x).all() for x in arrays)


def inputs_of_three(value):
    return None if np.shape(numbers_of(value))[1:] == (3,) and np.size(numbers_of(value)) else False


def targets_of_four(value):
    array = numbers_of(value)
    return None if array is not None or flag_array(value) else False if np.shape(array) not in [(4,), (4, 1)] else None


def flag_array(value):
    return (
        np.asarray(value).dtype == bool if isinstance(value, np.ndarray) else tf.is_tensor(value) and value.dtype == tf.bool
    )


class Entry:
    """A public callable with valid arguments and their kinds.

    With `alone` arguments are replaced one at a time, because what one may be depends on the other.
    """

    def __init__(self, call, valid, kinds, weight=1.0, signature_of=None, alone=False):
        self.call, self.valid, self.kinds, self.weight, self.alone = call, valid, kinds, weight, alone
        self.signature = inspect.signature(signature_of or call)


X, Y = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), np.linspace(-1, 1, 4, dtype=np.float32)


def posterior():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    return model, rm.keras.make_posterior(model, X, Y)


MODEL, POSTERIOR = posterior()
DRAWS = POSTERIOR.initial_state(4)
PREDICTIVE = POSTERIOR.predict(DRAWS, X)
STATE = tf.ones([2, 3])
LOCAL = rm.EuclideanMetric().at(rm.LogDensity.at_state(gaussian, [STATE]), tf.ones([6]))
TRACE = np.zeros((8, 4))
RESULT = rm.PosteriorDraws(
    TRACE, {'lp': TRACE, 'energy': TRACE}, {}, ['x'], {}, extend_fn=lambda num_draws, progress: num_draws
)
JOINT = tfd.JointDistributionNamed({'a': tfd.Normal(0.0, 1.0), 'b': lambda a: tfd.Normal(a, 1.0)})

SOLVER = (
    {},
    {
        'tolerance': optional(positive),
        'max_iterations': integer(1),
        'order': lambda value: is_integral(value) and value in (2, 4),
        'reversibility_tolerance': optional(positive_or_infinite),
    },
)
ORDER = {'order': SOLVER[1]['order']}


def kernel_entry(cls, integrator_name='integrator', integrators=(rm.Integrator,), **more):
    valid = {'target_log_prob_fn': gaussian, 'step_size': 0.1, 'metric': rm.MongeMetric()} | more.pop('valid', {})
    kinds = {
        'target_log_prob_fn': function,
        'step_size': step_size,
        'metric': optional(instance(rm.Metric)),
        integrator_name: optional(instance(*integrators)),
        'experimental_shard_axis_names': shard_axes,
        'name': name,
    }
    return Entry(cls, valid, kinds | more, weight=1.0)


def fixed_length_entry(cls, integrator_name='integrator', integrators=(rm.Integrator,)):
    more = {
        'num_leapfrog_steps': num_steps,
        'state_gradients_are_stopped': flag,
        'store_parameters_in_results': flag,
        'compiled_groups': optional(integer(1)),
    }
    return kernel_entry(cls, integrator_name, integrators, valid={'num_leapfrog_steps': 2}, **more)


def bootstrapped(cls, **fixed):
    def call(init_state, step_size):
        return cls(gaussian, step_size, metric=rm.EuclideanMetric(), **fixed).bootstrap_results(init_state)

    return Entry(
        call, {'init_state': STATE, 'step_size': 0.1}, {'init_state': state, 'step_size': step_of_the_state}, alone=True
    )


def one_step(seed):
    results = KERNEL.bootstrap_results(STATE)
    return KERNEL.one_step(STATE, results, seed=seed)


def kernel_seed(value):
    if is_integral(value):
        return -(2**31) <= int(value) < 2**31
    return seed(value)


ENTRIES = {
    'DiagonalMetric': Entry(rm.DiagonalMetric, {}, {'offset': positives, 'diagonal_fn': optional(function)}),
    'EuclideanMetric': Entry(rm.EuclideanMetric, {}, {'mass': optional(precision)}),
    'FisherMetric': Entry(rm.FisherMetric, {'fisher_fn': gaussian}, {'fisher_fn': function}),
    'GaussNewtonMetric': Entry(
        rm.GaussNewtonMetric,
        {'output_fn': gaussian},
        {
            'output_fn': lambda value: True if callable(value) else matrix(value),
            'likelihood': lambda value: callable(value),
            'prior_precision': precision,
            'data': optional(nothing),
        },
    ),
    'GaussNewtonMetric.of_design': Entry(
        rm.GaussNewtonMetric.of_design,
        {'design': np.ones((2, 3))},
        {'design': matrix, 'likelihood': lambda value: callable(value), 'prior_precision': precision},
    ),
    'HessianMetric': Entry(rm.HessianMetric, {}, {}),
    'MongeMetric': Entry(rm.MongeMetric, {}, {'alpha': positive}),
    'PullbackMetric': Entry(
        rm.PullbackMetric,
        {'metric': rm.EuclideanMetric(), 'bijector': tfb.Exp()},
        {'metric': instance(rm.EuclideanMetric), 'bijector': instance(tfb.Bijector)},
    ),
    'SeparableMetric': Entry(
        rm.SeparableMetric,
        {'log_scale_fn': gaussian},
        {'log_scale_fn': function, 'correlation': matrices, 'directions': matrices, 'blocks': blocks},
    ),
    'SeparableMetric.from_prior': Entry(
        rm.SeparableMetric.from_prior,
        {'model': JOINT, 'b': 0.5},
        {
            'model': nothing,
            'b': lambda value: None if numbers_of(value) is not None or flag(value) or flag_array(value) else False,
            'pins': anything,
        },
        weight=0.2,
    ),
    'SeparableMetric.learn': Entry(
        rm.SeparableMetric.learn,
        {'draws': np.arange(24.0).reshape(12, 2) % 7.0, 'scores': np.arange(24.0).reshape(12, 2) % 5.0},
        {'draws': nothing, 'scores': nothing, 'setters': optional(lists)},
    ),
    'SoftAbsMetric': Entry(rm.SoftAbsMetric, {}, {'alpha': positive, 'structure': optional(one_of('arrowhead'))}),
    'GeneralizedLeapfrog': Entry(rm.GeneralizedLeapfrog, *SOLVER),
    'ImplicitMidpoint': Entry(rm.ImplicitMidpoint, *SOLVER),
    'SymmetricProjection': Entry(rm.SymmetricProjection, *SOLVER),
    'MetricCoupling': Entry(
        rm.MetricCoupling,
        {},
        {
            'angle': angle,
            'slack': positive,
            'stiffness': lambda value: None if positive(value) else positive(value),
            'max_rate': positive_or_infinite,
        },
    ),
    'SeparableLeapfrog': Entry(rm.SeparableLeapfrog, {}, ORDER),
    'Lagrangian': Entry(rm.Lagrangian, {}, ORDER),
    'GaussianSplit': Entry(
        rm.GaussianSplit,
        {'mean': 0.0, 'precision': 1.0},
        {'mean': mean, 'precision': lambda value: None if value is None else precision(value), 'covariance': anything}
        | ORDER,
    ),
    'Hierarchical': Entry(
        rm.keras.Hierarchical,
        {},
        {
            'groups': lambda value: isinstance(value, dict) or one_of('kernel', 'layer', 'input')(value),
            'scales': anything,
            'deviation': positive,
        },
    ),
    'TaoBinding': Entry(rm.TaoBinding, {}, {'omega': non_negative, 'slack': optional(positive)} | ORDER),
    'RiemannianHMC': fixed_length_entry(rm.RiemannianHMC),
    'UncalibratedRiemannianHMC': fixed_length_entry(rm.UncalibratedRiemannianHMC),
    'ExplicitRiemannianHMC': fixed_length_entry(rm.ExplicitRiemannianHMC, 'coupling', (rm.TaoBinding,)),
    'UncalibratedExplicitRiemannianHMC': fixed_length_entry(
        rm.UncalibratedExplicitRiemannianHMC, 'coupling', (rm.TaoBinding,)
    ),
    'ImplicitRiemannianHMC': fixed_length_entry(rm.ImplicitRiemannianHMC, 'integrator', (rm.GeneralizedLeapfrog,)),
    'UncalibratedImplicitRiemannianHMC': fixed_length_entry(
        rm.UncalibratedImplicitRiemannianHMC, 'integrator', (rm.GeneralizedLeapfrog,)
    ),
    'RiemannianNUTS': kernel_entry(
        rm.RiemannianNUTS,
        'integrator',
        (rm.GeneralizedLeapfrog,),
        max_tree_depth=integer(1, 24),
        max_energy_diff=positive,
        unrolled_leapfrog_steps=optional(integer(1)),
    ),
    'RiemannianHMC.bootstrap_results': bootstrapped(rm.RiemannianHMC, num_leapfrog_steps=1),
    'RiemannianHMC.bootstrap_results, stored': bootstrapped(
        rm.RiemannianHMC, num_leapfrog_steps=1, store_parameters_in_results=True
    ),
    'RiemannianNUTS.bootstrap_results': bootstrapped(rm.RiemannianNUTS),
    'RiemannianHMC.one_step': Entry(one_step, {'seed': (1, 2)}, {'seed': kernel_seed}, weight=0.2),
    'RandomTrajectoryLength': Entry(
        rm.RandomTrajectoryLength,
        {'inner_kernel': KERNEL, 'mean_length': 1.0},
        {'inner_kernel': instance(tfp.mcmc.TransitionKernel), 'mean_length': positive, 'max_steps': integer(1)},
    ),
    'WorstCoordinateLengthAdaptation': Entry(
        rm.WorstCoordinateLengthAdaptation,
        {'inner_kernel': KERNEL, 'num_adaptation_steps': 10},
        {
            'inner_kernel': instance(tfp.mcmc.TransitionKernel),
            'num_adaptation_steps': integer(0),
            'initial_length': positive,
            'max_steps': integer(1),
        },
    ),
    'SumOverBatches': Entry(
        rm.SumOverBatches,
        {'term_fn': gaussian, 'dataset': dataset()},
        {'term_fn': function, 'dataset': instance(tf.data.Dataset), 'base_fn': optional(function)},
    ),
    'SumOverReplicas': Entry(
        rm.SumOverReplicas,
        {'term_fn': gaussian, 'values': 1, 'strategy': tf.distribute.get_strategy()},
        {
            'term_fn': function,
            'values': lambda value: True,  # whatever the term takes
            'strategy': instance(tf.distribute.Strategy),
            'base_fn': optional(function),
        },
    ),
    'LogDensity': Entry(
        rm.LogDensity,
        {'target_log_prob_fn': gaussian, 'layout': rm.LogDensity.at_state(gaussian, [STATE]).layout},
        {'target_log_prob_fn': function, 'layout': nothing},
    ),
    'Hamiltonian': Entry(
        rm.Hamiltonian,
        {'density': rm.LogDensity.at_state(gaussian, [STATE]), 'metric': rm.MongeMetric()},
        {'density': nothing, 'metric': instance(rm.Metric)},
    ),
    'LocalHamiltonian': Entry(
        rm.LocalHamiltonian, {'local_metric': LOCAL}, {'local_metric': nothing, 'follows_curvature': flag}
    ),
    'default_trace_fn': Entry(
        rm.default_trace_fn,
        {'state': STATE, 'kernel_results': KERNEL.bootstrap_results(STATE)},
        {'state': lambda value: True, 'kernel_results': nothing},
    ),
    'initial_velocity_getter_fn': Entry(
        rm.initial_velocity_getter_fn, {'kernel_results': KERNEL.bootstrap_results(STATE)}, {'kernel_results': nothing}
    ),
    'proposed_velocity_getter_fn': Entry(
        rm.proposed_velocity_getter_fn, {'kernel_results': KERNEL.bootstrap_results(STATE)}, {'kernel_results': nothing}
    ),
    'prefers_xla': Entry(
        rm.prefers_xla,
        {'target_log_prob_fn': reaching, 'current_state': STATE},
        {'target_log_prob_fn': called(nothing), 'current_state': state, 'metric': optional(instance(rm.Metric))},
    ),
    'sample_posterior': Entry(
        rm.sample_posterior,
        {'num_draws': 10, 'model': reaching, 'initial_state': np.ones((4, 2))},
        {
            'num_draws': integer(1),
            'model': called(nothing),
            'num_chains': lambda value: None if integer(1)(value) else False,  # the state has four
            'kernel': one_of('auto', 'explicit', 'implicit', 'rnuts', 'hmc', 'nuts'),
            'metric': optional(instance(rm.Metric)),
            'initial_state': start_of_four,
            'num_burnin': optional(integer(0)),
            'num_adaptation': optional(integer(0)),
            'step_size': optional(positive),
            'target_accept_prob': optional(share),
            'trajectory_length': optional(positive),
            'target_ess': optional(positive),
            'seed': seed,
            'jit_compile': optional(flag),
            'chunk_size': integer(1),
            'progress': optional(flag),
            'checkpoint_dir': optional(path),
            'bijector': lambda value: None if isinstance(value, (list, tuple, dict, tfb.Bijector)) else value is None,
            'names': lambda value: (
                value is None or (isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], str))
            ),
            'pins': nothing,
        },
        weight=3.0,
    ),
    'PosteriorDraws.load': Entry(rm.PosteriorDraws.load, {'path': 'x'}, {'path': nothing}),
    'PosteriorDraws.save': Entry(RESULT.save, {'path': 'x'}, {'path': lambda value: path(value) and value != ''}),
    'PosteriorDraws.extend': Entry(RESULT.extend, {'num_draws': 3}, {'num_draws': integer(1), 'progress': optional(flag)}),
    'make_posterior': Entry(
        rm.keras.make_posterior,
        {'model': MODEL, 'x': X, 'y': Y},
        {
            'model': nothing,
            'x': inputs_of_three,
            'y': targets_of_four,
            'likelihood': called(nothing),
            'prior': lambda value: (
                True if function(value) or one_of('fan_in', 'hierarchical')(value) else positives_of(value)
            ),
            'noise_scale': optional(moderate(positive)),
            'batch_size': optional(integer(1)),
        },
        weight=0.5,
    ),
    'KerasPosterior': Entry(
        rm.keras.KerasPosterior,
        {'network': POSTERIOR._network, 'likelihood': POSTERIOR._likelihood, 'prior': POSTERIOR._prior, 'data': (X, Y)},
        {
            'network': nothing,
            'likelihood': nothing,
            'prior': nothing,
            'data': lambda value: None if isinstance(value, (tuple, tf.data.Dataset)) else False,
        },
    ),
    'KerasPosterior.initial_state': Entry(
        POSTERIOR.initial_state,
        {},
        {'num_chains': optional(integer(1)), 'seed': seed, 'from_prior': flag, 'jitter': optional(non_negative)},
    ),
    'KerasPosterior.gauss_newton_metric': Entry(
        POSTERIOR.gauss_newton_metric, {}, {'prior_precision': optional(precision)}
    ),
    'KerasPosterior.predict': Entry(
        POSTERIOR.predict,
        {'draws': DRAWS, 'x': X},
        {'draws': nothing, 'x': inputs_of_three, 'batch_size': integer(1)},
    ),
    'KerasPosterior.load': Entry(
        POSTERIOR.load,
        {'draw': POSTERIOR.initial_state(), 'model': MODEL},
        {'draw': nothing, 'model': nothing},
    ),
    'Predictive': Entry(
        rm.keras.Predictive,
        {'outputs_fn': gaussian, 'likelihood': POSTERIOR._likelihood, 'draws': [np.ones((4, 2))], 'batch_size': 2},
        {'outputs_fn': function, 'likelihood': nothing, 'draws': lambda value: None, 'batch_size': integer(1)},
    ),
    'Predictive.log_prob': Entry(PREDICTIVE.log_prob, {'y': Y}, {'y': targets_of_four}, weight=0.2),
}


def positives_of(value):
    """Scales of the kernel [3, 1] and the bias [1]: numbers, in a list of two, or by name."""
    if isinstance(value, (list, tuple)):
        return len(value) == 2 and all(np.size(numbers_of(part)) == 1 and positive_in_single(part) for part in value)
    if isinstance(value, dict):
        return not value
    array = numbers_of(value)
    return positive_in_single(value) and array.size == 1 if array is not None else False


# Tuples of tensors and the like, which hold what they are given and look at none of it.
RECORDS = {'Evaluation', 'Ledger', 'Leg', 'LocalMetric', 'PhasePoint', 'Point', 'PosteriorDraws', 'Proposal', 'Slope'}
# Of which there are no instances, an enumeration of Python's own, a string and a module.
OTHERS = {'DenseMetric', 'Factor', 'Integrator', 'Metric', 'Status', '__version__', 'keras'}


def test_everything_public_has_an_entry():
    entries = {key.split('.')[0].split(',')[0] for key in ENTRIES}
    assert set(rm.__all__) | set(rm.keras.__all__) == entries | RECORDS | OTHERS
    for key, entry in ENTRIES.items():
        arguments = set(entry.signature.parameters)
        assert arguments <= set(entry.kinds), f'{key} has arguments of which no kind is known'
        assert all(parameter in entry.valid or parameter in entry.kinds for parameter in arguments)


def verdict(entry, changed):
    """What the kinds say of a call, see `SKIP`, and the arguments that must be refused."""
    found = {argument: entry.kinds[argument](value) for argument, value in changed.items()}
    if any(answer is SKIP for answer in found.values()):
        return SKIP, set()
    wrong = {argument for argument, answer in found.items() if answer is False}
    open_ones = {argument for argument, answer in found.items() if answer is None}
    if wrong:
        return False, wrong | open_ones
    return (None if open_ones else True), set()


def complaint(key, entry, changed):
    """What is wrong with the way in which a call ends; None if nothing is."""
    expected, wrong = verdict(entry, changed)
    if expected is SKIP:
        return None
    arguments = entry.valid | changed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', UserWarning)
            entry.call(**arguments)
    except Reached:
        error = None
    except Exception as caught:
        error = caught
    else:
        error = None
    if error is None:
        return 'went through' if expected is False else None
    if expected is True:
        return f'is legitimate, but raised {type(error).__name__}: {error}'
    text = str(error)
    named = set(re.findall(r'`(\w+)(?:\[\d+\])?`', text))
    is_sentence = type(error) in (TypeError, ValueError) and '\n' not in text and text.endswith('.') and 'got' in text
    if is_sentence and named & (wrong or set(entry.kinds) | {'current_state'}):
        return None
    return f'raised an obscure {type(error).__name__}: {text[:300]}'


def calls_of(key):
    """So many calls of an entry, each a dict of replaced arguments."""
    entry = ENTRIES[key]
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    total = sum(entry.weight * len(entry.kinds) ** 0.5 for entry in ENTRIES.values())
    num = int(np.ceil(NUM_CALLS * entry.weight * len(entry.kinds) ** 0.5 / total)) if entry.kinds else 0
    arguments = sorted(set(entry.kinds) - {'pins'})
    pairs = [(argument, i) for argument in arguments for i in range(len(POOL))]
    order = rng.permutation(len(pairs)) if pairs else []
    for i in range(num):
        first = pairs[order[i % len(pairs)]]
        chosen = [first]
        if not entry.alone and (
            i >= len(pairs) or rng.random() < 0.2
        ):  # two at once, and as soon as all single ones were tried
            chosen.append(pairs[rng.integers(len(pairs))])
        yield {argument: POOL[index] for argument, index in chosen}


def test_there_are_as_many_calls_as_asked_for():
    assert sum(len(list(calls_of(key))) for key in ENTRIES) >= NUM_CALLS


@pytest.mark.parametrize('key', ENTRIES)
def test_malformed_calls_are_refused_by_one_sentence(key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where files may be written
    entry = ENTRIES[key]
    found = []

    def hang(*_):
        raise TimeoutError('the call hangs')

    previous = signal.signal(signal.SIGALRM, hang)
    try:
        for changed in calls_of(key):
            signal.alarm(SECONDS)
            problem = complaint(key, entry, changed)
            if problem is not None:
                shown = ', '.join(f'{argument}={said(value)}' for argument, value in changed.items())
                found.append(f'{key}({shown}) {problem}')
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    assert not found, '\n'.join(found)


def said(value):
    return 'Unspeakable()' if isinstance(value, Unspeakable) else repr(value)[:80]


@pytest.mark.parametrize('key', ['MongeMetric', 'sample_posterior', 'RiemannianHMC.bootstrap_results'])
def test_a_call_that_goes_wrong_would_be_seen(key):
    """The controls: nonsense that goes through, an obscure error, a legitimate call that is refused."""
    argument = next(iter(ENTRIES[key].kinds))
    bad, good = POOL[POOL.index('a')], ENTRIES[key].valid.get(argument, 1.0)

    def complaints(call, kinds):
        entry = Entry(call, ENTRIES[key].valid, ENTRIES[key].kinds | kinds, signature_of=len)
        return complaint(key, entry, {argument: good if kinds else bad})

    def obscure(**_):
        raise AttributeError("'str' object has no attribute 'dtype'.")

    def strict(**_):
        raise ValueError(f'`{argument}` must be something else, got 1.')

    assert complaints(lambda **_: None, {}) == 'went through'
    assert 'obscure' in complaints(obscure, {})
    assert 'is legitimate' in complaints(strict, {argument: lambda value: True})
