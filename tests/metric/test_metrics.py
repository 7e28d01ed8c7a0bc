"""Every metric: derivatives against finite differences, verbs against dense NumPy, failures, arguments."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.conftest import compiled_variants
from tests.integrator.registry import directional_metric, separable_metric
from tests.numeric import central_gradient, relative_error
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.hamiltonian import Hamiltonian
from tfp_rmhmc.linalg import gram

tfb = tfp.bijectors
X, Y = targets.logistic_data(60, 4)


def density_of(fn, position):
    return LogDensity.at_state(fn, [tf.convert_to_tensor(position)])


def logistic_fisher(w):
    x = tf.cast(X, w.dtype)
    probability = tf.sigmoid(tf.linalg.matvec(x, w))
    weights = probability * (1.0 - probability)
    return tf.einsum('nd,...n,ne->...de', x, weights, x) + tf.eye(X.shape[1], dtype=w.dtype)


def wavy_fisher(q):
    d = q.shape[-1]
    scaled = tf.cos(q)[..., None] * 0.3
    return tf.eye(d, dtype=q.dtype) * (1.5 + tf.square(q[..., :1, None])) + scaled * tf.linalg.matrix_transpose(scaled)


def lower_fisher(q):
    """The lower triangle alone, as of a matrix whose user forgot the other."""
    return tf.linalg.band_part(wavy_fisher(q), -1, 0)


def tanh_outputs(q):
    x = tf.cast(tf.linspace(-1.0, 1.0, 7)[:, None] * tf.ones([7, q.shape[-1]]), q.dtype)
    return tf.tanh(tf.linalg.matvec(x + 0.1, q)) + 0.1 * q[..., :1]


def class_logits(q):
    hidden = tf.tanh(tanh_outputs(q))
    return tf.stack([hidden, 0.5 * tf.square(hidden), 0.1 * hidden], axis=-1)


def indefinite(q):
    """A saddle of U at zero inside a quartic well."""
    return tf.reduce_sum(0.5 * tf.square(q) - 0.1 * q**4, axis=-1) + 0.2 * q[..., 0] * q[..., -1]


def flat_direction(q):
    """No dependence on the last coordinate: an exactly singular Hessian."""
    return -tf.reduce_sum(tf.exp(q[..., :-1]) + tf.square(q[..., :-1]), axis=-1)


def hinge_at_zero(q):
    """U = q0^3/6 + q^2/2...: an eigenvalue that passes through zero at q0 = 0."""
    q0, q1 = q[..., 0], q[..., 1]  # `**` would not do: TensorFlow's third derivative of x**2 at zero is NaN
    return -q0 * tf.square(q0) / 6.0 - 0.5 * tf.reduce_sum(tf.square(q[..., 1:]), -1) - 0.1 * q0 * tf.square(q1)


def isotropic(q):
    return -0.5 * tf.reduce_sum(tf.square(q), axis=-1)


def log_gamma(y):
    """y = log(x) with x ~ Gamma(3), whose Hessian in x is -2 / x^2."""
    return tf.reduce_sum(3.0 * y - tf.exp(y), axis=-1)


def funnel_point(v, on_axis=False, dimension=11):
    x = np.zeros(dimension - 1) if on_axis else np.exp(-0.5 * v) * np.linspace(-1.2, 1.5, dimension - 1)
    return np.concatenate([[v], x])


SOFTABS = rm.SoftAbsMetric()
CASES = {
    'softabs-isotropic': (SOFTABS, isotropic, np.linspace(-1, 2, 6)),
    'softabs-funnel-axis': (SOFTABS, targets.funnel, funnel_point(0.7, on_axis=True)),
    'softabs-funnel--9': (SOFTABS, targets.funnel, funnel_point(-9.0)),
    'softabs-funnel-0': (SOFTABS, targets.funnel, funnel_point(0.0)),
    'softabs-funnel-9': (SOFTABS, targets.funnel, funnel_point(9.0)),
    'softabs-singular': (SOFTABS, flat_direction, np.array([0.3, -0.4, 1.0])),
    'softabs-crossing-zero': (rm.SoftAbsMetric(2.0), hinge_at_zero, np.array([0.0, 0.0, 0.5])),
    'softabs-indefinite': (SOFTABS, indefinite, np.array([0.1, -0.3, 0.2])),
    'softabs-skewed': (SOFTABS, targets.skewed, np.array([0.5, -1.0, 0.1, 0.3])),
    'softabs-one-dimension': (SOFTABS, targets.skewed, np.array([0.4])),
    'softabs-50': (SOFTABS, targets.funnel, funnel_point(1.0, dimension=50)),
    'softabs-wide': (rm.SoftAbsMetric(1.0), indefinite, np.array([0.1, -0.3, 0.2])),
    'hessian-skewed': (rm.HessianMetric(), targets.skewed, np.array([0.5, -1.0, 0.1])),
    'hessian-isotropic': (rm.HessianMetric(), isotropic, np.linspace(-1, 2, 6)),
    'hessian-logistic': (rm.HessianMetric(), targets.logistic_regression(X, Y), np.array([0.4, -0.2, 0.1, 0.9])),
    'hessian-50': (rm.HessianMetric(), targets.skewed, np.linspace(-0.5, 0.5, 50)),
    'euclidean': (rm.EuclideanMetric(), targets.skewed, np.array([0.5, -1.0, 0.1])),
    'euclidean-scalar': (rm.EuclideanMetric(3.0), targets.skewed, np.array([0.5, -1.0, 0.1])),
    'euclidean-diagonal': (rm.EuclideanMetric([1.0, 2.0, 5.0]), targets.skewed, np.array([0.5, -1.0, 0.1])),
    'euclidean-dense': (rm.EuclideanMetric([[2.0, 0.5], [0.5, 1.0]]), targets.banana, np.array([0.5, -1.0])),
    'fisher-logistic': (
        rm.FisherMetric(logistic_fisher),
        targets.logistic_regression(X, Y),
        np.array([0.4, -0.2, 0.1, 0.9]),
    ),
    'fisher-not-symmetric': (rm.FisherMetric(lower_fisher), targets.skewed, np.array([0.5, -1.0, 0.1])),
    'pullback-not-symmetric': (
        rm.PullbackMetric(rm.FisherMetric(lower_fisher), tfb.Softplus()),
        targets.skewed,
        np.array([0.5, -1.0, 0.1]),
    ),
    'fisher-one-dimension': (rm.FisherMetric(wavy_fisher), targets.skewed, np.array([0.4])),
    'fisher-50': (rm.FisherMetric(wavy_fisher), targets.skewed, np.linspace(-0.5, 0.5, 50)),
    'gauss-newton': (rm.GaussNewtonMetric(tanh_outputs, 'gaussian', 0.5), isotropic, np.array([0.5, -1.0, 0.1])),
    'gauss-newton-few-outputs': (
        rm.GaussNewtonMetric(lambda q: tanh_outputs(q)[..., :2], 'poisson', np.linspace(0.5, 1, 4)),
        isotropic,
        np.array([0.5, -1.0, 0.1, 0.2]),
    ),
    'gauss-newton-bernoulli': (
        rm.GaussNewtonMetric(tanh_outputs, 'bernoulli', np.eye(3) * 2.0),
        isotropic,
        np.array([0.5, -1.0, 0.1]),
    ),
    'gauss-newton-categorical': (
        rm.GaussNewtonMetric(class_logits, 'categorical'),
        isotropic,
        np.array([0.5, -1.0, 0.1]),
    ),
    'gauss-newton-callable': (
        rm.GaussNewtonMetric(tanh_outputs, lambda z: 2.0 + tf.square(z)),
        isotropic,
        np.array([0.5, -1.0, 0.1]),
    ),
    'gauss-newton-design': (
        rm.GaussNewtonMetric.of_design(X, 'bernoulli', 0.5),
        targets.logistic_regression(X, Y),
        np.array([0.4, -0.2, 0.1, 0.9]),
    ),
    'gauss-newton-design-one-dimension': (rm.GaussNewtonMetric.of_design(X[:, :1], 'poisson'), isotropic, np.array([0.4])),
    'diagonal-funnel': (rm.DiagonalMetric(0.5), targets.funnel, funnel_point(0.0)),
    'diagonal-own': (
        rm.DiagonalMetric(diagonal_fn=lambda q, g: 1.0 + tf.square(q) + tf.abs(g)),
        targets.skewed,
        np.array([0.5, -1.0, 0.1]),
    ),
    'diagonal-one-dimension': (rm.DiagonalMetric(), targets.skewed, np.array([0.4])),
    'diagonal-50': (rm.DiagonalMetric(), targets.skewed, np.linspace(-0.5, 0.5, 50)),
    'monge-funnel': (rm.MongeMetric(0.7), targets.funnel, funnel_point(0.0)),
    'monge-isotropic': (rm.MongeMetric(), isotropic, np.linspace(-1, 2, 6)),
    'monge-one-dimension': (rm.MongeMetric(2.0), targets.skewed, np.array([0.4])),
    'monge-50': (rm.MongeMetric(), targets.skewed, np.linspace(-0.5, 0.5, 50)),
    'separable-funnel': (
        rm.SeparableMetric(lambda v, x: [-0.8, -0.5 * v], blocks=[[0], list(range(1, 11))]),
        targets.funnel,
        funnel_point(0.7),
    ),
    'separable-correlated': (separable_metric(5), targets.skewed, np.array([0.5, -1.0, 0.1, 0.3, 0.8])),
    'separable-directions': (directional_metric(5), targets.skewed, np.array([0.5, -1.0, 0.1, 0.3, 0.8])),
    'separable-low-rank': (
        rm.SeparableMetric(
            lambda a, b: [0.3 * tf.sin(tf.reduce_sum(b, axis=-1, keepdims=True)), -0.2 * a[..., :1]],
            [None, np.array([[1.0], [0.5], [-0.3]])],
            blocks=[[3, 0], [1, 2, 4]],
        ),
        targets.skewed,
        np.array([0.5, -1.0, 0.1, 0.3, 0.8]),
    ),
    'separable-one-dimension': (rm.SeparableMetric(lambda x: [0.4]), targets.skewed, np.array([0.4])),
    'pullback-fisher': (
        rm.PullbackMetric(rm.FisherMetric(wavy_fisher), tfb.Softplus()),
        targets.skewed,
        np.array([0.5, -1.0, 0.1]),
    ),
    'pullback-hessian': (
        rm.PullbackMetric(rm.HessianMetric(), tfb.Exp()),
        log_gamma,
        np.array([0.5, -1.0, 0.1]),
    ),
}
# Metrics that are defined everywhere, at every kind of place.
EVERYWHERE = {
    'softabs': SOFTABS,
    'euclidean': rm.EuclideanMetric(2.0),
    'fisher': rm.FisherMetric(wavy_fisher),
    'gauss-newton': rm.GaussNewtonMetric(tanh_outputs, 'bernoulli', 0.5),
    'diagonal': rm.DiagonalMetric(0.5),
    'monge': rm.MongeMetric(0.7),
    'pullback': rm.PullbackMetric(
        rm.FisherMetric(wavy_fisher),
        tfb.Inline(forward_fn=lambda y: y + 0.5 * tf.sin(y), forward_min_event_ndims=0, is_constant_jacobian=False),
    ),
}
PLACES = {
    'isotropic': (isotropic, np.linspace(-1, 2, 6)),
    'funnel-axis': (targets.funnel, funnel_point(0.7, on_axis=True)),
    'funnel--9': (targets.funnel, funnel_point(-9.0)),
    'funnel-0': (targets.funnel, funnel_point(0.0)),
    'funnel-9': (targets.funnel, funnel_point(9.0)),
    'singular': (flat_direction, np.array([0.3, -0.4, 1.0])),
    'indefinite': (indefinite, np.array([0.1, -0.3, 0.2])),
    'skewed': (targets.skewed, np.array([0.5, -1.0, 0.1, 0.3])),
    'one-dimension': (targets.skewed, np.array([0.4])),
    'fifty-dimensions': (targets.skewed, np.linspace(-0.5, 0.5, 50)),
}
CASES |= {
    f'{metric}-at-{place}': (EVERYWHERE[metric], *PLACES[place])
    for metric in EVERYWHERE
    for place in PLACES
    if f'{metric}-{place}' not in CASES
}
KINDS = ['softabs-funnel-0', 'hessian-skewed', 'euclidean-dense', 'fisher-logistic', 'gauss-newton-categorical']
KINDS += [
    'gauss-newton-design',
    'fisher-not-symmetric',
    'diagonal-funnel',
    'monge-funnel',
    'pullback-fisher',
    'separable-correlated',
    'separable-low-rank',
    'separable-directions',
]


def local_at(case, q, dtype=tf.float64):
    metric, fn, _ = CASES[case]
    q = tf.convert_to_tensor(q, dtype)
    return Hamiltonian(density_of(fn, q), metric).at(q)


def dense(factor, dimension, dtype=np.float64):
    """The matrix that `factor.multiply` applies."""
    rows = [factor.multiply(tf.constant(e[None], dtype)) for e in np.eye(dimension)]
    return np.concatenate([row.numpy() for row in rows]).T


def curvature_scale(fn, q):
    """A length per coordinate over which the target changes."""
    gradient_of = tf.function(lambda x: tfp.math.value_and_gradient(fn, x)[1])
    steps = 1e-4 * np.eye(q.size)
    second = (gradient_of(q + steps).numpy() - gradient_of(q - steps).numpy()).diagonal() / 2e-4
    return 1.0 / np.sqrt(1.0 + np.abs(second))


@pytest.mark.parametrize('case', CASES)
def test_force_and_velocity_are_derivatives_of_the_energy(case, rng):
    _, fn, q = CASES[case]
    p = rng.standard_normal(q.size) * np.sqrt(dense(local_at(case, q[None]).factor, q.size).diagonal())

    def energy_of_q(points):
        return local_at(case, points).energy(tf.constant(np.broadcast_to(p, points.shape)))

    def energy_of_p(momenta):
        return local_at(case, np.broadcast_to(q, momenta.shape)).energy(tf.constant(momenta))

    local = local_at(case, q[None])
    force = -central_gradient(energy_of_q, q, 2e-3 * curvature_scale(fn, q))
    velocity = central_gradient(energy_of_p, p, 1e-2 * (1.0 + np.abs(p)))
    assert relative_error(local.force(tf.constant(p[None]))[0], force) < 1e-6
    assert relative_error(local.velocity(tf.constant(p[None]))[0], velocity) < 1e-6


@pytest.mark.parametrize('case', CASES)
def test_float32_agrees_with_float64(case, rng):
    _, _, q = CASES[case]
    # Round first, so that the two precisions are asked about the same point.
    q = q.astype(np.float32)
    p = (rng.standard_normal(q.size) * np.sqrt(dense(local_at(case, q[None]).factor, q.size).diagonal())).astype(np.float32)
    wide, narrow = local_at(case, q[None]), local_at(case, q[None], tf.float32)
    for verb in ('force', 'velocity', 'energy'):
        expected = getattr(wide, verb)(tf.constant(p[None], tf.float64))
        got = getattr(narrow, verb)(tf.constant(p[None]))
        assert got.dtype == tf.float32
        assert relative_error(got, expected) < 1e-2


@pytest.mark.parametrize('case', KINDS)
@pytest.mark.parametrize('dtype', [np.float64, np.float32])
def test_verbs_agree_with_dense_numpy(case, dtype, rng):
    _, _, q = CASES[case]
    factor = local_at(case, q[None], dtype).factor
    matrix = dense(factor, q.size, dtype).astype(np.float64)
    vector = rng.standard_normal((1, q.size)).astype(dtype)
    tolerance = {np.float64: 1e-9, np.float32: 2e-2}[dtype]
    solved = factor.solve(factor.multiply(tf.constant(vector)))
    root = np.concatenate([factor.sqrt_multiply(tf.constant(e[None], dtype)).numpy() for e in np.eye(q.size)]).T
    np.testing.assert_allclose(matrix, matrix.T, rtol=tolerance, atol=tolerance * np.abs(matrix).max())
    assert relative_error(solved, vector) < tolerance
    assert relative_error(root @ root.T, matrix) < tolerance
    assert relative_error(factor.half_log_det[0], 0.5 * np.linalg.slogdet(matrix)[1]) < tolerance


def test_softabs_matrix_is_the_paper_s():
    q = np.array([0.1, -0.3, 0.2])
    with tf.GradientTape(persistent=True) as outer:
        x = tf.constant(q)
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            value = -indefinite(x)
        gradient = inner.gradient(value, x)
    lam, vectors = np.linalg.eigh(outer.jacobian(gradient, x).numpy())
    assert lam.min() < 0
    expected = vectors @ np.diag(lam / np.tanh(lam)) @ vectors.T
    np.testing.assert_allclose(dense(local_at('softabs-wide', q[None]).factor, 3), expected, rtol=1e-12, atol=1e-14)


def test_gauss_newton_of_a_linear_logistic_model_is_its_hessian():
    logits = lambda w: tf.linalg.matvec(tf.cast(X, w.dtype), w)
    q = tf.constant([[0.4, -0.2, 0.1, 0.9]], tf.float64)
    density = density_of(targets.logistic_regression(X, Y), q)
    matrices = [
        metric.matrix(density, q).numpy()
        for metric in (rm.GaussNewtonMetric(logits, 'bernoulli'), rm.HessianMetric(), rm.FisherMetric(logistic_fisher))
    ]
    np.testing.assert_allclose(matrices[0], matrices[1], rtol=1e-10)
    np.testing.assert_allclose(matrices[0], matrices[2], rtol=1e-10)


@pytest.mark.parametrize('outer_products', ['beforehand', 'too large'])
@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
@pytest.mark.parametrize('batch', [(), (3,), (2, 3)])
def test_gauss_newton_of_a_design_is_that_of_its_product(outer_products, dtype, batch, monkeypatch, rng):
    if outer_products == 'too large':
        monkeypatch.setattr(gram, '_MAX_PRODUCTS', 0)
    q = tf.constant(rng.standard_normal((*batch, 4)), dtype)
    p = tf.constant(rng.standard_normal((*batch, 4)), dtype)
    density = density_of(isotropic, q)
    product = lambda w: tf.linalg.matvec(tf.cast(X, w.dtype), w)
    given, differentiated = (rm.GaussNewtonMetric(outputs, 'poisson', 0.5).at(density, q) for outputs in (X, product))
    tolerance = 1e-4 if dtype == tf.float32 else 1e-11
    identity = tf.eye(4, batch_shape=batch, dtype=dtype)
    for verb in ('multiply', 'solve'):
        columns = [
            tf.stack([getattr(local.factor, verb)(identity[..., i, :]) for i in range(4)])
            for local in (given, differentiated)
        ]
        np.testing.assert_allclose(*columns, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(given.energy_gradient(p), differentiated.energy_gradient(p), rtol=tolerance, atol=tolerance)


def test_a_design_may_be_given_while_a_function_is_traced():
    q = tf.constant([[0.4, -0.2, 0.1, 0.9]], tf.float64)
    matrix = lambda q: rm.GaussNewtonMetric.of_design(X, 'bernoulli').matrix(density_of(isotropic, q), q)
    np.testing.assert_allclose(tf.function(matrix, autograph=False)(q), matrix(q), rtol=1e-13)


def test_pullback_is_the_change_of_coordinates():
    q = tf.constant([[0.5, -1.0, 0.1]], tf.float64)
    bijector = tfb.Softplus()
    jacobian = np.diag(tf.sigmoid(q[0]).numpy())
    expected = jacobian.T @ wavy_fisher(bijector.forward(q))[0].numpy() @ jacobian
    got = rm.PullbackMetric(rm.FisherMetric(wavy_fisher), bijector).matrix(density_of(targets.skewed, q), q)
    np.testing.assert_allclose(got[0], expected, rtol=1e-12, atol=1e-14)


def test_pullback_of_a_hessian_takes_it_in_the_original_space():
    y = tf.constant([[0.3], [-0.5]], tf.float64)
    matrix = rm.PullbackMetric(rm.HessianMetric(), tfb.Exp()).matrix(density_of(log_gamma, y), y)
    np.testing.assert_allclose(matrix[:, 0, 0], [2.0, 2.0], rtol=1e-10)


@pytest.mark.parametrize('case', KINDS)
def test_eager_graph_and_xla_agree(case, rng):
    _, _, q = CASES[case]
    q = q + 0.1 * rng.standard_normal((3, q.size))
    p = rng.standard_normal(q.shape)

    def evaluate(q, p):
        local = local_at(case, q)
        return local.energy(p), local.velocity(p), local.force(p), local.draw_momentum([1, 2])

    results = {name: fn(tf.constant(q), tf.constant(p)) for name, fn in compiled_variants(evaluate).items()}
    for name in ('graph', 'xla'):
        for got, expected in zip(results[name], results['eager'], strict=True):
            assert relative_error(got, expected) < 1e-7  # XLA's eigenvectors are orthonormal to 1e-8


@pytest.mark.parametrize('case', KINDS)
def test_a_chain_in_a_batch_equals_the_chain_alone(case, rng):
    _, _, q = CASES[case]
    q = q + 0.1 * rng.standard_normal((2, 3, q.size))
    p = rng.standard_normal(q.shape)

    def evaluate(q, p):
        local = local_at(case, q)
        return local.energy(p), local.velocity(p), local.force(p)

    together = evaluate(q, p)
    for index in np.ndindex(2, 3):
        for batched, alone in zip(together, evaluate(q[index], p[index]), strict=True):
            np.testing.assert_allclose(batched[index], alone, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize('case', KINDS)
def test_momentum_has_covariance_g(case):
    _, _, q = CASES[case]
    num = 40000
    momenta = local_at(case, np.broadcast_to(q, (num, q.size))).draw_momentum([3, 4]).numpy()
    matrix = dense(local_at(case, q[None]).factor, q.size)
    whitened = np.linalg.solve(np.linalg.cholesky(matrix), momenta.T)
    # Entries of the sample covariance of whitened draws deviate by sqrt(2 / num) at most; 5.5 of these.
    assert np.abs(whitened @ whitened.T / num - np.eye(q.size)).max() < 5.5 * np.sqrt(2.0 / num)
    assert np.abs(whitened.mean(axis=1)).max() < 5.0 / np.sqrt(num)


@pytest.mark.parametrize('case', KINDS)
@pytest.mark.parametrize('mode', ['eager', 'graph', 'xla'])
@pytest.mark.parametrize('bad', [np.nan, np.inf, 1e200])
def test_a_bad_chain_stays_alone(case, mode, bad):
    _, _, q = CASES[case]
    good = np.stack([q, q, q])
    broken = good.copy()
    broken[1] = bad
    p = np.ones_like(good)

    def evaluate(q, p):
        local = local_at(case, q)
        return local.energy(p), local.velocity(p), local.force(p)

    fn = compiled_variants(evaluate)[mode]
    expected, got = fn(tf.constant(good), tf.constant(p)), fn(tf.constant(broken), tf.constant(p))
    assert not np.isfinite(got[0][1])
    for e, g in zip(expected, got, strict=True):
        np.testing.assert_allclose(g.numpy()[[0, 2]], e.numpy()[[0, 2]], rtol=1e-9, atol=1e-10)


def test_a_matrix_that_is_not_positive_definite_rejects_only_its_chain():
    q = np.array([[0.1, 0.1, 0.1], [2.0, 2.0, 2.0]])
    energy = tf.function(
        lambda q: Hamiltonian(density_of(indefinite, q), rm.HessianMetric()).at(q).energy(tf.ones_like(q))
    )(tf.constant(q))
    assert np.isnan(energy[0])
    assert np.isfinite(energy[1])


@pytest.mark.parametrize(
    ('case', 'op'),
    [('softabs-funnel-0', 'SelfAdjointEigV2'), ('hessian-skewed', 'Cholesky'), ('fisher-logistic', 'Cholesky')],
)
def test_one_factorisation_per_evaluation_and_none_differentiated(case, op):
    _, _, q = CASES[case]

    def evaluate(q, p):
        local = local_at(case, q)
        return local.energy(p), local.velocity(p), local.force(p), local.force(2.0 * p)

    spec = tf.TensorSpec([4, q.size], tf.float64)
    graph = tf.function(evaluate, autograph=False).get_concrete_function(spec, spec).graph
    kinds = [node.op for node in graph.as_graph_def().node]
    kinds += [node.op for function in graph.as_graph_def().library.function for node in function.node_def]
    factorisations = [kind for kind in kinds if kind in ('SelfAdjointEigV2', 'Cholesky', 'CholeskyGrad', 'Svd', 'Qr')]
    assert factorisations == [op]


BAD_ARGUMENTS = [
    (lambda: rm.SoftAbsMetric(0.0), ValueError, '`alpha`.*0.0'),
    (lambda: rm.SoftAbsMetric(-2.0), ValueError, '`alpha`.*-2.0'),
    (lambda: rm.SoftAbsMetric(float('nan')), ValueError, '`alpha`.*nan'),
    (lambda: rm.MongeMetric(-1.0), ValueError, '`alpha`.*-1.0'),
    (lambda: rm.DiagonalMetric(offset=0.0), ValueError, '`offset`.*0.0'),
    (lambda: rm.DiagonalMetric(diagonal_fn=3), TypeError, '`diagonal_fn`.*3'),
    (lambda: rm.EuclideanMetric(np.ones((2, 3))), ValueError, r'`mass`.*\(2, 3\)'),
    (lambda: rm.EuclideanMetric([1.0, -1.0]), ValueError, '`mass`.*-1'),
    (lambda: rm.EuclideanMetric([[1.0, 2.0], [2.0, 1.0]]), ValueError, '`mass`'),
    (lambda: rm.FisherMetric('no function'), TypeError, '`fisher_fn`.*no function'),
    (lambda: rm.GaussNewtonMetric('no function'), TypeError, '`output_fn`.*no function'),
    (lambda: rm.GaussNewtonMetric(np.ones(3)), TypeError, '`output_fn`.*1., 1., 1.'),
    (lambda: rm.GaussNewtonMetric(X * np.inf), ValueError, '`output_fn`.*inf'),
    (lambda: rm.GaussNewtonMetric.of_design(X * np.inf), ValueError, '`design`.*inf'),
    (lambda: rm.GaussNewtonMetric.of_design(np.ones(3)), TypeError, '`design`.*1., 1., 1.'),
    (lambda: rm.SoftAbsMetric(structure='banded'), ValueError, '`structure`.*banded'),
    (lambda: rm.GaussNewtonMetric(X, data='pieces'), ValueError, '`data`.*pieces'),
    (lambda: rm.GaussNewtonMetric(tanh_outputs, 'cauchy'), ValueError, '`likelihood`.*cauchy'),
    (lambda: rm.GaussNewtonMetric(tanh_outputs, prior_precision=-1.0), ValueError, '`prior_precision`.*-1.0'),
    (lambda: rm.PullbackMetric(rm.SoftAbsMetric(), tfb.Exp()), TypeError, '`metric`.*SoftAbsMetric'),
]


@pytest.mark.parametrize(('make', 'error', 'message'), BAD_ARGUMENTS)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_wrong_shapes_are_named_at_first_use():
    q = tf.zeros([5, 3], tf.float64)
    density = density_of(isotropic, q)
    with pytest.raises(ValueError, match=r'`fisher_fn` must return shape \(5, 3, 3\), got shape \(5, 2, 2\)'):
        rm.FisherMetric(lambda q: tf.eye(2, batch_shape=[5], dtype=q.dtype)).at(density, q)
    with pytest.raises(ValueError, match=r'`mass`.*3 coordinates.*\(2,\)'):
        rm.EuclideanMetric([1.0, 2.0]).at(density, q)
    with pytest.raises(ValueError, match=r'`diagonal_fn`.*\(5, 3\).*\(5,\)'):
        rm.DiagonalMetric(diagonal_fn=lambda q, g: q[..., 0]).at(density, q)
    with pytest.raises(ValueError, match=r'`output_fn`'):
        rm.GaussNewtonMetric(lambda q: q[..., 0]).at(density, q)
    with pytest.raises(ValueError, match=r'`output_fn`.* 3 coordinates.*\(60, 4\)'):
        rm.GaussNewtonMetric(X).at(density, q)
    with pytest.raises(ValueError, match=r'`likelihood`.*\(5, 60\).*\(5, 60, 60\)'):
        rm.GaussNewtonMetric(X[:, :3], 'categorical').at(density, q)


def test_repr_shows_the_arguments():
    assert repr(rm.SoftAbsMetric(2.0)) == 'SoftAbsMetric(alpha=2.0)'
