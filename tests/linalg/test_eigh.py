"""The eigensolver that XLA programs use, against NumPy's."""

import numpy as np
import pytest
import tensorflow as tf

from tests import targets
from tfp_rmhmc import autodiff
from tfp_rmhmc.linalg.eigh import eigh, jacobi_eigh

compiled = tf.function(eigh, autograph=False, jit_compile=True)


def orthogonal(rng, dimension):
    return np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]


def matrices(dimension, rng):
    """Generic, repeated, clustered, graded, singular, diagonal, zero."""
    q = orthogonal(rng, dimension)
    generic = rng.standard_normal((dimension, dimension))
    spectra = {
        'repeated': np.where(np.arange(dimension) == 0, -3.0, 2.0),
        'clustered': 1.0 + 1e-9 * np.arange(dimension),
        'graded': 10.0 ** -np.arange(dimension, dtype=float),
        'singular': np.arange(dimension) - dimension // 2.0,
        'opposite': np.where(np.arange(dimension) % 2, -1.0, 1.0),
    }
    dense = {name: (q * lam) @ q.T for name, lam in spectra.items()}
    return dense | {
        'generic': generic + generic.T,
        'diagonal': np.diag(rng.standard_normal(dimension)),
        'zero': np.zeros((dimension, dimension)),
        'huge': 1e100 * (generic + generic.T),
        'small': 1e-100 * (generic + generic.T),
    }


@pytest.mark.parametrize('dimension', [1, 2, 3, 8, 11, 30])
def test_every_kind_of_matrix(dimension, rng):
    cases = matrices(dimension, rng)
    stacked = np.stack([0.5 * (a + a.T) for a in cases.values()])
    values, vectors = (x.numpy() for x in compiled(tf.constant(stacked)))
    for name, a, lam, q in zip(cases, stacked, values, vectors, strict=True):
        # Where many eigenvalues nearly coincide the last sweep leaves more than rounding.
        tolerance = 5e-11 if name in ('clustered', 'graded', 'opposite') else 3e-15 * dimension
        size = np.abs(a).max()
        np.testing.assert_allclose(q.T @ q, np.eye(dimension), atol=tolerance, err_msg=name)
        np.testing.assert_allclose((q * lam) @ q.T, a, atol=tolerance * size, err_msg=name)
        np.testing.assert_allclose(np.sort(lam), np.linalg.eigvalsh(a), atol=3e-15 * dimension * size, err_msg=name)


@pytest.mark.parametrize('batch', [(), (1,), (3, 2), (300,), (2, 150)])
@pytest.mark.parametrize('dtype', [np.float64, np.float32])
def test_batches_with_and_without_blocks(batch, dtype, rng):
    a = rng.standard_normal((*batch, 5, 5)).astype(dtype)
    a = a + np.swapaxes(a, -1, -2)
    values, vectors = compiled(tf.constant(a))
    assert values.shape == (*batch, 5)
    assert vectors.dtype == dtype
    tolerance = 1e-13 if dtype is np.float64 else 2e-6
    rebuilt = np.einsum('...ik,...k,...jk->...ij', vectors, values, vectors)
    np.testing.assert_allclose(rebuilt, a, atol=tolerance * 10)
    np.testing.assert_allclose(np.sort(values, axis=-1), np.linalg.eigvalsh(a.astype(np.float64)), atol=tolerance * 10)


def test_a_batch_of_unknown_size(rng):
    a = rng.standard_normal((7, 4, 4))
    a = a + np.swapaxes(a, -1, -2)
    signature = [tf.TensorSpec([None, 4, 4], tf.float64)]
    values, _ = tf.function(jacobi_eigh, input_signature=signature, autograph=False)(a)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(a), atol=1e-13)


def test_small_eigenvalues_of_float32_keep_their_digits():
    """The Hessians of the funnel in its neck and mouth have eigenvalues seven orders apart."""
    q = targets.funnel_draws(200, 11, dtype=np.float32)
    a = -autodiff.hessian(targets.funnel, tf.constant(q))[2].numpy()
    values, _ = compiled(tf.constant(a))
    exact = np.linalg.eigvalsh(a.astype(np.float64))
    assert np.max(np.abs(exact).max(axis=-1) / np.abs(exact).min(axis=-1)) > 1e4
    np.testing.assert_allclose(np.sort(values, axis=-1), exact, rtol=1e-5)


def test_matrices_do_not_depend_on_their_neighbours(rng):
    """Though a batch is swept until its slowest matrix has converged: what has, hardly moves."""
    cases = np.stack(list(matrices(6, rng).values())[:-2])
    together, _ = compiled(tf.constant(cases))
    for a, values in zip(cases, together, strict=True):
        alone, _ = compiled(tf.constant(a[None]))
        np.testing.assert_allclose(np.sort(alone[0]), np.sort(values), atol=1e-14 * np.abs(a).max())


def test_graphs_and_eager_code_call_lapack(rng):
    a = rng.standard_normal((3, 4, 4))
    a = tf.constant(a + np.swapaxes(a, -1, -2))
    graph = tf.function(eigh, autograph=False).get_concrete_function(a).graph
    assert any(op.type == 'SelfAdjointEigV2' for op in graph.get_operations())
    xla = compiled.get_concrete_function(a).graph
    assert not any(op.type == 'SelfAdjointEigV2' for op in xla.get_operations())
    np.testing.assert_array_equal(eigh(a)[0], tf.linalg.eigh(a)[0])
