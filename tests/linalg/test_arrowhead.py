"""The closed form for arrowheads: taken where the caller knows of them and they are, and only there."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests import targets
from tests.linalg.test_eigh import matrices
from tfp_rmhmc import autodiff
from tfp_rmhmc.linalg import are_arrowheads
from tfp_rmhmc.linalg import eigh as eigh_function
from tfp_rmhmc.linalg.eigh import jacobi_eigh

eigh_module = sys.modules['tfp_rmhmc.linalg.eigh']
compiled = tf.function(functools.partial(eigh_function, structure='arrowhead'), autograph=False, jit_compile=True)


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
    values, vectors = (x.numpy() for x in jacobi_eigh(tf.constant(cases), 'arrowhead'))
    size = np.abs(cases).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(np.einsum('bik,bk,bjk->bij', vectors, values, vectors) / size, cases / size, atol=1e-14)
    np.testing.assert_allclose(
        np.einsum('bki,bkj->bij', vectors, vectors), np.tile(np.eye(dimension), (len(cases), 1, 1)), atol=1e-14
    )
    with_another = np.concatenate([cases, [matrices(dimension, rng)['generic']]])
    assert np.isnan(jacobi_eigh(tf.constant(with_another), 'arrowhead')[0]).all()  # the control: here the sweeps are asked


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


def test_without_the_structure_no_closed_form_is_tried(rng, monkeypatch):
    monkeypatch.setattr(eigh_module, 'reflect', None)
    cases = arrowheads(5, rng)
    values, _ = jacobi_eigh(tf.constant(cases))
    size = np.abs(cases).max(axis=(1, 2))[:, None]
    np.testing.assert_allclose(np.sort(values) / size, np.linalg.eigvalsh(cases) / size, atol=1e-13)


def test_the_funnel_s_hessians_are_arrowheads_and_others_are_not():
    q = tf.constant(targets.funnel_draws(8, 51))
    assert bool(are_arrowheads(autodiff.hessian(targets.funnel, q)[2]))
    tilted = lambda q: targets.funnel(q) + 0.1 * q[..., 1] * q[..., 2] ** 2  # two entries of the shaft differ
    assert not bool(are_arrowheads(autodiff.hessian(tilted, q)[2]))
