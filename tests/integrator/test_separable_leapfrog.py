"""The leapfrog of separable metrics: what it costs, what it refuses, and where it goes."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.integrator.registry import separable_metric
from tfp_rmhmc.metric.scaled_blocks import _coloured


def funnel_of_parts(v, x):
    return targets.funnel(tf.concat([v, x], axis=-1))


def funnel_metric(dimension):
    """v's scale holds the information that the others carry about it."""
    return rm.SeparableMetric(lambda v, x: [-0.5 * np.log(1.0 / 9.0 + 0.5 * (dimension - 1)), -0.5 * v])


def test_it_is_the_default_where_the_metric_is_separable():
    for metric in (separable_metric(3), rm.EuclideanMetric()):
        assert isinstance(rm.RiemannianHMC(targets.skewed, 0.1, 3, metric=metric).integrator, rm.SeparableLeapfrog)
    assert isinstance(rm.RiemannianHMC(targets.skewed, 0.1, 3).integrator, rm.MetricCoupling)


@pytest.mark.parametrize('metric', [rm.SoftAbsMetric(), rm.DiagonalMetric(), rm.MongeMetric()])
def test_other_metrics_are_refused_in_one_sentence(metric):
    with pytest.raises(TypeError, match=f'`metric` must be separable for SeparableLeapfrog.*{type(metric).__name__}'):
        rm.RiemannianHMC(targets.skewed, 0.1, 3, metric=metric, integrator=rm.SeparableLeapfrog())


def test_bad_orders_are_named():
    with pytest.raises(ValueError, match='`order`.*3'):
        rm.SeparableLeapfrog(order=3)


@pytest.mark.parametrize(('order', 'per_step'), [(2, 1), (4, 3)])
def test_one_gradient_a_step_and_one_value_at_the_end(order, per_step):
    """Counted in eager code, where nothing is pruned or cached: calls of the target, and reverse passes through it."""
    values, gradients = [], []

    @tf.custom_gradient
    def counted(q):
        values.append(1)
        with tf.GradientTape() as tape:
            tape.watch(q)
            log_prob = targets.skewed(q)

        def reverse(upstream):
            gradients.append(1)
            return upstream[..., tf.newaxis] * tape.gradient(log_prob, q)

        return log_prob, reverse

    kernel = rm.RiemannianHMC(counted, 0.1, 5, metric=separable_metric(3), integrator=rm.SeparableLeapfrog(order))
    q = tf.constant(targets.skewed_draws(4, 3))
    results = kernel.bootstrap_results(q)
    for _ in range(2):
        values.clear()
        gradients.clear()
        q, results = kernel.one_step(q, results, seed=(1, 2))
        assert len(gradients) == 5 * per_step
        assert len(values) == 5 * per_step + 1
        assert np.all(results.proposed_results.num_metric_evaluations == 5 * per_step)


def test_a_euclidean_metric_makes_hmc_s_transitions():
    """With the same momentum: the draw, the proposal and its correction."""
    q = tf.constant(targets.skewed_draws(6, 3))
    ours = rm.UncalibratedRiemannianHMC(targets.skewed, np.float64(0.3), 7, metric=rm.EuclideanMetric())
    end, results = ours.one_step(q, ours.bootstrap_results(q), seed=(1, 2))
    momentum = results.initial_momentum[0]
    for _ in range(7):
        _, gradient = tfp.math.value_and_gradient(targets.skewed, q)
        momentum = momentum + 0.15 * gradient
        q = q + 0.3 * momentum
        _, gradient = tfp.math.value_and_gradient(targets.skewed, q)
        momentum = momentum + 0.15 * gradient
    np.testing.assert_allclose(end, q, rtol=1e-12)
    np.testing.assert_allclose(results.final_momentum[0], momentum, rtol=1e-10)
    squares = tf.reduce_sum(tf.square(results.initial_momentum[0]) - tf.square(momentum), axis=-1)
    np.testing.assert_allclose(results.log_acceptance_correction, 0.5 * squares, atol=1e-10)


@pytest.mark.parametrize('order', [2, 4])
def test_single_steps_are_those_of_the_trajectory(order, rng):
    """`step` itself, forwards and backwards, with the momentum complete after each: what a tree of steps needs."""
    integrator, metric = rm.SeparableLeapfrog(order), separable_metric(3)
    q, p = (tf.constant(rng.standard_normal((2, 3))) for _ in range(2))
    hamiltonian = rm.Hamiltonian(rm.LogDensity.at_state(targets.skewed, [q]), metric)
    h = tf.constant(0.1, tf.float64)
    point = integrator.begin(hamiltonian.at(q), q, p, h, rm.Ledger.new(q))
    there = integrator.step(hamiltonian, integrator.step(hamiltonian, point, h), h)
    assert np.abs(there.position - q).max() > 0.1
    back = integrator.step(hamiltonian, integrator.step(hamiltonian, there, -h), -h)
    np.testing.assert_allclose(back.position, q, atol=1e-13)
    np.testing.assert_allclose(back.momentum, p, atol=1e-13)
    if order == 2:
        leg = rm.Leg(h, tf.constant(2), tf.constant(True))
        whole = integrator.travel(hamiltonian, hamiltonian.at(q), point, leg)
        np.testing.assert_allclose(whole.momentum, there.momentum, atol=1e-13)
        energies = [hamiltonian.at(x.position).energy(x.momentum) for x in (point, there)]
        assert np.abs(energies[1] - energies[0]).max() < 0.05


@pytest.mark.parametrize('jit', [False, True])
@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize(('dimension', 'num_chains'), [(1, 1), (1, 7), (2, 3000), (1_000_000, 1), (1000, 2)])
def test_from_one_dimension_to_a_million(dimension, num_chains, dtype, jit):
    # The first coordinate sets the scale of all others, which therefore tell about it.
    information = -0.5 * np.log1p(0.02 * (dimension - 1))
    metric = rm.SeparableMetric(lambda *blocks: [information] + [0.1 * tf.tanh(blocks[0])] * (len(blocks) - 1))
    q = np.random.default_rng(0).standard_normal((num_chains, dimension)).astype(dtype)
    parts = [q[:, :1], q[:, 1:]] if dimension > 1 else [q]
    kernel = rm.RiemannianHMC(targets.gaussian, dtype(0.02), 2, metric=metric)
    run = tf.function(
        lambda *parts: kernel.one_step(list(parts), kernel.bootstrap_results(list(parts)), seed=(1, 2)),
        autograph=False,
        jit_compile=jit,
    )
    state, results = run(*parts)
    assert [part.shape for part in state] == [part.shape for part in parts]
    assert np.mean(np.exp(np.minimum(results.log_accept_ratio, 0.0))) > 0.9
    assert np.all(results.proposed_results.status == rm.Status.OK)


def test_memory_and_cost_grow_with_the_dimension_alone():
    """No tensor of a transition is larger than chains x D, but for the seed's bits of the momentum, twice that."""
    num_chains, dimension = 3, 50
    metric = rm.SeparableMetric(lambda v, x: [0.0, -0.5 * v])
    kernel = rm.RiemannianHMC(funnel_of_parts, np.float64(0.1), 4, metric=metric)
    start = [tf.zeros([num_chains, 1], tf.float64), tf.zeros([num_chains, dimension - 1], tf.float64)]
    traced = tf.function(lambda *q: kernel.one_step(list(q), kernel.bootstrap_results(list(q)), seed=(1, 2))[0])
    graph = traced.get_concrete_function(*start).graph
    graphs = [graph, *[function.graph for function in graph._functions.values() if hasattr(function, 'graph')]]
    sizes = [out.shape.num_elements() or 0 for g in graphs for op in g.get_operations() for out in op.outputs]
    assert num_chains * dimension <= max(sizes) <= 2 * num_chains * dimension


@pytest.mark.parametrize('mode', ['graph', 'xla'])
@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_rejects_its_chain_only(bad, mode):
    def log_scales(v, x):
        return [0.0, tf.where(v > 50.0, tf.constant(bad, v.dtype), -0.1 * v)]

    start = targets.skewed_draws(4, 3)
    start[1, 0] = 60.0

    def transition(q):
        kernel = rm.RiemannianHMC(
            lambda q: targets.gaussian(0.1 * q),
            np.float64(0.2),
            3,
            metric=rm.SeparableMetric(log_scales, blocks=[[0], [1, 2]]),
        )
        return kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))

    state, results = tf.function(transition, autograph=False, jit_compile=mode == 'xla')(tf.constant(start))
    assert list(results.proposed_results.status) == [rm.Status.OK, rm.Status.NON_FINITE, rm.Status.OK, rm.Status.OK]
    np.testing.assert_array_equal(state[1], start[1])
    start[1, 0] = 0.0
    alone, _ = tf.function(transition, autograph=False, jit_compile=mode == 'xla')(tf.constant(start))
    np.testing.assert_allclose(state.numpy()[[0, 2, 3]], alone.numpy()[[0, 2, 3]], rtol=1e-10)


def test_groups_are_of_blocks_that_do_not_depend_on_each_other():
    assert _coloured([set(), {0}], [1, 10]) == [[0], [1]]
    assert _coloured([set(), {0}, {0}], [1, 1, 8]) == [[0], [1, 2]]  # mu and theta, both set by tau
    assert _coloured([{1}, {0}], [5, 2]) == [[1], [0]]
    assert _coloured([set(), set()], [1, 2]) == [[0, 1]]
    chain = _coloured([set(), {0}, {1}, {2}], [1, 1, 1, 9])
    assert chain[0] == [0]
    assert sorted(chain[1:], key=len) == [[2], [1, 3]] or sorted(map(sorted, chain[1:])) == [[1, 3], [2]]


def test_blocks_of_constant_scale_cost_no_derivative():
    """The scales of v are a number, and nothing is differentiated with respect to x."""
    metric = funnel_metric(11)
    q = [tf.zeros([2, 1], tf.float64), tf.ones([2, 10], tf.float64)]
    layout = rm.LogDensity.at_state(funnel_of_parts, q).layout
    separation = metric.separation(layout)
    assert separation.groups(q) == [[0], [1]]
    assert separation.terms([0], q, q).pulls == [None, None]
    pulls = separation.terms([1], q, q).pulls
    assert pulls[0] is not None
    assert pulls[1] is None


@pytest.mark.statistical
@pytest.mark.parametrize(
    ('dimension', 'step', 'length', 'least', 'least_acceptance'), [(11, 0.6, 14.0, 20.0, 0.85), (101, 0.4, 56.0, 4.0, 0.6)]
)
def test_effective_samples_per_gradient_on_the_funnel(dimension, step, length, least, least_acceptance):
    inner = rm.RiemannianHMC(
        funnel_of_parts, np.float64(step), 1, metric=funnel_metric(dimension), store_parameters_in_results=True
    )
    kernel = rm.RandomTrajectoryLength(inner, length)
    start = targets.funnel_draws(64, dimension)

    @tf.function(autograph=False, jit_compile=True)
    def run():
        return tfp.mcmc.sample_chain(
            300,
            [tf.constant(start[:, :1]), tf.constant(start[:, 1:])],
            kernel=kernel,
            trace_fn=lambda _, results: (
                results.inner_results.log_accept_ratio,
                results.inner_results.accepted_results.num_leapfrog_steps,
            ),
            seed=(1, 2),
        )

    draws, (ratio, steps) = run()
    ess = [np.min(tfp.mcmc.effective_sample_size(x, cross_chain_dims=1, filter_beyond_positive_pairs=True)) for x in draws]
    acceptance = np.exp(np.minimum(ratio, 0.0)).mean()
    per_thousand = 1000.0 * min(ess) / (np.sum(steps) * 64)
    print(f'{dimension}-D: acceptance {acceptance:.3f}, least ESS {min(ess):.0f}, {per_thousand:.1f} per 1,000 gradients')
    assert acceptance > least_acceptance
    assert per_thousand > least
    v = draws[0].numpy()
    error = 4.0 / np.sqrt(ess[0])
    assert abs(v.mean()) < 3.0 * error
    assert abs(v.var() / 9.0 - 1.0) < np.sqrt(2.0) * error
