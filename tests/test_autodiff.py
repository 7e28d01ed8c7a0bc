"""Derivatives against NumPy and finite differences, on targets of every kind that TFP allows."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests import targets
from tests.conftest import compiled_variants
from tests.numeric import contracted_third_derivative
from tfp_rmhmc import autodiff

tfd = tfp.distributions

PRECISION = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]])


def quartic(q):
    """A log density with all third derivatives known: -sum (b'q)^4 / 24 for three directions b."""
    return -tf.reduce_sum(tf.linalg.matvec(tf.cast(PRECISION, q.dtype), q) ** 4, axis=-1) / 24.0


def quartic_derivatives(q):
    inner = PRECISION @ q
    gradient = -PRECISION.T @ (inner**3) / 6.0
    second = -PRECISION.T @ np.diag(inner**2) @ PRECISION / 2.0
    third = -np.einsum('k,ki,kj,kl->ijl', inner, PRECISION, PRECISION, PRECISION)
    return gradient, second, third


CONSTANTS = np.array([[1.0], [2.0], [3.0], [4.0]])


def only_this_batch(q):
    """Takes the caller's shape and no other: hard-wired axes, and a constant for each of four chains."""
    return quartic(tf.reshape(q, [4, 3])) + tf.reduce_sum(tf.constant(CONSTANTS, q.dtype) * q, axis=1)


def ends_in_a_loop(q):
    """A target with a while loop in it, as ODE solvers have."""
    start = (0, tf.zeros_like(q[..., 0]))
    add = lambda i, total: (i + 1, total + quartic(q) / 3.0)
    return tf.while_loop(lambda i, _: i < 3, add, start, maximum_iterations=3)[1]


MODES = [(quartic, mode) for mode in ('eager', 'graph', 'xla')]
MODES += [(only_this_batch, mode) for mode in ('eager', 'graph', 'xla')]
MODES += [(ends_in_a_loop, mode) for mode in ('eager', 'graph')]


CASES = [(target, mode, np.float64) for target, mode in MODES]
CASES += [(target, mode, np.float32) for target, mode in MODES if target is not ends_in_a_loop]  # slow to trace


@pytest.mark.parametrize(('target', 'mode', 'dtype'), CASES)
def test_first_to_third_derivatives(target, mode, dtype, rng):
    q = rng.standard_normal((4, 3))
    weights = rng.standard_normal((4, 3, 3))
    linear = CONSTANTS if target is only_this_batch else 0.0

    def evaluate(q, weights):
        value, gradient, second = autodiff.hessian(target, q)
        return value, gradient, second, contracted_third_derivative(target, q, weights)

    arguments = [tf.constant(x, dtype) for x in (q, weights)]
    value, gradient, second, third = compiled_variants(evaluate)[mode](*arguments)
    exact = [quartic_derivatives(x) for x in q]
    tolerance = {'rtol': 1e-10, 'atol': 1e-11} if dtype == np.float64 else {'rtol': 2e-4, 'atol': 1e-4}
    np.testing.assert_allclose(value, target(arguments[0]), **tolerance)
    np.testing.assert_allclose(gradient, np.stack([e[0] for e in exact]) + linear, **tolerance)
    np.testing.assert_allclose(second, np.stack([e[1] for e in exact]), **tolerance)
    expected_third = np.einsum('nijk,njk->ni', [e[2] for e in exact], weights)
    np.testing.assert_allclose(third, expected_third, **tolerance)
    assert second.shape == (4, 3, 3)
    assert second.dtype == dtype


@pytest.mark.parametrize('batch', [(), (5,), (2, 3)])
def test_batch_ranks(batch, rng):
    q = rng.standard_normal((*batch, 3))
    _, _, second = tf.function(lambda x: autodiff.hessian(quartic, x))(tf.constant(q))
    assert second.shape == (*batch, 3, 3)
    for index in np.ndindex(*batch):
        np.testing.assert_allclose(second[index], quartic_derivatives(q[index])[1], rtol=1e-10, atol=1e-12)


def test_batch_of_unknown_size(rng):
    fn = tf.function(lambda x: autodiff.hessian(quartic, x)[2], input_signature=[tf.TensorSpec([None, 3], tf.float64)])
    q = rng.standard_normal((4, 3))
    np.testing.assert_allclose(fn(tf.constant(q))[2], quartic_derivatives(q[2])[1], rtol=1e-10)


def test_a_distribution_from_tfp(rng):
    """Cholesky, custom gradients and broadcasting of a real distribution under three derivatives."""
    scale = np.linalg.cholesky(np.linalg.inv(PRECISION))
    distribution = tfd.TransformedDistribution(
        tfd.MultivariateStudentTLinearOperator(
            df=np.float64(4.0), loc=np.zeros(3), scale=tf.linalg.LinearOperatorLowerTriangular(scale)
        ),
        tfp.bijectors.Softsign(),
    )
    q = tf.constant(rng.uniform(-0.5, 0.5, (2, 3)))
    weights = tf.constant(rng.standard_normal((2, 3, 3)))
    step = 1e-5 * np.eye(3)
    second_of = lambda x: autodiff.hessian(distribution.log_prob, x)[2].numpy()
    difference = [(second_of(q + e) - second_of(q - e)) / 2e-5 for e in step]
    expected = np.einsum('injk,njk->ni', difference, weights)
    for fn in compiled_variants(lambda q, w: contracted_third_derivative(distribution.log_prob, q, w)).values():
        np.testing.assert_allclose(fn(q, weights), expected, rtol=1e-6)


@pytest.mark.parametrize('num_outputs', [2, 7])
@pytest.mark.parametrize('mode', ['eager', 'graph', 'xla'])
def test_jacobian_by_rows_and_by_columns(num_outputs, mode, rng):
    weights = rng.standard_normal((num_outputs, 3))
    outputs_of = lambda q: tf.tanh(tf.linalg.matvec(tf.constant(weights), q))
    q = rng.standard_normal((4, 3))
    outputs, jacobian = compiled_variants(lambda q: autodiff.jacobian(outputs_of, q))[mode](tf.constant(q))
    expected = (1.0 - np.tanh(q @ weights.T) ** 2)[..., None] * weights
    np.testing.assert_allclose(outputs, np.tanh(q @ weights.T), rtol=1e-12)
    np.testing.assert_allclose(jacobian, expected, rtol=1e-11, atol=1e-13)


def test_linear_and_quadratic_targets_have_zero_higher_derivatives():
    q = tf.ones([2, 3], tf.float64)
    _, _, second = autodiff.hessian(lambda x: tf.reduce_sum(x, -1), q)
    np.testing.assert_array_equal(second, np.zeros((2, 3, 3)))
    third = contracted_third_derivative(targets.gaussian, q, tf.ones([2, 3, 3], tf.float64))
    np.testing.assert_array_equal(third, np.zeros((2, 3)))


def test_a_target_without_gradient_is_named():
    with pytest.raises(ValueError, match='`target_log_prob_fn` has no gradient'):
        autodiff.value_and_gradient(lambda x: tf.reduce_sum(tf.stop_gradient(x), -1), tf.ones([2, 3]))


def test_the_target_is_called_once_per_hessian():
    calls = []

    def counted(q):
        calls.append(q.shape)
        return quartic(q)

    tf.function(lambda q: autodiff.hessian(counted, q)).get_concrete_function(tf.TensorSpec([4, 3], tf.float64))
    assert calls == [(4, 3)]


@tfd.JointDistributionCoroutineAutoBatched
def auto_batched():
    """A model that TFP maps over its chains by `tf.vectorized_map`."""
    scale = yield tfd.LogNormal(0.0, 1.0, name='scale')
    x = yield tfd.Sample(tfd.Normal(0.0, scale), 2, name='x')
    yield tfd.Normal(tf.reduce_sum(x), 1.0, name='y')


def num_operations(fn, *arguments, **options):
    """Of a program, those inside of functions included."""
    graph = tf.function(fn, autograph=False, **options).get_concrete_function(*arguments).graph.as_graph_def()
    return len(graph.node) + sum(len(function.node_def) for function in graph.library.function)


def test_xla_gets_no_more_of_an_auto_batched_model_than_a_graph():
    target = lambda q: auto_batched.log_prob(scale=tf.exp(q[:, 0]), x=q[:, 1:], y=np.float32(1.0))

    def third_derivatives(q):
        with tf.GradientTape() as tape:
            tape.watch(q)
            _, _, second = autodiff.hessian(target, q)
        return tape.gradient(second, q)

    q = tf.constant([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    in_a_graph = num_operations(third_derivatives, q)
    assert num_operations(third_derivatives, q, jit_compile=True) < 1.5 * in_a_graph  # it was 3.7 times as many
    compiled = tf.function(third_derivatives, autograph=False, jit_compile=True)(q)
    np.testing.assert_allclose(compiled, third_derivatives(q), rtol=1e-4, atol=1e-4)
