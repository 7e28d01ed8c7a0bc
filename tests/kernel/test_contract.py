"""What TFP asks of a kernel, clause by clause."""

import inspect
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.conftest import compiled_variants
from tests.integrator.registry import DEFAULTS, flow, metric_for, num_blocks

CALIBRATED = [rm.RiemannianHMC, rm.ExplicitRiemannianHMC, rm.ImplicitRiemannianHMC]
CLASSES = [
    *CALIBRATED,
    rm.UncalibratedRiemannianHMC,
    rm.UncalibratedExplicitRiemannianHMC,
    rm.UncalibratedImplicitRiemannianHMC,
]
METRIC = rm.DiagonalMetric(diagonal_fn=lambda q, g: 1.0 + tf.sigmoid(q))


def make(cls, step_size=0.2, num_leapfrog_steps=3, **kwargs):
    kwargs.setdefault('metric', METRIC)
    return cls(targets.skewed, step_size, num_leapfrog_steps, **kwargs)


def skewed_of_parts(x, y):
    return targets.skewed(x) + targets.skewed(y)


def inner(results):
    return getattr(results, 'proposed_results', results)


@pytest.mark.parametrize('cls', CLASSES)
def test_parameters_are_the_constructor_s_arguments_and_copy_uses_them(cls):
    kernel = make(cls, store_parameters_in_results=True, name='mine')
    assert set(kernel.parameters) == set(inspect.signature(cls).parameters)
    assert kernel.parameters['step_size'] == 0.2
    assert kernel.parameters['metric'] is METRIC
    again = type(kernel)(**kernel.parameters)
    other = kernel.copy(step_size=0.7, target_log_prob_fn=targets.gaussian)
    assert again.parameters == kernel.parameters
    assert other.step_size == 0.7
    assert other.target_log_prob_fn is targets.gaussian
    assert other.parameters['name'] == other.name == 'mine'
    assert 'inner_kernel' not in kernel.parameters
    assert not hasattr(kernel, 'inner_kernel')


@pytest.mark.parametrize('cls', CLASSES)
def test_first_arguments_are_hmc_s(cls):
    expected = list(inspect.signature(tfp.mcmc.HamiltonianMonteCarlo).parameters)[:3]
    assert list(inspect.signature(cls).parameters)[:3] == expected


def test_calibration_is_said():
    assert make(rm.ExplicitRiemannianHMC).is_calibrated
    assert make(rm.ImplicitRiemannianHMC).is_calibrated
    assert make(rm.ExplicitRiemannianHMC, coupling=rm.TaoBinding(1.0, slack=0.2)).is_calibrated
    assert not make(rm.ExplicitRiemannianHMC, coupling=rm.TaoBinding(1.0)).is_calibrated
    assert not make(rm.UncalibratedExplicitRiemannianHMC).is_calibrated
    with pytest.warns(UserWarning, match='not calibrated'):
        tfp.mcmc.sample_chain(
            2,
            tf.zeros([1, 2], tf.float64),
            kernel=make(rm.ExplicitRiemannianHMC, coupling=rm.TaoBinding(1.0)),
            trace_fn=None,
        )


@pytest.mark.parametrize('cls', CLASSES)
def test_results_have_hmc_s_fields_and_ours(cls):
    q = tf.constant(targets.skewed_draws(4, 3))
    results = make(cls).bootstrap_results(q)
    fields = set((results.accepted_results if cls in CALIBRATED else results)._fields)
    hmc = tfp.mcmc.UncalibratedHamiltonianMonteCarlo(targets.skewed, np.float64(0.1), 2).bootstrap_results(q)
    assert set(hmc._fields) <= fields
    ours = {'status', 'has_divergence', 'initial_velocity', 'final_velocity', 'solver_iterations', 'solver_residual'}
    assert ours | {'num_metric_evaluations'} <= fields
    shadowing = {
        'log_accept_ratio',
        'is_accepted',
        'proposed_state',
        'new_step_size',
        'inner_results',
        'momentum_distribution',
    }
    assert not shadowing & fields


@pytest.mark.parametrize(
    ('batch', 'dtype', 'store'),
    [((), tf.float32, True), ((5,), tf.float64, False), ((5,), tf.float32, False), ((2, 3), tf.float64, True)],
)
@pytest.mark.parametrize('cls', CLASSES)
def test_structure_dtype_and_static_shape_are_kept(cls, batch, dtype, store):
    """`bootstrap_results` and `one_step` agree in everything a while loop looks at."""
    kernel = cls(skewed_of_parts, tf.constant(0.1, dtype), 2, metric=METRIC, store_parameters_in_results=store)
    state = [tf.zeros((*batch, 2), dtype), tf.ones((*batch, 3), dtype)]

    @tf.function(autograph=False)
    def check(x, y):
        first = kernel.bootstrap_results([x, y])
        next_state, second = kernel.one_step([x, y], first, seed=tf.constant([1, 2]))
        assert isinstance(next_state, list)
        for a, b in zip(next_state, state, strict=True):
            assert a.shape == b.shape
            assert a.dtype == dtype
        tf.nest.assert_same_structure(first, second)
        for a, b in zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
        return inner(second).target_log_prob

    assert check(*state).shape == batch


@pytest.mark.parametrize('cls', CLASSES)
def test_tuples_stay_tuples_and_tensors_tensors(cls):
    kernel = cls(skewed_of_parts, 0.1, 2, metric=METRIC)
    state = (tf.zeros([2]), tf.zeros([3]))
    next_state, _ = kernel.one_step(state, kernel.bootstrap_results(state), seed=1)
    assert isinstance(next_state, tuple)
    single = make(cls)
    q = tf.zeros([4, 3])
    next_state, _ = single.one_step(q, single.bootstrap_results(q), seed=1)
    assert tf.is_tensor(next_state)


@pytest.mark.parametrize('cls', CLASSES)
def test_parts_and_their_concatenation_give_the_same_transition(cls):
    flat_kernel = cls(lambda q: skewed_of_parts(q[..., :2], tf.reshape(q[..., 2:], [-1, 3])), 0.2, 3)
    kernel = cls(lambda x, y: skewed_of_parts(x, y), 0.2, 3)
    q = targets.skewed_draws(4, 5)
    parts = [tf.constant(q[:, :2]), tf.constant(q[:, 2:])]
    flat_state, _ = flat_kernel.one_step(q, flat_kernel.bootstrap_results(q), seed=(1, 2))
    state, _ = kernel.one_step(parts, kernel.bootstrap_results(parts), seed=(1, 2))
    np.testing.assert_allclose(tf.concat(state, axis=-1), flat_state, rtol=1e-10)


@pytest.mark.parametrize('cls', CALIBRATED)
def test_zero_step_size_accepts_everything_and_moves_nothing(cls):
    kernel = make(cls, step_size=tf.constant(0.0, tf.float64), metric=rm.SoftAbsMetric())
    q = tf.constant(targets.skewed_draws(50, 3))
    state, results = kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))
    np.testing.assert_array_equal(state, q)
    np.testing.assert_allclose(results.log_accept_ratio, np.zeros(50), atol=1e-9)
    assert np.all(results.is_accepted)


@pytest.mark.parametrize('cls', CLASSES)
def test_step_sizes_of_every_form_give_what_they_say(cls):
    """A scalar, the same per chain, per coordinate and per part: the same transition; and a chain with step 0 stays."""
    parts = [tf.constant(targets.skewed_draws(4, 2)), tf.constant(targets.skewed_draws(4, 3, seed=1))]

    def one(step_size):
        kernel = cls(skewed_of_parts, step_size, 3, metric=METRIC)
        state, results = kernel.one_step(parts, kernel.bootstrap_results(parts), seed=(3, 4))
        return np.concatenate([s.numpy() for s in getattr(results, 'proposed_state', state)], axis=1)

    scalar = one(0.2)
    assert np.abs(scalar - np.concatenate(parts, axis=1)).max() > 0.1
    for same in ([0.2, 0.2], [np.full((4, 1), 0.2), 0.2], [np.full(2, 0.2), np.full((4, 3), 0.2)], [0.2]):
        np.testing.assert_allclose(one(same), scalar, rtol=1e-10)
    per_chain = np.array([[0.2], [0.0], [0.2], [0.1]])
    got = one([per_chain, per_chain])
    np.testing.assert_allclose(got[[0, 2]], scalar[[0, 2]], rtol=1e-9)
    np.testing.assert_array_equal(got[1], np.concatenate(parts, axis=1)[1])


@pytest.mark.parametrize('cls', CLASSES)
def test_stored_parameters_are_the_ones_used(cls):
    q = tf.constant(targets.skewed_draws(4, 3))
    plain = make(cls, step_size=0.3, num_leapfrog_steps=5)
    stored = make(cls, step_size=0.1, num_leapfrog_steps=2, store_parameters_in_results=True)
    results = stored.bootstrap_results(q)
    target = results.accepted_results if cls in CALIBRATED else results
    assert target.step_size.dtype == tf.float64
    assert target.num_leapfrog_steps.dtype == tf.int32
    changed = target._replace(step_size=tf.constant(0.3, tf.float64), num_leapfrog_steps=tf.constant(5))
    results = results._replace(accepted_results=changed) if cls in CALIBRATED else changed
    state, results = stored.one_step(q, results, seed=(1, 2))
    expected, expected_results = plain.one_step(q, plain.bootstrap_results(q), seed=(1, 2))
    np.testing.assert_allclose(state, expected, rtol=1e-12)
    assert inner(expected_results).step_size == []
    assert inner(results).step_size is changed.step_size
    listed = cls(skewed_of_parts, [0.1, 0.2], 2, metric=METRIC, store_parameters_in_results=True)
    results = listed.bootstrap_results([q, q])
    assert len(inner(results).step_size) == 2


@pytest.mark.parametrize('step_size', [tf.constant(0.1, tf.float64), np.array([0.1, 0.2, 0.3]), 1], ids=str)
def test_a_step_size_of_another_dtype_is_the_same_stored_or_not(step_size):
    q = tf.constant(targets.skewed_draws(4, 3), tf.float32)

    def one(**kwargs):
        kernel = rm.RiemannianHMC(targets.skewed, step_size, 2, metric=rm.EuclideanMetric(), **kwargs)
        return kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))

    state, _ = one()
    stored, results = one(store_parameters_in_results=True)
    np.testing.assert_array_equal(stored, state)
    assert inner(results).step_size.dtype == tf.float32
    nuts = rm.RiemannianNUTS(targets.skewed, step_size, metric=rm.EuclideanMetric())
    assert nuts.bootstrap_results(q).step_size.dtype == tf.float32


@pytest.mark.parametrize('cls', CLASSES)
def test_seeds(cls):
    kernel = make(cls)
    q = tf.constant(targets.skewed_draws(4, 3))
    first = kernel.bootstrap_results(q)
    assert inner(first).seed.shape == (2,)
    run = lambda seed: kernel.one_step(q, first, seed=seed)[0].numpy()
    np.testing.assert_array_equal(run((1, 2)), run(tf.constant([1, 2])))
    assert np.abs(run((1, 2)) - run((1, 3))).max() > 0.0
    run(None)
    run(7)


@pytest.mark.parametrize(
    ('cls', 'metric', 'dtype'),
    [(cls, METRIC, tf.float64) for cls in CLASSES]
    # `RiemannianHMC` is one of these two by another name.
    + [(cls, METRIC, tf.float32) for cls in (rm.ExplicitRiemannianHMC, rm.ImplicitRiemannianHMC)]
    + [(cls, rm.SoftAbsMetric(), tf.float64) for cls in (rm.ExplicitRiemannianHMC, rm.ImplicitRiemannianHMC)],
)
def test_eager_graph_and_xla_propose_the_same(cls, metric, dtype):
    """TFP's own uniform of the accept step differs under XLA; all else is the same, several transitions in a row."""
    kernel = make(cls, step_size=tf.constant(0.15, dtype), metric=metric)

    def transition(state, seed):
        state, results = kernel.one_step(state, kernel.bootstrap_results(state), seed=seed)
        ratio = results.log_accept_ratio if cls in CALIBRATED else results.log_acceptance_correction
        return state, getattr(results, 'proposed_state', state), ratio

    variants = compiled_variants(transition)
    state = tf.constant(targets.skewed_draws(6, 3), dtype)
    tolerance = {'rtol': 1e-6, 'atol': 1e-6} if dtype == tf.float64 else {'rtol': 2e-3, 'atol': 5e-3}
    for i in range(3):
        results = {mode: fn(state, tf.constant([i, 9])) for mode, fn in variants.items()}
        for mode in ('graph', 'xla'):
            np.testing.assert_allclose(results[mode][1], results['eager'][1], **tolerance)
            np.testing.assert_allclose(results[mode][2], results['eager'][2], **tolerance)
        np.testing.assert_allclose(results['graph'][0], results['eager'][0], **tolerance)
        state = results['eager'][0]


@pytest.mark.parametrize('name', DEFAULTS)
def test_a_chain_in_a_batch_of_eight_equals_the_chain_alone(name):
    """From the same momenta, also when neighbours need many more iterations or fail."""
    integrator = DEFAULTS[name]
    rng = np.random.default_rng(5)
    q = targets.skewed_draws(8, 3)
    blocks = [q, rng.standard_normal(q.shape), 0.1 * rng.standard_normal(q.shape), 0.1 * rng.standard_normal(q.shape)]
    z = np.concatenate(blocks[: num_blocks(integrator)], axis=1)
    forward = flow(integrator, targets.skewed, metric_for(name, METRIC, 3), 0.2, 5)
    together = forward(z)
    for i in range(8):
        np.testing.assert_allclose(forward(z[i : i + 1])[0], together[i], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize('cls', CALIBRATED)
def test_the_target_is_traced_a_fixed_number_of_times(cls):
    """Not once per step, chain or draw."""

    def count(num_leapfrog_steps, num_results):
        calls = []

        def counted(q):
            calls.append(1)
            return targets.skewed(q)

        kernel = cls(counted, 0.1, num_leapfrog_steps, metric=METRIC)
        run = tf.function(
            lambda: tfp.mcmc.sample_chain(num_results, tf.zeros([2, 3]), kernel=kernel, trace_fn=None, seed=(1, 2)),
            autograph=False,
        )
        run()
        first = len(calls)
        run()
        assert len(calls) == first
        return first

    assert count(2, 3) == count(30, 20) <= 12


@pytest.mark.parametrize('cls', CALIBRATED)
def test_sharding_is_stored_and_refused(cls):
    kernel = make(cls)
    assert kernel.experimental_with_shard_axes(None).experimental_shard_axis_names is None
    sharded = kernel.experimental_with_shard_axes(['a'])
    assert sharded.experimental_shard_axis_names == ['a']
    q = tf.zeros([3])
    with pytest.raises(ValueError, match='experimental_shard_axis_names'):
        sharded.one_step(q, sharded.bootstrap_results(q), seed=1)


@pytest.mark.parametrize('cls', CLASSES)
def test_gradients_through_the_state_can_be_stopped(cls):
    q = tf.zeros([3])
    for stopped in (True, False):
        kernel = make(cls, num_leapfrog_steps=1, state_gradients_are_stopped=stopped)
        with tf.GradientTape() as tape:
            tape.watch(q)
            state, _ = kernel.one_step(q, kernel.bootstrap_results(q), seed=1)
        assert (tape.gradient(state, q) is None) == (stopped and cls not in CALIBRATED)


@pytest.mark.parametrize('cls', CLASSES)
@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        ({'step_size': -0.1}, ValueError, '`step_size`.*-0.1'),
        ({'step_size': float('nan')}, ValueError, '`step_size`.*nan'),
        ({'step_size': []}, ValueError, '`step_size`.*empty'),
        ({'num_leapfrog_steps': 0}, ValueError, '`num_leapfrog_steps`.*0'),
        ({'num_leapfrog_steps': 2.5}, ValueError, '`num_leapfrog_steps`.*2.5'),
        ({'metric': 'softabs'}, TypeError, '`metric`.*softabs'),
    ],
)
def test_bad_arguments_are_named(cls, arguments, error, message):
    with pytest.raises(error, match=message):
        make(cls, **arguments)


def test_more_bad_arguments_are_named():
    with pytest.raises(TypeError, match='`target_log_prob_fn`.*3'):
        rm.ExplicitRiemannianHMC(3, 0.1, 2)
    with pytest.raises(TypeError, match='`coupling`.*GeneralizedLeapfrog'):
        make(rm.ExplicitRiemannianHMC, coupling=rm.GeneralizedLeapfrog())
    with pytest.raises(TypeError, match='`integrator`.*MetricCoupling'):
        make(rm.ImplicitRiemannianHMC, integrator=rm.MetricCoupling())
    with pytest.raises(TypeError, match='`integrator`.*a step'):
        make(rm.RiemannianHMC, integrator='a step')
    with pytest.raises(TypeError, match='integrator'):
        make(rm.ExplicitRiemannianHMC, integrator=rm.MetricCoupling())
    with pytest.raises(ValueError, match='`max_rate`.*0'):
        rm.MetricCoupling(max_rate=0.0)
    with pytest.raises(ValueError, match='`angle`.*3.14'):
        rm.MetricCoupling(angle=np.pi)
    with pytest.raises(ValueError, match='`slack`.*0'):
        rm.MetricCoupling(slack=0.0)
    with pytest.raises(ValueError, match='`stiffness`.*3.0'):
        rm.MetricCoupling(stiffness=3.0)
    with pytest.raises(ValueError, match='`omega`.*-1'):
        rm.TaoBinding(-1.0)
    with pytest.raises(ValueError, match='`order`.*3'):
        rm.TaoBinding(1.0, order=3)
    with pytest.raises(ValueError, match='`tolerance`.*0'):
        rm.GeneralizedLeapfrog(tolerance=0.0)
    with pytest.raises(ValueError, match='`max_iterations`.*0'):
        rm.ImplicitMidpoint(max_iterations=0)
    with pytest.raises(ValueError, match='`reversibility_tolerance`.*-1'):
        rm.ImplicitMidpoint(reversibility_tolerance=-1.0)


@pytest.mark.parametrize('cls', CALIBRATED)
def test_bad_states_are_named(cls):
    kernel = make(cls)
    with pytest.raises(TypeError, match='dict'):
        kernel.bootstrap_results({'x': tf.zeros([3])})
    with pytest.raises(TypeError, match='floating'):
        kernel.bootstrap_results(tf.zeros([3], tf.int32))
    mismatched = cls(skewed_of_parts, [0.1, 0.2, 0.3], 2, metric=METRIC)
    state = [tf.zeros([3]), tf.zeros([3])]
    with pytest.raises(ValueError, match='exactly one `step_size`.*3 step sizes for 2 parts'):
        mismatched.one_step(state, mismatched.bootstrap_results(state), seed=1)
    with pytest.raises(ValueError, match='no gradient'):
        cls(lambda q: tf.zeros(q.shape[:-1]), 0.1, 2).bootstrap_results(tf.zeros([4, 3]))


def test_variables_as_parameters_warn_unless_stored():
    with pytest.warns(UserWarning, match='tf.Variable'):
        make(rm.ExplicitRiemannianHMC, step_size=tf.Variable(0.1))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        make(rm.ExplicitRiemannianHMC, step_size=tf.Variable(0.1), store_parameters_in_results=True)
