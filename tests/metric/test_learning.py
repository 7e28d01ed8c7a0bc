"""Learned metrics: who sets whose scale, with what exponent, and that a constant metric stays one."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm
from tests import targets
from tests.integrator.registry import directional_metric
from tfp_rmhmc.metric import LearnedMetric, fit_metric, normal_scores
from tfp_rmhmc.metric.learning import _autocorrelations, _colours, _shrunk
from tfp_rmhmc.metric.pencil import _TIME, _mixture, parameters_along_directions
from tfp_rmhmc.metric.regression import gamma_regression, log_precisions


def scores_of(log_prob, draws):
    q = tf.constant(draws)
    with tf.GradientTape() as tape:
        tape.watch(q)
        log_probs = log_prob(q)
    return tape.gradient(log_probs, q).numpy()


def learn(log_prob, draws, **kwargs):
    """From independent draws `[n, D]`, as if they were four chains."""
    shape = (len(draws) // 4, 4, draws.shape[1])
    return fit_metric(draws.reshape(shape), scores_of(log_prob, draws).reshape(shape), **kwargs)


@pytest.mark.parametrize('permuted', [False, True])
def test_the_funnel_s_setter_and_exponent_are_found(permuted):
    order = np.random.default_rng(3).permutation(11) if permuted else np.arange(11)
    inverse = np.argsort(order)
    v = int(inverse[0])  # where the coordinate is that sets the scales
    fit = learn(lambda q: targets.funnel(tf.gather(q, inverse, axis=-1)), targets.funnel_draws(1000)[:, order])
    assert sorted(map(len, fit.structure.blocks)) == [1, 10]
    assert (v,) in fit.structure.blocks
    assert {j for _, j in fit.exponents} == {v}
    np.testing.assert_allclose(list(fit.exponents.values()), -0.5, atol=0.04)
    # v holds the information that the others carry about it.
    block = fit.structure.blocks.index((v,))
    np.testing.assert_allclose(np.exp(fit.parameters[block]['c']), 1.0 / 9.0 + 5.0, rtol=0.15)
    assert fit.gain > 5.0
    assert fit.residual == 0.0


def test_three_levels_are_found():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((2000, 1))
    v = 2.0 * w + 0.3 * rng.standard_normal((2000, 1))
    x = np.exp(-0.5 * v) * rng.standard_normal((2000, 8))

    def log_prob(q):
        w, v, x = q[..., 0], q[..., 1], q[..., 2:]
        prior = -0.5 * tf.square(w) - 0.5 * tf.square((v - 2.0 * w) / 0.3) + 4.0 * v
        return prior - 0.5 * tf.exp(v) * tf.reduce_sum(tf.square(x), axis=-1)

    fit = learn(log_prob, np.concatenate([w, v, x], axis=1))
    assert all((i, 1) in fit.exponents for i in range(2, 10))
    np.testing.assert_allclose([fit.exponents[i, 1] for i in range(2, 10)], -0.5, atol=0.12)


@pytest.mark.parametrize('dimension', [1, 2, 20])
def test_a_gaussian_s_precision_is_found_exactly_from_few_draws(dimension, rng):
    """The geometric mean of both covariances is the precision itself, but for a little shrinkage, in every direction."""
    root = np.tril(rng.standard_normal((dimension, dimension))) + 2.0 * np.eye(dimension)
    precision = root @ root.T
    draws = rng.standard_normal((4000, dimension)) @ np.linalg.inv(root)
    fit = learn(lambda q: -0.5 * tf.reduce_sum(q * tf.matmul(q, tf.constant(precision)), axis=-1), draws)
    assert fit.structure.blocks == (tuple(range(dimension)),)
    assert fit.gain == 0.0
    scale = np.exp(0.5 * fit.parameters[0]['c'])
    correlation = np.eye(1)
    if dimension > 1:
        correlation = fit.parameters[0]['root'] @ fit.parameters[0]['root'].T
    inverse_root = np.linalg.inv(root)
    relative = np.linalg.eigvalsh(inverse_root @ (correlation * np.outer(scale, scale)) @ inverse_root.T)
    assert 0.85 < relative.min() <= relative.max() < 1.15


@pytest.mark.parametrize('name', ['logistic', 'skewed', 'correlated'])
def test_constant_scales_stay_one_block(name, rng):
    if name == 'logistic':
        x, y = targets.logistic_data(300, 12)
        draws = 0.2 * rng.standard_normal((1000, 12))
        fit = learn(targets.logistic_regression(x, y), draws)
    elif name == 'skewed':
        fit = learn(targets.skewed, targets.skewed_draws(1000, 6))
    else:
        draws = rng.standard_normal((1000, 1)) + 0.1 * rng.standard_normal((1000, 15))
        precision = np.linalg.inv(np.ones((15, 15)) + 0.01 * np.eye(15))
        fit = learn(lambda q: -0.5 * tf.reduce_sum(q * tf.matmul(q, tf.constant(precision)), axis=-1), draws)
    assert len(fit.structure.blocks) == 1
    assert fit.exponents == {}


def test_a_banana_is_said_not_to_be_separable():
    fit = learn(targets.banana, targets.banana_draws(2000))
    assert fit.residual > 0.4
    assert fit.residual_coordinates[2] == 0  # x0 bends everything


def test_two_fits_of_the_same_draws_agree_and_bad_draws_are_left_out():
    draws = targets.funnel_draws(1000)
    first, second = learn(targets.funnel, draws), learn(targets.funnel, draws)
    np.testing.assert_array_equal(first.parameters[1]['w'], second.parameters[1]['w'])
    chains, scores = draws.reshape(250, 4, 11).copy(), scores_of(targets.funnel, draws).reshape(250, 4, 11).copy()
    chains[3, 1, 2], scores[7] = np.nan, np.inf
    fit = fit_metric(chains, scores)
    assert fit.structure == first.structure
    assert all(np.all(np.isfinite(x)) for block in fit.parameters for x in block.values())


def test_the_regression_finds_constant_and_slope(rng):
    """Precision 0.5 + exp(1 + 2 q): a constant term and a varying one."""
    q = rng.standard_normal((20_000, 1))
    precision = 0.5 + np.exp(1.0 + 2.0 * q)
    squares = precision * np.square(rng.standard_normal((20_000, 3)))
    found = gamma_regression(q, squares, np.ones((1, 3)))
    np.testing.assert_allclose(found['w'], 2.0, atol=0.1)
    np.testing.assert_allclose(found['a'], 1.0, atol=0.1)
    np.testing.assert_allclose(np.exp(found['c']), 0.5, atol=0.15)


def test_without_evidence_a_constant_term_is_below_all_that_was_seen(rng):
    """Precision exp(q), with nothing added, over as many orders as a funnel has: the fit is not flat where q is low."""
    q = 3.0 * rng.standard_normal((1000, 1))
    found = gamma_regression(q, np.exp(q) * np.square(rng.standard_normal((1000, 20))), np.ones((1, 20)))
    assert np.mean(found['c']) < np.quantile(q, 0.01) - 1.0


def test_blocks_hold_no_setter_of_their_own():
    assert _colours([(), (0,), (0,)]) == [(0,), (1, 2)]
    assert _colours([(), (), ()]) == [(0, 1, 2)]
    for setters in ([(1,), (2,), (0,)], [(), (0,), (1,), (2,)]):
        for block in _colours(setters):
            assert not any(s in block for i in block for s in setters[i])


def test_normal_scores_autocorrelations_and_shrinkage(rng):
    scores = normal_scores(rng.standard_cauchy((1000, 2)))
    np.testing.assert_allclose(scores.std(axis=0), 1.0, atol=0.02)
    chain = np.zeros((4000, 2, 1))
    for t in range(1, len(chain)):
        chain[t] = 0.8 * chain[t - 1] + rng.standard_normal((2, 1))
    np.testing.assert_allclose(_autocorrelations(chain)[:3, 0], [0.8, 0.64, 0.51], atol=0.07)
    assert np.all(_shrunk(np.full((5, 5), 0.01) + 0.99 * np.eye(5), 50.0, 0.0) == np.eye(5))  # all noise
    kept = _shrunk(np.full((5, 5), 0.9) + 0.1 * np.eye(5), 1e6, 0.0)
    assert kept[0, 1] > 0.89


def test_a_gaussian_s_precision_is_found_from_draws_that_depend_on_each_other(rng):
    """A slow walk, whose draws are worth a few: the scores are linear in them all the same, and nothing is shrunk."""
    basis = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    precision = (basis * np.geomspace(1e-2, 1e2, 6)) @ basis.T  # condition number 10^4
    walk = np.cumsum(0.05 * rng.standard_normal((120, 4, 6)), axis=0)
    fit = fit_metric(walk, -walk @ precision)
    (parameters,) = fit.parameters
    scale = np.exp(0.5 * parameters['c'])
    found = parameters['root'] @ parameters['root'].T * np.outer(scale, scale)
    ratios = np.linalg.eigvals(np.linalg.solve(precision, found)).real
    assert ratios.max() / ratios.min() < 1.001


def test_noise_is_shrunk_by_what_held_out_draws_say(rng):
    """Independent coordinates, half as many draws as coordinates: the metric is nearly diagonal."""
    draws = rng.standard_normal((15, 2, 60))
    fit = fit_metric(draws, -draws + 0.3 * rng.standard_normal(draws.shape), learns_scales=False)
    (parameters,) = fit.parameters
    correlation = parameters['root'] @ parameters['root'].T
    values = np.linalg.eigvalsh(correlation)
    assert values[-1] / values[0] < 4.0  # 1 for the truth, infinite for what the draws say


def test_a_fit_tells_how_well_it_describes_other_scores():
    draws, others = targets.funnel_draws(800)[:, None], targets.funnel_draws(800, seed=9)[:, None]
    fit = fit_metric(draws, scores_of(targets.funnel, draws))
    precision = np.concatenate([np.full((800, 1, 1), 5.0 + 1.0 / 9.0), np.exp(others[..., :1]).repeat(10, -1)], axis=-1)
    scores = scores_of(targets.funnel, others)
    exact = -0.5 * np.sum(np.log(precision) + np.square(scores) / precision, axis=-1)
    assert fit.log_density(others, scores) == pytest.approx(np.mean(exact), abs=0.5)
    halved = fit._replace(parameters=[p | {'c': p['c'] - np.log(2.0)} for p in fit.parameters])
    assert halved.log_density(others, scores) < fit.log_density(others, scores)


def test_the_public_way_gives_a_metric_that_samples(rng):
    draws = targets.funnel_draws(800)
    metric = rm.SeparableMetric.learn(draws, scores_of(targets.funnel, draws))
    assert isinstance(metric, LearnedMetric)
    assert metric.fit.gain > 5.0
    assert 'scales set by [0]' in repr(metric)
    kernel = rm.RiemannianHMC(targets.funnel, np.float64(0.5), 10, metric=metric)
    q = tf.constant(targets.funnel_draws(200, seed=5))
    run = tf.function(lambda q: kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2)), autograph=False)
    _, results = run(q)
    assert np.mean(np.exp(np.minimum(results.log_accept_ratio, 0.0))) > 0.8
    with pytest.raises(ValueError, match=r'`draws` and `scores`.*\(3, 2\) and \(3, 1\)'):
        rm.SeparableMetric.learn(np.zeros((3, 2)), np.zeros((3, 1)))
    with pytest.raises(ValueError, match='`draws` must be at least 10, got 3'):
        rm.SeparableMetric.learn(np.zeros((3, 2)), np.zeros((3, 2)))


def group(rng, num, deepest):
    """A group's members x given their log spread s: precision `A + exp(-2 s) B`, where B has rank d - 1.

    Returns s, x, the scores of both, `[n, ...]`, and the precision as a function of s. Along one direction nothing varies.
    """
    data = np.diag(rng.uniform(0.05, 0.2, size=6))
    contrast = np.eye(6) - np.ones((6, 6)) / 6.0
    precision = lambda s: data + np.exp(-2.0 * s) * contrast
    s = np.maximum(rng.normal(0.0, 1.2, size=(num, 1)), deepest)
    x = np.stack([rng.multivariate_normal(np.zeros(6), np.linalg.inv(precision(one))) for one in s[:, 0]])
    scores = np.stack([-precision(one) @ y for one, y in zip(s[:, 0], x, strict=True)])
    return s, x, scores, precision


def ratios(parameters, precision, s):
    """Eigenvalues of the metric by those of the truth at one s."""
    found = np.exp(log_precisions(parameters, np.array([[s]])))[0]
    matrix = parameters['directions'].T @ np.diag(found) @ parameters['directions']
    return np.linalg.eigvals(np.linalg.solve(precision(s), matrix)).real


def test_directions_of_a_constant_and_a_varying_part_are_found_from_few_draws(rng):
    """What a constant correlation cannot express: precisions that grow in all directions but one."""
    s, x, scores, precision = group(rng, 200, -np.inf)
    found = parameters_along_directions(s, x, scores, 1e-8)
    np.testing.assert_allclose(found['directions'] @ found['dual'], np.eye(6), atol=1e-8)
    np.testing.assert_allclose(np.abs(np.linalg.det(found['directions'])), 1.0, rtol=1e-8)
    # Diagonal at every s: the directions are those of both matrices.
    for one in (-3.0, 0.0, 3.0):
        diagonal = found['dual'].T @ precision(one) @ found['dual']
        spread = np.sqrt(np.diag(diagonal))
        np.testing.assert_allclose(diagonal / np.outer(spread, spread), np.eye(6), atol=0.02)
    for one in (-1.5, 0.0, 1.5):
        relative = ratios(found, precision, one)
        assert relative.max() / relative.min() < 3.0
    # Coordinates that are scaled as they are at -1.5, with the correlation of 1.5, are far from it.
    spreads = [np.sqrt(np.diag(precision(one))) for one in (-1.5, 1.5)]
    other = precision(1.5) / np.outer(spreads[1], spreads[1]) * np.outer(spreads[0], spreads[0])
    relative = np.linalg.eigvals(np.linalg.solve(precision(-1.5), other)).real
    assert relative.max() / relative.min() > 10.0


def test_directions_are_trusted_as_far_as_draws_know_them(rng):
    """What is added is the variance that directions from so few draws let leak, by simulation, and the mean stays."""
    s = rng.normal(0.0, 1.2, size=150)
    precisions = np.stack([np.full(150, 0.3), np.exp(-2.0 * s)], axis=1)
    along = np.sqrt(precisions) * rng.standard_normal((4000, 150, 2))
    # The share of the second direction's scores in what is estimated to be the first, where the truth is none.
    products, squares = (np.sum(along[..., 1] * along[..., k] / precisions[:, 0], axis=1) for k in (0, 1))
    shares = products / squares
    mixture = _mixture(precisions)
    assert mixture[0, 1] / mixture[0, 0] == pytest.approx(_TIME * np.mean(np.square(shares)), rel=0.3)
    np.testing.assert_allclose(np.mean(np.log(precisions @ mixture.T / precisions)), 0.0, atol=1e-12)
    deep = np.array([0.3, np.exp(2.0 * 6.0)])  # where there are no draws
    assert (mixture @ deep)[0] > 4.0 * deep[0]


def test_the_metric_of_a_fit_is_what_was_fitted(rng):
    """Directions, scales and leaks in TensorFlow, as they are in NumPy, where they were judged."""
    metric = directional_metric(5)
    parameters = metric.parameters_of_blocks[1]
    q = rng.standard_normal((1, 5))
    density = rm.LogDensity.at_state(targets.gaussian, [tf.constant(q)])
    factor = rm.Hamiltonian(density, metric).at(tf.constant(q)).factor
    found = np.concatenate([factor.multiply(tf.constant(e[None])).numpy() for e in np.eye(5)])
    precision = np.exp(log_precisions(parameters, q[:, :1]))[0]
    expected = parameters['directions'].T @ np.diag(precision) @ parameters['directions']
    np.testing.assert_allclose(found[1:, 1:], expected, rtol=1e-10)
    np.testing.assert_allclose(found[0], [np.exp(0.3), 0.0, 0.0, 0.0, 0.0], rtol=1e-10)


def test_a_fit_takes_directions_where_they_describe_scores_better(rng):
    """And says which coordinates set scales, which a user knows, not which directions."""
    s, x, scores, _ = group(rng, 800, -np.inf)
    draws, gradients = np.concatenate([s, x], axis=1), np.concatenate([-s, scores], axis=1)
    fit = fit_metric(draws[:, None], gradients[:, None])
    assert sorted(fit.structure.setters) == [(), (0,)]
    assert any(fit.structure.has_directions)
    assert {pair[1] for pair in fit.exponents} == {0}
    np.testing.assert_allclose(list(fit.exponents.values()), 1.0, atol=0.2)
    # A funnel has nothing to gain from them.
    funnel = learn(targets.funnel, targets.funnel_draws(800))
    assert not any(funnel.structure.has_directions)
