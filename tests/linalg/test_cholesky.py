"""The Cholesky decomposition that XLA programs use, against LAPACK's."""

import mpmath
import numpy as np
import pytest
import tensorflow as tf

from tfp_rmhmc.linalg.cholesky import cholesky_and_inverse, sweep
from tfp_rmhmc.metric import CholeskyFactor

graph = tf.function(cholesky_and_inverse, autograph=False)
compiled = tf.function(cholesky_and_inverse, autograph=False, jit_compile=True)


def positive_definite(rng, *shape, dimension):
    root = rng.standard_normal((*shape, dimension, dimension))
    return root @ np.swapaxes(root, -1, -2) + np.eye(dimension)


@pytest.mark.parametrize('dimension', [1, 2, 3, 11, 40])
@pytest.mark.parametrize('program', [cholesky_and_inverse, graph, compiled])
def test_factor_and_inverse(dimension, program, rng):
    matrix = positive_definite(rng, 3, dimension=dimension)
    lower, inverse = program(tf.constant(matrix))
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-10, atol=1e-12)
    assert not np.triu(lower, 1).any()


@pytest.mark.parametrize('batch', [(), (1,), (3, 2), (300,), (2, 150)])
@pytest.mark.parametrize('dtype', [np.float64, np.float32])
def test_batches_with_and_without_blocks(batch, dtype, rng):
    matrix = positive_definite(rng, *batch, dimension=5).astype(dtype)
    tolerance = 1e-11 if dtype is np.float64 else 1e-3
    for found, expected in zip(compiled(tf.constant(matrix)), graph(tf.constant(matrix)), strict=True):
        assert found.dtype == dtype
        assert found.shape == (*batch, 5, 5)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_a_batch_of_unknown_size(rng):
    matrix = positive_definite(rng, 7, dimension=4)
    signature = [tf.TensorSpec([None, 4, 4], tf.float64)]
    _, inverse = tf.function(sweep, input_signature=signature, autograph=False)(matrix)
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize('program', [cholesky_and_inverse, graph, compiled])
@pytest.mark.parametrize('bad', [-1.0, 0.0, np.nan, np.inf])
def test_what_is_not_positive_definite_is_not_finite_and_alone(program, bad, rng):
    matrix = positive_definite(rng, 4, dimension=3)
    alone = program(tf.constant(matrix))
    matrix[2] = [[1.0, 0.1, 0.1], [0.1, bad, 0.1], [0.1, 0.1, 1.0]]
    found = program(tf.constant(matrix))
    assert not np.isfinite(found[0][2]).all()
    for x, expected in zip(found, alone, strict=True):
        np.testing.assert_array_equal(np.delete(x, 2, axis=0), np.delete(expected, 2, axis=0))


@pytest.mark.parametrize('jit', [False, True])
@pytest.mark.parametrize(('dtype', 'condition'), [('float64', 1e2), ('float64', 1e10), ('float32', 1e4)])
def test_energies_of_ill_conditioned_matrices(dtype, condition, jit, rng):
    """`p' G^-1 p` of momenta of covariance G, beside that of LAPACK's triangular solves; exact with 50 digits."""
    dimension, num = 12, 40
    matrices, momenta, exact = [], [], []
    for _ in range(num):
        basis = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
        scale = np.sqrt(np.geomspace(1.0, condition, dimension))
        matrix = ((basis * scale**2) @ basis.T).astype(dtype)
        matrices.append(0.5 * (matrix + matrix.T))
        momenta.append(((basis * scale) @ rng.standard_normal(dimension)).astype(dtype))
        with mpmath.workdps(50):
            momentum = mpmath.matrix(momenta[-1].tolist())
            velocity = mpmath.lu_solve(mpmath.matrix(matrices[-1].tolist()), momentum)
            exact.append(float(mpmath.fdot(momentum, velocity)))
    matrices, momenta = tf.constant(np.stack(matrices)), tf.constant(np.stack(momenta))

    @tf.function(autograph=False, jit_compile=jit)
    def energy():
        return tf.reduce_sum(momenta * CholeskyFactor(matrices).solve(momenta), axis=-1)

    velocities = tf.linalg.cholesky_solve(tf.linalg.cholesky(matrices), momenta[..., tf.newaxis])[..., 0]
    errors = np.abs(energy() / exact - 1.0)
    errors_of_lapack = np.abs(tf.reduce_sum(momenta * velocities, axis=-1) / exact - 1.0)
    assert np.sqrt(np.mean(errors**2)) < 4.0 * np.sqrt(np.mean(errors_of_lapack**2))


def test_graphs_and_eager_code_call_lapack(rng):
    matrix = tf.constant(positive_definite(rng, 3, dimension=4))
    assert 'Cholesky' in {op.type for op in graph.get_concrete_function(matrix).graph.get_operations()}
    types = {op.type for op in compiled.get_concrete_function(matrix).graph.get_operations()}
    assert not types & {'Cholesky', 'MatrixTriangularSolve'}
    np.testing.assert_array_equal(cholesky_and_inverse(matrix)[0], tf.linalg.cholesky(matrix))
