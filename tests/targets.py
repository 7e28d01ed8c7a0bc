"""Distributions with known answers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def gaussian(*parts):
    """Standard normal over any state, summed over each chain's last axis."""
    return -0.5 * tf.add_n([tf.reduce_sum(tf.square(x), axis=-1) for x in parts])


def funnel(q):
    """The paper's funnel: v ~ N(0, 9), x_i ~ N(0, exp(-v)); v is the first coordinate."""
    v, x = q[..., 0], q[..., 1:]
    return -tf.square(v) / 18.0 + 0.5 * x.shape[-1] * v - 0.5 * tf.exp(v) * tf.reduce_sum(tf.square(x), axis=-1)


def funnel_draws(num, dimension=11, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    v = 3.0 * rng.standard_normal(num)
    x = np.exp(-0.5 * v)[:, None] * rng.standard_normal((num, dimension - 1))
    return np.concatenate([v[:, None], x], axis=1).astype(dtype)


def banana(q):
    """x0 ~ N(0, 1), x1 ~ N(x0^2, 1/4), further coordinates standard normal."""
    x0, x1 = q[..., 0], q[..., 1]
    return -0.5 * tf.square(x0) - 2.0 * tf.square(x1 - tf.square(x0)) - 0.5 * tf.reduce_sum(tf.square(q[..., 2:]), -1)


def banana_draws(num, dimension=2, seed=0, dtype=np.float64):
    z = np.random.default_rng(seed).standard_normal((num, dimension))
    z[:, 1] = z[:, 0] ** 2 + 0.5 * z[:, 1]
    return z.astype(dtype)


def skewed(q):
    """Independent log-gamma coordinates, skewed so that a reversed sign shows, and never symmetric."""
    shape = tf.cast(tf.linspace(1.5, 3.0, q.shape[-1]), q.dtype)
    return tf.reduce_sum(shape * q - tf.exp(q), axis=-1)


def skewed_draws(num, dimension=3, seed=0, dtype=np.float64):
    shape = np.linspace(1.5, 3.0, dimension)
    return np.log(np.random.default_rng(seed).gamma(shape, size=(num, dimension))).astype(dtype)


def three_levels(q):
    """w ~ N(0, 1), v ~ N(w, 1), x_i ~ N(0, exp(-v)); w and v are the first two coordinates."""
    w, v, x = q[..., 0], q[..., 1], q[..., 2:]
    prior = -0.5 * tf.square(w) - 0.5 * tf.square(v - w) + 0.5 * x.shape[-1] * v
    return prior - 0.5 * tf.exp(v) * tf.reduce_sum(tf.square(x), axis=-1)


def logistic_data(num=200, dimension=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num, dimension))
    w = rng.standard_normal(dimension)
    y = (rng.uniform(size=num) < 1.0 / (1.0 + np.exp(-x @ w))).astype(np.float64)
    return x, y


def logistic_regression(x, y, prior_precision=1.0):
    """log density of the weights under logistic regression with a Gaussian prior."""

    def log_prob(w):
        logits = tf.linalg.matvec(tf.cast(x, w.dtype), w)
        log_likelihood = tf.reduce_sum(tf.cast(y, w.dtype) * logits - tf.nn.softplus(logits), axis=-1)
        return log_likelihood - 0.5 * prior_precision * tf.reduce_sum(tf.square(w), axis=-1)

    return log_prob
