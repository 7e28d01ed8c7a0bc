"""The eigensolver that XLA programs use, against NumPy's."""

import numpy as np
import pytest
import tensorflow as tf

from tests import targets
from tfp_rmhmc import autodiff
from tfp_rmhmc.metric import eigh as eigh_module
from tfp_rmhmc.metric.eigh import eigh, jacobi_eigh

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


def arrowheads(dimension, rng):
    """One for each place of the head: scales of many orders, couplings that vanish, and one on which all rest."""
    cases = []
    for head in range(dimension):
        a = np.diag(np.full(dimension, 10.0 ** rng.uniform(-6, 6)))
        a[head] = a[:, head] = 10.0 ** rng.uniform(-6, 6) * rng.standard_normal(dimension)
        a[head, (head + 1) % dimension] = a[(head + 1) % dimension, head] = 0.0
        cases.append(a)
    alone = np.diag(np.ones(dimension))
    alone[0, 2] = alone[2, 0] = -3.0
    return np.stack([*cases, alone])


@pytest.mark.parametrize('dimension', [3, 11, 30])
def test_arrowheads_need_no_sweep(dimension, rng, monkeypatch):
    monkeypatch.setattr(eigh_module, '_sweep', lambda a: (np.nan * a[0], np.nan * a))
    cases = arrowheads(dimension, rng)
    values, vectors = (x.numpy() for x in jacobi_eigh(tf.constant(cases)))
    size = np.abs(cases).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(np.einsum('bik,bk,bjk->bij', vectors, values, vectors) / size, cases / size, atol=1e-14)
    np.testing.assert_allclose(
        np.einsum('bki,bkj->bij', vectors, vectors), np.tile(np.eye(dimension), (len(cases), 1, 1)), atol=1e-14
    )
    with_another = np.concatenate([cases, [matrices(dimension, rng)['generic']]])
    assert np.isnan(jacobi_eigh(tf.constant(with_another))[0]).all()  # the control: here the sweeps are asked


@pytest.mark.parametrize('size', [1e-3, 1e-9, 1e-13])
def test_what_is_nearly_an_arrowhead_is_decomposed_to_rounding(size, rng):
    """The closed form would leave `size` behind: it must not be taken."""
    a = np.eye(6)
    a[0] = a[:, 0] = [0.5, 1.0, -1.0, 0.3, 0.2, 0.7]
    noise = size * rng.standard_normal((6, 6))
    a += noise + noise.T
    values, vectors = (x.numpy() for x in compiled(tf.constant(a)))
    np.testing.assert_allclose((vectors * values) @ vectors.T, a, atol=2e-14)


def test_an_arrowhead_beside_other_matrices(rng):
    cases = np.concatenate([arrowheads(11, rng), [matrices(11, rng)['generic']]])
    values, vectors = (x.numpy() for x in compiled(tf.constant(cases)))
    size = np.abs(cases).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(np.einsum('bik,bk,bjk->bij', vectors, values, vectors) / size, cases / size, atol=3e-14)


def test_graphs_and_eager_code_call_lapack(rng):
    a = rng.standard_normal((3, 4, 4))
    a = tf.constant(a + np.swapaxes(a, -1, -2))
    graph = tf.function(eigh, autograph=False).get_concrete_function(a).graph
    assert any(op.type == 'SelfAdjointEigV2' for op in graph.get_operations())
    xla = compiled.get_concrete_function(a).graph
    assert not any(op.type == 'SelfAdjointEigV2' for op in xla.get_operations())
    np.testing.assert_array_equal(eigh(a)[0], tf.linalg.eigh(a)[0])
