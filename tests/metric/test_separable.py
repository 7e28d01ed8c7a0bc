"""Separable metrics: exact whatever function is given, from a function, a partition, or a joint distribution."""

import arviz
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.integrator.registry import separable_metric, wavy_log_scales
from tfp_rmhmc.metric.scaled_blocks import ScaledBlocks
from tfp_rmhmc.noise import split_seed

tfd = tfp.distributions


def local_at(metric, log_prob, *parts):
    parts = [tf.constant(part) for part in parts]
    density = rm.LogDensity.at_state(log_prob, parts)
    return rm.Hamiltonian(density, metric).at(density.layout.flatten(parts))


def dense(factor, dimension):
    return np.concatenate([factor.multiply(tf.constant(e[None])).numpy() for e in np.eye(dimension)]).T


def test_the_matrix_is_the_docstring_s(rng):
    correlation = np.array([[1.0, 0.4, 0.1], [0.4, 1.0, 0.2], [0.1, 0.2, 1.0]])
    v, x = np.array([[0.7]]), np.array([[0.3, -0.2, 1.0]])
    metric = rm.SeparableMetric(lambda v, x: [-0.8, -0.5 * v], [None, correlation])
    local = local_at(metric, lambda v, x: targets.gaussian(v, x), v, x)
    scale = np.exp(0.5 * 0.7) * np.ones(3)
    expected = np.zeros((4, 4))
    expected[0, 0] = np.exp(1.6)
    expected[1:, 1:] = np.diag(scale) @ correlation @ np.diag(scale)
    np.testing.assert_allclose(dense(local.factor, 4), expected, rtol=1e-12)
    np.testing.assert_allclose(local.factor.half_log_det, [0.5 * np.linalg.slogdet(expected)[1]], rtol=1e-12)


def test_the_matrix_with_directions_is_the_docstring_s(rng):
    directions, slopes = rng.standard_normal((3, 3)) + 2.0 * np.eye(3), np.array([-0.5, 0.0, 0.6])
    metric = rm.SeparableMetric(
        lambda v, x: [0.2, slopes * tf.tanh(v)], directions=[None, directions], blocks=[[0], [1, 2, 3]]
    )
    q = rng.standard_normal((1, 4))
    local = local_at(metric, targets.gaussian, q)
    expected = np.zeros((4, 4))
    expected[0, 0] = np.exp(-0.4)
    expected[1:, 1:] = directions.T @ np.diag(np.exp(-2.0 * slopes * np.tanh(q[0, 0]))) @ directions
    factor = local.factor
    np.testing.assert_allclose(dense(factor, 4), expected, rtol=1e-12)
    np.testing.assert_allclose(factor.half_log_det, [0.5 * np.linalg.slogdet(expected)[1]], rtol=1e-12)
    np.testing.assert_allclose(factor.diagonal(tf.constant(q))[0], np.diag(expected), rtol=1e-12)
    p = tf.constant(rng.standard_normal((1, 4)))
    np.testing.assert_allclose(factor.solve(p)[0], np.linalg.solve(expected, p[0].numpy()), rtol=1e-12)
    root = np.concatenate([factor.sqrt_multiply(tf.constant(e[None])).numpy() for e in np.eye(4)]).T
    np.testing.assert_allclose(root @ root.T, expected, rtol=1e-12)


def test_a_low_rank_correlation_is_the_identity_and_its_square(rng):
    factor = rng.standard_normal((5, 2))
    for given, expected in [(factor, np.eye(5) + factor @ factor.T), (np.eye(5) + factor @ factor.T, None)]:
        metric = rm.SeparableMetric(lambda x: [0.0], [given])
        local = local_at(metric, targets.gaussian, rng.standard_normal((1, 5)))
        np.testing.assert_allclose(dense(local.factor, 5), given if expected is None else expected, rtol=1e-10)


def test_parts_of_any_shape_and_their_flat_partition_agree(rng):
    """State parts with scalar, vector and matrix events, against blocks of one flat vector."""
    a, b, c = rng.standard_normal(3), rng.standard_normal((3, 1)), rng.standard_normal((3, 2, 2))
    of_parts = rm.SeparableMetric(
        lambda a, b, c: [0.1 * tf.reduce_sum(c, axis=[-2, -1]), 0.2 * a[..., None], 0.3 * (a[..., None] * b)[..., None]]
    )
    flat_of = rm.SeparableMetric(
        lambda a, b, c: [0.1 * tf.reduce_sum(c, axis=-1, keepdims=True), 0.2 * a, 0.3 * a * b],
        blocks=[[0], [1], [2, 3, 4, 5]],
    )
    target = lambda a, b, c: -(tf.square(a) + tf.reduce_sum(tf.square(b), -1) + tf.reduce_sum(tf.square(c), [-2, -1]))
    flat = np.concatenate([a[:, None], b, c.reshape(3, 4)], axis=1)
    one = local_at(of_parts, target, a, b, c)
    other = local_at(flat_of, lambda q: target(q[..., 0], q[..., 1:2], tf.reshape(q[..., 2:], [3, 2, 2])), flat)
    p = tf.constant(rng.standard_normal((3, 6)))
    for verb in ('energy', 'velocity', 'force'):
        np.testing.assert_allclose(getattr(one, verb)(p), getattr(other, verb)(p), rtol=1e-12)
    kernels = [rm.UncalibratedRiemannianHMC(t, 0.1, 3, metric=m) for t, m in [(target, of_parts)]]
    state = [tf.constant(x) for x in (a, b, c)]
    end, _ = kernels[0].one_step(state, kernels[0].bootstrap_results(state), seed=(1, 2))
    assert [x.shape for x in end] == [x.shape for x in state]


def test_a_function_of_its_own_block_has_no_effect(rng):
    """Whatever is given, a block's scale cannot depend on the block."""
    v, x = rng.standard_normal((4, 1)), rng.standard_normal((4, 3))
    honest = rm.SeparableMetric(lambda v, x: [0.0, -0.5 * v])
    sly = rm.SeparableMetric(lambda v, x: [0.3 * tf.sin(v), -0.5 * v + 0.7 * x])
    p = tf.constant(rng.standard_normal((4, 4)))
    one, other = (local_at(metric, targets.gaussian, v, x) for metric in (honest, sly))
    np.testing.assert_allclose(one.velocity(p), other.velocity(p), rtol=1e-14)
    np.testing.assert_allclose(one.force(p), other.force(p), rtol=1e-14)


@pytest.mark.statistical
@pytest.mark.parametrize('back_door', [False, True])
def test_a_back_door_to_its_own_block_would_show(back_door, monkeypatch):
    """The control: blocks that are evaluated at their own coordinates leave the target no longer invariant."""
    if back_door:
        original = ScaledBlocks.log_scales

        def own_coordinates(self, group, positions):
            returned = self._log_scale_fn(*positions)
            return [tf.convert_to_tensor(returned[b]) for b in group]

        assert original is not own_coordinates
        monkeypatch.setattr(ScaledBlocks, 'log_scales', own_coordinates)
    metric = rm.SeparableMetric(
        lambda a, b: [0.2 * tf.sin(b) + 0.4 * tf.tanh(a), -0.3 * tf.tanh(a) + 0.4 * tf.tanh(b)], blocks=[[0], [1]]
    )
    start = tf.constant(targets.skewed_draws(20_000, 2))

    @tf.function(autograph=False, jit_compile=True)
    def transition(q, seed):
        kernel = rm.RiemannianHMC(targets.skewed, np.float64(0.4), 4, metric=metric)
        return kernel.one_step(q, kernel.bootstrap_results(q), seed=seed)[0]

    q = start
    for i in range(10):
        q = transition(q, tf.constant([1, i]))
    p_value = min(scipy.stats.kstest(q[:, i], scipy.stats.loggamma(shape).cdf).pvalue for i, shape in enumerate((1.5, 3.0)))
    assert p_value < 1e-6 if back_door else p_value > 1e-3


BAD = [
    (lambda: rm.SeparableMetric(3), TypeError, '`log_scale_fn`.*3'),
    (lambda: rm.SeparableMetric(wavy_log_scales, np.eye(3)), TypeError, '`correlation`.*list'),
    (lambda: rm.SeparableMetric(wavy_log_scales, [np.diag([np.nan, 1.0])]), ValueError, r'`correlation\[0\]`.*finite'),
    (lambda: rm.SeparableMetric(wavy_log_scales, directions=np.eye(3)), TypeError, '`directions`.*list'),
    (
        lambda: rm.SeparableMetric(wavy_log_scales, [np.eye(2)], directions=[2.0 * np.eye(2)]),
        ValueError,
        r'`directions\[0\]` must be None, for `correlation\[0\]` is given',
    ),
    (
        lambda: local_at(
            rm.SeparableMetric(lambda x: [0.0], directions=[np.ones((2, 2))]), targets.gaussian, np.ones((1, 2))
        ),
        ValueError,
        r'`directions\[0\]` must be invertible',
    ),
    (
        lambda: local_at(rm.SeparableMetric(lambda x: [0.0], directions=[np.eye(3)]), targets.gaussian, np.ones((1, 2))),
        ValueError,
        r'`directions\[0\]` must be None or \[2, 2\], got shape \(3, 3\)',
    ),
    (lambda: rm.SeparableMetric(wavy_log_scales, blocks=[[0], [2]]), ValueError, r'`blocks`.*\[\[0\], \[2\]\]'),
    (lambda: rm.SeparableMetric(wavy_log_scales, blocks=[[0, 1], []]), ValueError, '`blocks`.*empty'),
    (lambda: rm.SeparableMetric(wavy_log_scales, blocks=[[0, 1], [1]]), ValueError, '`blocks`.*exactly once'),
]


@pytest.mark.parametrize(('make', 'error', 'message'), BAD)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ('metric', 'message'),
    [
        (
            rm.SeparableMetric(lambda x: [0.0], [np.array([[1.0, 0.5], [0.1, 1.0]])]),
            r'`correlation\[0\]` must be symmetric',
        ),
        (
            rm.SeparableMetric(lambda x: [0.0], [np.array([[1.0, 2.0], [2.0, 1.0]])]),
            r'`correlation\[0\]`.*positive definite',
        ),
        (rm.SeparableMetric(lambda x: [0.0], [np.eye(3)]), r'`correlation\[0\]`.*\(3, 3\)'),
        (rm.SeparableMetric(lambda x: [0.0], [None, None]), '`correlation`.*1 blocks.*2'),
        (rm.SeparableMetric(lambda x: [0.0, 1.0]), '`log_scale_fn` must return a list.*1 blocks'),
        (rm.SeparableMetric(lambda x: 0.0), '`log_scale_fn` must return a list'),
        (rm.SeparableMetric(lambda x: [tf.zeros([5], tf.float64)]), r'`log_scale_fn`.*\(1, 2\).*\(5,\)'),
        (rm.SeparableMetric(lambda x: [0.0], blocks=[[0, 1, 2]]), '`blocks`.*2 coordinates.*3'),
    ],
)
def test_what_does_not_fit_the_state_is_named_at_first_use(metric, message):
    kernel = rm.RiemannianHMC(targets.gaussian, np.float64(0.1), 2, metric=metric)
    q = tf.zeros([1, 2], tf.float64)
    with pytest.raises(ValueError, match=message):
        kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))


def test_a_function_of_blocks_with_a_flat_state_says_what_to_do():
    kernel = rm.RiemannianHMC(targets.funnel, np.float64(0.1), 2, metric=rm.SeparableMetric(lambda v, x: [0.0, -0.5 * v]))
    q = tf.zeros([1, 4], tf.float64)
    with pytest.raises(TypeError, match=r'`log_scale_fn` must take 1 arguments.*`blocks`.*\(v, x\)'):
        kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))


def test_a_wrong_dtype_is_named():
    metric = rm.SeparableMetric(lambda x: [tf.zeros([1], tf.float64)])
    kernel = rm.RiemannianHMC(targets.gaussian, np.float32(0.1), 2, metric=metric)
    q = tf.zeros([1, 2])
    with pytest.raises(TypeError, match='`log_scale_fn`.*float32.*float64'):
        kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))


@pytest.mark.parametrize(
    ('integrator', 'tolerance'),
    [
        (rm.MetricCoupling(), 2e-2),
        (rm.GeneralizedLeapfrog(), 2e-4),
        (rm.ImplicitMidpoint(), 2e-4),
    ],  # the gap is a hundredth
    ids=['metric-coupling', 'generalized-leapfrog', 'implicit-midpoint'],
)
def test_other_integrators_take_it_too(integrator, tolerance):
    """From the same momentum, with short steps, all go the same way."""
    metric = separable_metric(3)
    q = tf.constant(targets.skewed_draws(4, 3))

    def end(integrator, seed):
        kernel = rm.UncalibratedRiemannianHMC(targets.skewed, np.float64(0.01), 40, metric=metric, integrator=integrator)
        return kernel.one_step(q, kernel.bootstrap_results(q), seed=seed)

    seed = tf.constant([1, 2])
    # `MetricCoupling` draws its momentum with one half of the seed.
    momentum_seed = split_seed(seed)[0] if isinstance(integrator, rm.MetricCoupling) else seed
    there, results = end(integrator, seed)
    expected, _ = end(rm.SeparableLeapfrog(), momentum_seed)
    assert np.all(results.status == rm.Status.OK)
    assert np.abs(expected - q).max() > 0.2
    np.testing.assert_allclose(there, expected, atol=tolerance)


def test_the_repr_shows_shapes_not_matrices():
    text = repr(rm.SeparableMetric(wavy_log_scales, [None, None, np.eye(40)]))
    assert 'wavy_log_scales' in text
    assert '(40, 40)' in text
    assert len(text) < 200


# Eight schools, centred, with a half-Cauchy scale, in every way that TFP knows to write it.
SIGMA = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


def _named(cls, theta, y):
    return cls(
        {
            'mu': tfd.Normal(np.float64(0.0), np.float64(5.0)),
            'tau': tfd.HalfCauchy(np.float64(0.0), np.float64(5.0)),
            'theta': theta,
            'y': y,
        }
    )


def _coroutine(root):
    def model():
        mu = yield root(tfd.Normal(np.float64(0.0), np.float64(5.0), name='mu'))
        tau = yield root(tfd.HalfCauchy(np.float64(0.0), np.float64(5.0), name='tau'))
        theta = yield tfd.Sample(tfd.Normal(mu, tau), 8, name='theta')
        yield tfd.Independent(tfd.Normal(theta, SIGMA), 1, name='y')

    return model


ONES = np.ones(8)
SCHOOLS = {
    'named': _named(
        tfd.JointDistributionNamed,
        lambda mu, tau: tfd.Sample(tfd.Normal(mu, tau), 8),
        lambda theta: tfd.Independent(tfd.Normal(theta, SIGMA), 1),
    ),
    'named-auto': _named(
        tfd.JointDistributionNamedAutoBatched,
        lambda mu, tau: tfd.Normal(mu * ONES, tau * ONES),
        lambda theta: tfd.Normal(theta, SIGMA),
    ),
    'sequential': tfd.JointDistributionSequential(
        [
            tfd.Normal(np.float64(0.0), np.float64(5.0)),
            tfd.HalfCauchy(np.float64(0.0), np.float64(5.0)),
            lambda tau, mu: tfd.Sample(tfd.Normal(mu, tau), 8),
            lambda theta: tfd.Independent(tfd.Normal(theta, SIGMA), 1),
        ]
    ),
    'coroutine': tfd.JointDistributionCoroutine(_coroutine(tfd.JointDistributionCoroutine.Root)),
    'coroutine-auto': tfd.JointDistributionCoroutineAutoBatched(_coroutine(lambda x: x)),
}


def pins_of(name):
    return {'x' if name == 'sequential' else 'y': Y}


@pytest.mark.parametrize('name', SCHOOLS)
def test_the_scales_of_eight_schools_are_the_conditional_ones(name):
    """In every way of writing it: log tau is constant but for what theta says of it, mu and theta follow tau."""
    metric = rm.SeparableMetric.from_prior(SCHOOLS[name], **pins_of(name))
    assert "scales of ['mu', 'theta']" in repr(metric)
    assert "constant prior scales of ['tau']" in repr(metric)
    mu, log_tau, theta = np.array([1.0, -2.0]), np.array([0.3, -1.5]), np.linspace(-3, 3, 16).reshape(2, 8)
    log_prob = lambda mu, tau, theta: targets.gaussian(mu[..., None], tau[..., None], theta)
    # The parts are in `tf.nest.flatten` order of the model's structure, in the space of its bijector: tau as log(tau).
    if 'named' in name:
        local = local_at(metric, lambda mu, tau, theta: log_prob(mu, tau, theta), mu, log_tau, theta)
    else:
        local = local_at(metric, log_prob, mu, log_tau, theta)
    columns = np.split(local.factor.multiply(tf.ones([2, 10], tf.float64)), [1, 2], axis=1)
    precision = dict(zip(['mu', 'tau', 'theta'], columns, strict=True))
    tau = np.exp(log_tau)[:, None]
    np.testing.assert_allclose(precision['mu'], 1.0 / 25.0 + 8.0 / tau**2, rtol=1e-6)
    np.testing.assert_allclose(precision['theta'], 1.0 / tau**2 + 1.0 / SIGMA**2, rtol=1e-6)
    np.testing.assert_allclose(precision['tau'], [[17.0], [17.0]], rtol=1e-6)


def test_a_variable_without_variance_gets_a_constant_and_the_repr_says_so():
    model = tfd.JointDistributionNamed(
        {
            'a': tfd.Cauchy(np.float64(0.0), np.float64(1.0)),
            'b': tfd.StudentT(np.float64(1.0), np.float64(0.0), np.float64(2.0)),
        }
    )
    metric = rm.SeparableMetric.from_prior(model)
    assert "constant prior scales of ['a', 'b']" in repr(metric)
    local = local_at(metric, lambda a, b: targets.gaussian(a[..., None], b[..., None]), np.ones(2), np.ones(2))
    np.testing.assert_allclose(local.factor.multiply(tf.ones([2, 2], tf.float64)), np.ones((2, 2)), rtol=1e-12)


def test_from_prior_names_what_is_wrong():
    with pytest.raises(TypeError, match='`model` must be a joint distribution'):
        rm.SeparableMetric.from_prior(targets.gaussian)
    with pytest.raises(ValueError, match='`z` is not a variable of the model'):
        rm.SeparableMetric.from_prior(SCHOOLS['named'], z=1.0)


def schools_by_quadrature():
    """Means and deviations of mu and log tau, all effects summed out."""
    log_tau = np.linspace(-14.0, 8.0, 8001)
    variance = SIGMA**2 + np.exp(2.0 * log_tau)[:, None]
    precision = 1.0 / 25.0 + np.sum(1.0 / variance, axis=1)
    mean = np.sum(Y / variance, axis=1) / precision
    log_weight = log_tau - np.log1p(np.exp(2.0 * log_tau) / 25.0) - 0.5 * np.log(precision) + 0.5 * mean**2 * precision
    log_weight -= 0.5 * np.sum(np.log(variance) + Y**2 / variance, axis=1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    moments = {}
    for name, first, second in [('mu', mean, 1.0 / precision + mean**2), ('log_tau', log_tau, log_tau**2)]:
        expectation = np.sum(weight * first)
        moments[name] = expectation, np.sqrt(np.sum(weight * second) - expectation**2)
    return moments


def assert_within_four_errors(x, mean, deviation):
    by_chain = np.asarray(x, np.float64).T
    assert abs(by_chain.mean() - mean) < 4.0 * arviz.mcse(by_chain, method='mean')
    assert abs(by_chain.std() - deviation) < 4.0 * arviz.mcse(by_chain, method='sd')


@pytest.mark.statistical
@pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction')
@pytest.mark.parametrize('name', ['named-auto', 'coroutine'])
def test_eight_schools_by_its_prior_against_quadrature(name):
    metric = rm.SeparableMetric.from_prior(SCHOOLS[name], **pins_of(name))
    result = rm.sample_posterior(
        800, SCHOOLS[name], metric=metric, num_chains=8, trajectory_length=6.0, seed=3, **pins_of(name)
    )
    draws, truth = result.variables(), schools_by_quadrature()
    assert_within_four_errors(draws['mu'], *truth['mu'])
    assert_within_four_errors(np.log(draws['tau']), *truth['log_tau'])
    # A doubled phase space and SoftAbs would make about one for every 10,000 gradients.
    ess = float(arviz.ess(np.log(draws['tau']).T))
    print(f'{name}: {1000.0 * ess / result.trace["n_steps"].sum():.1f} effective samples of log tau per 1,000 gradients')
    assert ess > 400.0


@pytest.mark.statistical
@pytest.mark.filterwarnings('ignore:R-hat', 'ignore:The energy fraction')
def test_a_three_level_funnel_by_its_prior():
    """w ~ N(0, 1), v ~ N(w, 1), x_i ~ N(0, exp(-v)): w is N(0, 1) and v is N(0, 2)."""
    model = tfd.JointDistributionNamed(
        {
            'w': tfd.Normal(np.float64(0.0), np.float64(1.0)),
            'v': lambda w: tfd.Normal(w, np.float64(1.0)),
            'x': lambda v: tfd.Sample(tfd.Normal(np.float64(0.0), tf.exp(-0.5 * v)), 6),
        }
    )
    result = rm.sample_posterior(
        600, model, metric=rm.SeparableMetric.from_prior(model), num_chains=8, trajectory_length=4.0, seed=1
    )
    draws = result.variables()
    assert_within_four_errors(draws['w'], 0.0, 1.0)
    assert_within_four_errors(draws['v'], 0.0, np.sqrt(2.0))
    assert_within_four_errors(draws['x'][..., 2] * np.exp(0.5 * draws['v']), 0.0, 1.0)
