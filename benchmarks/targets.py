"""Targets of the benchmarks, each with a way to start in its typical set."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Target:
    """A log density on `[batch..., D]` and `draws(num, seed) -> [num, D]`, exact or close to it."""

    name: str
    dimension: int
    log_prob: Callable[[tf.Tensor], tf.Tensor]
    draws: Callable[[int, int], np.ndarray]


def funnel(dimension: int = 11) -> Target:
    """v ~ N(0, 9), x_i ~ N(0, exp(-v)), the paper's; v comes first."""

    def log_prob(q):
        v, x = q[..., 0], q[..., 1:]
        return -tf.square(v) / 18.0 + 0.5 * (dimension - 1) * v - 0.5 * tf.exp(v) * tf.reduce_sum(tf.square(x), axis=-1)

    def draws(num, seed):
        rng = np.random.default_rng(seed)
        v = 3.0 * rng.standard_normal((num, 1))
        return np.concatenate([v, np.exp(-0.5 * v) * rng.standard_normal((num, dimension - 1))], axis=1)

    return Target(f'funnel-{dimension}', dimension, log_prob, draws)


def gaussian(dimension: int = 100) -> Target:
    """Scales from 0.1 to 10, independent."""
    scale = np.geomspace(0.1, 10.0, dimension)

    def log_prob(q):
        return -0.5 * tf.reduce_sum(tf.square(q / tf.cast(scale, q.dtype)), axis=-1)

    return Target(
        f'gaussian-{dimension}',
        dimension,
        log_prob,
        lambda num, seed: scale * np.random.default_rng(seed).standard_normal((num, dimension)),
    )


def banana(dimension: int = 2) -> Target:
    """x0 ~ N(0, 1), x1 ~ N(x0^2, 1/4), the rest standard normal."""

    def log_prob(q):
        x0, x1 = q[..., 0], q[..., 1]
        rest = tf.reduce_sum(tf.square(q[..., 2:]), axis=-1)
        return -0.5 * (tf.square(x0) + rest) - 2.0 * tf.square(x1 - tf.square(x0))

    def draws(num, seed):
        z = np.random.default_rng(seed).standard_normal((num, dimension))
        z[:, 1] = z[:, 0] ** 2 + 0.5 * z[:, 1]
        return z

    return Target(f'banana-{dimension}', dimension, log_prob, draws)


def logistic(num: int = 1000, dimension: int = 25) -> Target:
    """Logistic regression on synthetic data, N(0, I) prior; starts from a Laplace approximation."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((num, dimension))
    y = (rng.uniform(size=num) < 1.0 / (1.0 + np.exp(-x @ rng.standard_normal(dimension)))).astype(float)

    def log_prob(w):
        logits = tf.linalg.matmul(w[..., tf.newaxis, :], tf.cast(x, w.dtype), transpose_b=True)[..., 0, :]
        log_likelihood = tf.reduce_sum(tf.cast(y, w.dtype) * logits - tf.nn.softplus(logits), axis=-1)
        return log_likelihood - 0.5 * tf.reduce_sum(tf.square(w), axis=-1)

    def draws(num_draws, seed):
        w = np.zeros(dimension)
        for _ in range(20):
            p = 1.0 / (1.0 + np.exp(-x @ w))
            precision = (x.T * (p * (1.0 - p))) @ x + np.eye(dimension)
            w += np.linalg.solve(precision, x.T @ (y - p) - w)
        noise = np.random.default_rng(seed).standard_normal((num_draws, dimension))
        return w + np.linalg.solve(np.linalg.cholesky(precision).T, noise.T).T

    return Target(f'logistic-{dimension}', dimension, log_prob, draws)
