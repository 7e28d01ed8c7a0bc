"""No-U-turn trajectories on a manifold: what TFP asks, chains that are alone, and trees that fail."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow_probability.python.experimental.mcmc.windowed_sampling import default_nuts_trace_fn  # not exported

import tfp_rmhmc as rm
from tests import targets
from tests.conftest import compiled_variants
from tests.integrator.registry import DEFAULTS, metric_for
from tfp_rmhmc.integrator import Gardener, tree

METRIC = rm.DiagonalMetric(diagonal_fn=lambda q, g: 1.0 + tf.sigmoid(q))


def make(name, step_size=0.2, log_prob=targets.skewed, **kwargs):
    metric = metric_for(name, METRIC, 3)
    return rm.RiemannianNUTS(log_prob, step_size, metric=metric, integrator=DEFAULTS[name], max_tree_depth=5, **kwargs)


@pytest.mark.parametrize('name', DEFAULTS)
def test_eager_graph_and_xla_grow_the_same_trees(name):
    kernel = make(name, np.float64(0.2))

    def transition(q):
        first = kernel.bootstrap_results(q)
        state, second = kernel.one_step(q, first, seed=tf.constant([1, 2]))
        tf.nest.assert_same_structure(first, second, expand_composites=True)
        for a, b in zip(*[tf.nest.flatten(x, expand_composites=True) for x in (first, second)], strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
        return state, second.leapfrogs_taken, second.log_accept_ratio, second.status

    q = tf.constant(targets.skewed_draws(6, 3))
    results = {mode: fn(q) for mode, fn in compiled_variants(transition).items()}
    state, leapfrogs, ratio, status = results['eager']
    assert np.all(leapfrogs >= 3)
    assert np.all(status == rm.Status.OK)
    assert np.all(ratio > -0.5)
    assert np.mean(np.any(state != q, axis=-1)) > 0.5
    for mode in ('graph', 'xla'):
        for got, expected in zip(results[mode], results['eager'], strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
@pytest.mark.parametrize('batch', [(), (5,), (2, 3)])
def test_parts_batches_and_dtypes_are_kept(batch, dtype):
    log_prob = lambda x, y: -tf.square(x) - tf.reduce_sum(tf.square(y), axis=[-2, -1])
    kernel = rm.RiemannianNUTS(log_prob, [tf.constant(0.1, dtype), tf.constant(0.2, dtype)], metric=rm.EuclideanMetric())
    start = [tf.zeros(batch, dtype), tf.zeros((*batch, 2, 2), dtype)]
    for jit in (False, True):
        run = tf.function(
            lambda x, y: tfp.mcmc.sample_chain(3, [x, y], kernel=kernel, trace_fn=None, seed=(1, 2)),
            autograph=False,
            jit_compile=jit,
        )
        draws = run(*start)
        assert [x.shape for x in draws] == [(3, *x.shape) for x in start]
        assert all(np.all(np.isfinite(x)) and x.dtype == dtype for x in draws)


def test_compilation_does_not_depend_on_the_depth():
    def num_operations(depth):
        kernel = rm.RiemannianNUTS(targets.skewed, np.float64(0.1), metric=rm.EuclideanMetric(), max_tree_depth=depth)
        run = tf.function(lambda q: kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))[0], autograph=False)
        graph = run.get_concrete_function(tf.zeros([2, 3], tf.float64)).graph
        return len(graph.get_operations()), len(graph.as_graph_def().library.function)

    (few, functions), (many, of_many) = num_operations(3), num_operations(12)
    assert functions == of_many
    assert abs(few - many) < 5  # constants


@pytest.mark.parametrize('name', DEFAULTS)
def test_a_chain_in_a_batch_of_eight_equals_the_chain_alone(name, rng):
    """With the momenta and uniform numbers of the batch, one chain at a time; one of them diverges."""
    integrator, metric = DEFAULTS[name], metric_for(name, METRIC, 3)
    q, p, numbers = targets.skewed_draws(8, 3), rng.standard_normal((8, 3)), rng.uniform(size=(100, 8))
    p[3] *= 1e4

    @tf.function(autograph=False, reduce_retracing=True)
    def grow(q, p, numbers):
        hamiltonian = rm.Hamiltonian(rm.LogDensity.at_state(targets.skewed, [q]), metric)
        local, step = hamiltonian.at(q), tf.constant(0.25, q.dtype)
        point = integrator.begin(local, q, p, step, rm.Ledger.new(q))
        gardener = Gardener(integrator, hamiltonian, step, 5, 1000.0, 1)
        grown = gardener.grow(local, point, lambda number: tf.gather(numbers, number))
        return grown.draw.position, grown.num_leaves, grown.ledger.status, grown.total_acceptance

    together = grow(*map(tf.constant, (q, p, numbers)))
    assert len(np.unique(together[1])) > 1
    assert together[2][3] != rm.Status.OK
    assert np.all(np.delete(together[2].numpy(), 3) == rm.Status.OK)
    for i in range(8):
        alone = grow(*map(tf.constant, (q[i : i + 1], p[i : i + 1], numbers[:, i : i + 1])))
        for one, all_of_them in zip(alone, together, strict=True):
            np.testing.assert_allclose(one[0], all_of_them[i], rtol=1e-9)


@pytest.mark.parametrize('mode', ['graph', 'xla'])
def test_divergent_chains_say_so_and_touch_no_other(mode):
    def log_prob(q):
        return tf.where(q[..., 0] > 50.0, tf.constant(-np.inf, q.dtype), targets.skewed(q))

    start = targets.skewed_draws(4, 3)
    good = make('separable-leapfrog', np.float64(0.1), log_prob)
    expected, _ = good.one_step(tf.constant(start), good.bootstrap_results(tf.constant(start)), seed=(1, 2))
    start[1, 0] = 60.0  # outside the support
    start[2] = 12.0  # so steep that the first step flies away
    kernel = make('separable-leapfrog', np.float64(0.1), log_prob)
    run = compiled_variants(lambda q: kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2)))[mode]
    state, results = run(tf.constant(start))
    assert list(results.has_divergence) == [False, True, True, False]
    assert list(results.status)[:2] == [rm.Status.OK, rm.Status.NON_FINITE]
    assert results.status[2] in (rm.Status.DIVERGED, rm.Status.NON_FINITE)
    np.testing.assert_array_equal(state.numpy()[[1, 2]], start[[1, 2]])
    np.testing.assert_allclose(state.numpy()[[0, 3]], expected.numpy()[[0, 3]], rtol=1e-9)
    assert np.all(np.isfinite(results.target_log_prob.numpy()[[0, 2, 3]]))


@pytest.mark.parametrize('name', ['symmetric-projection', 'generalized-leapfrog', 'implicit-midpoint'])
def test_a_solve_that_fails_ends_the_tree_and_says_so(name):
    integrator = type(DEFAULTS[name])(max_iterations=1, tolerance=1e-14)
    kernel = rm.RiemannianNUTS(targets.funnel, np.float64(0.1), integrator=integrator)
    q = tf.constant(targets.funnel_draws(4, 5))
    state, results = kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))
    assert np.all(results.status == rm.Status.NOT_CONVERGED)
    assert np.all(results.leapfrogs_taken == 1)
    assert not np.any(results.has_divergence)
    np.testing.assert_array_equal(state, q)


def test_the_depth_is_a_limit_and_is_reported():
    q = tf.constant(targets.skewed_draws(5, 3))
    for depth, reached in [(2, True), (10, False)]:
        kernel = rm.RiemannianNUTS(targets.skewed, np.float64(0.05), metric=rm.EuclideanMetric(), max_tree_depth=depth)
        _, results = kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))
        assert np.all(results.reach_max_depth == reached)
        assert np.all(results.leapfrogs_taken == 3) if reached else np.all(results.leapfrogs_taken > 3)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'max_tree_depth': 0}, '`max_tree_depth`.*0'),
        ({'max_energy_diff': -1.0}, '`max_energy_diff`.*-1'),
        ({'unrolled_leapfrog_steps': 0}, '`unrolled_leapfrog_steps`.*0'),
        ({'integrator': rm.TaoBinding(2.0)}, '`integrator` must be exact.*TaoBinding'),
        ({'integrator': rm.ImplicitMidpoint(reversibility_tolerance=np.inf)}, '`integrator` must be exact'),
        ({'integrator': rm.SeparableLeapfrog(), 'metric': rm.SoftAbsMetric()}, '`metric` must be separable'),
        ({'metric': 3.0}, '`metric`.*3.0'),
        ({'step_size': -1.0}, '`step_size`.*-1'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        rm.RiemannianNUTS(targets.skewed, **({'step_size': 0.1} | arguments))


def adapted(kernel_class):
    return lambda kernel: kernel_class(kernel, num_adaptation_steps=300, target_accept_prob=np.float64(0.8))


def z_score(draws, mean, axis=1):
    """Of the mean of `[draws, chains]`, by its effective sample size."""
    ess = tfp.mcmc.effective_sample_size(draws, cross_chain_dims=axis, filter_beyond_positive_pairs=True)
    return (np.mean(draws) - mean) / (np.std(draws) / np.sqrt(float(ess)))


EXACT = [scipy.stats.loggamma(shape) for shape in np.linspace(1.5, 3.0, 3)]


def assert_exact(draws):
    """`[draws, chains, 3]` of the skewed target."""
    for i, exact in enumerate(EXACT):
        assert abs(z_score(draws[..., i], exact.mean())) < 4.0
        assert abs(z_score((draws[..., i] - exact.mean()) ** 2, exact.var())) < 4.0


@pytest.mark.statistical
@pytest.mark.parametrize('adaptation', [tfp.mcmc.SimpleStepSizeAdaptation, tfp.mcmc.DualAveragingStepSizeAdaptation])
def test_step_size_adaptation(adaptation):
    kernel = adapted(adaptation)(make('separable-leapfrog', np.float64(0.3)))

    @tf.function(autograph=False, jit_compile=True)
    def run(start):
        return tfp.mcmc.sample_chain(
            500,
            start,
            kernel=kernel,
            num_burnin_steps=400,
            trace_fn=lambda state, results: (
                default_nuts_trace_fn(state, None, tf.constant(True), results),
                rm.default_trace_fn(state, results),
            ),
            seed=(1, 2),
        )

    draws, (theirs, ours) = run(tf.constant(targets.skewed_draws(8, 3)))
    assert_exact(draws.numpy())
    assert 0.7 < np.mean(theirs['accept_ratio']) < 0.9
    assert len(np.unique(theirs['step_size'])) == 1
    np.testing.assert_array_equal(theirs['n_steps'], ours['n_steps'])
    np.testing.assert_array_equal(theirs['diverging'], ours['diverging'])
    assert theirs['variance_scaling'].shape == (500, 8, 3)
    assert np.all(ours['metric_evaluations'] == ours['n_steps'])


def test_the_momenta_s_variance_is_the_metric_s_diagonal():
    q = tf.constant(targets.skewed_draws(4, 3))
    dense, separable = (
        rm.FisherMetric(lambda q: tf.eye(3, dtype=q.dtype) * (2.0 + q[..., None, :1])),
        metric_for('separable', None, 3),
    )
    for metric in (METRIC, rm.SoftAbsMetric(), rm.MongeMetric(), separable, dense, rm.EuclideanMetric()):
        hamiltonian = rm.Hamiltonian(rm.LogDensity.at_state(targets.skewed, [q]), metric)
        local = hamiltonian.at(q)
        columns = [local.factor.multiply(tf.broadcast_to(unit, q.shape)) for unit in tf.eye(3, dtype=q.dtype)]
        expected = tf.stack([column[:, i] for i, column in enumerate(columns)], axis=1)
        np.testing.assert_allclose(local.factor.diagonal(q), expected, rtol=1e-9)
        np.testing.assert_allclose(rm.Factor.diagonal(local.factor, q), expected, rtol=1e-9)


@pytest.mark.statistical
def test_inside_transformed_kernel_reductions_and_replica_exchange():
    start = tf.constant(targets.skewed_draws(8, 3))
    positive = lambda y: targets.skewed(tf.math.log(y)) - tf.reduce_sum(tf.math.log(y), axis=-1)  # exp of the skewed
    inner = rm.RiemannianNUTS(positive, np.float64(0.4), metric=rm.EuclideanMetric(), max_tree_depth=6)
    transformed = tfp.mcmc.TransformedTransitionKernel(inner, tfp.bijectors.Exp())
    reducer = tfp.experimental.mcmc.ExpectationsReducer()
    reduced = tfp.experimental.mcmc.WithReductions(make('separable-leapfrog', np.float64(0.4)), reducer)
    exchange = tfp.mcmc.ReplicaExchangeMC(
        targets.skewed,
        inverse_temperatures=np.array([1.0, 0.6], np.float64),
        make_kernel_fn=lambda log_prob: rm.RiemannianNUTS(
            log_prob, np.float64(0.4), metric=rm.EuclideanMetric(), max_tree_depth=6
        ),
    )

    def run(kernel, start, trace_fn=None):
        return tf.function(
            lambda: tfp.mcmc.sample_chain(500, start, kernel=kernel, trace_fn=trace_fn, seed=(1, 2)), autograph=False
        )()

    assert_exact(np.log(run(transformed, tf.exp(start))))
    assert_exact(run(exchange, start).numpy())
    draws, expectation = run(reduced, start, lambda _, results: reducer.finalize(results.reduction_results))
    assert_exact(draws.numpy())
    np.testing.assert_allclose(expectation[-1], np.mean(draws, axis=0), rtol=1e-9)


def tree_sizes(kernel, num_draws=60, num_chains=200):
    @tf.function(autograph=False, jit_compile=True)
    def run(start):
        return tfp.mcmc.sample_chain(
            num_draws, start, kernel=kernel, trace_fn=lambda _, results: results.leapfrogs_taken, seed=(3, 4)
        )

    draws, leapfrogs = run(tf.constant(targets.skewed_draws(num_chains, 3)))
    return draws.numpy(), leapfrogs.numpy()


@pytest.mark.statistical
@pytest.mark.parametrize('step_size', [0.15, 0.6])
def test_without_seams_trees_are_those_of_tfp(step_size, monkeypatch):
    """TFP does not look across the seams of subtrees. But for that, trees are of the same sizes, and draws alike."""
    theirs = tree_sizes(tfp.mcmc.NoUTurnSampler(targets.skewed, np.float64(step_size), max_tree_depth=7))
    kernel = rm.RiemannianNUTS(targets.skewed, np.float64(step_size), metric=rm.EuclideanMetric(), max_tree_depth=7)
    monkeypatch.setattr(tree, '_progress_across', lambda first, second: tf.ones_like(first[0][..., 0]))
    ours = tree_sizes(kernel)
    for draws, _ in (theirs, ours):
        assert_exact(draws)
    # One size a chain: those of one chain depend on each other.
    sizes = [leapfrogs[30::29].ravel() for _, leapfrogs in (theirs, ours)]
    values = np.unique(np.concatenate(sizes))
    table = np.array([[np.sum(x == value) for value in values] for x in sizes])
    table = table[:, table.sum(axis=0) >= 20]
    p_value = scipy.stats.chi2_contingency(table).pvalue
    print(f'sizes {values}, counts {table.tolist()}, p {p_value:.3f}')
    assert p_value > 1e-3
    monkeypatch.undo()
    with_seams = tree_sizes(kernel)
    assert_exact(with_seams[0])
    assert with_seams[1].mean() < ours[1].mean()
