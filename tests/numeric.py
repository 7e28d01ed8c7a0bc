"""Finite differences and dense linear algebra to compare with."""

import arviz
import numpy as np
import tensorflow as tf

from tfp_rmhmc import autodiff


def central_gradient(fn, x, step):
    """Fourth-order central differences of `fn: [n, D] -> [n]` at `x: [D]`, with a step per coordinate."""
    x = np.asarray(x, np.float64)
    step = np.broadcast_to(np.asarray(step, np.float64), x.shape)
    offsets = np.array([-2.0, -1.0, 1.0, 2.0])
    weights = np.array([1.0, -8.0, 8.0, -1.0]) / 12.0
    points = x + offsets[None, :, None] * np.diag(step)[:, None, :]
    values = np.asarray(fn(points.reshape(-1, x.size))).reshape(x.size, 4)
    return values @ weights / step


def contracted_third_derivative(fn, position, weights):
    """`sum_jk weights_jk d^3 fn / dq_i dq_j dq_k` by a reverse pass through the Hessian, as a metric's force takes it."""
    with tf.GradientTape() as tape:
        tape.watch(position)
        _, _, second = autodiff.hessian(fn, position)
    return tape.gradient(second, position, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def relative_error(got, expected):
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return np.linalg.norm(got - expected) / (1.0 + np.linalg.norm(expected))


def assert_moments(draws, mean, deviation, error=0.0):
    """Mean and standard deviation of `draws: [draws, chains, event...]` within four standard errors, ours and `error`."""
    columns = np.reshape(draws, [*draws.shape[:2], -1])
    expected = [np.ravel(np.broadcast_to(x, draws.shape[2:])) for x in (mean, deviation, error)]
    for column, m, s, e in zip(np.moveaxis(columns, -1, 0), *expected, strict=True):
        by_chain = column.T.astype(np.float64)
        assert abs(by_chain.mean() - m) < 4.0 * np.hypot(arviz.mcse(by_chain, method='mean'), e)
        assert abs(by_chain.std() - s) < 4.0 * np.hypot(arviz.mcse(by_chain, method='sd'), e)
