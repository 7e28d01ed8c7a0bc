"""The paper's logistic regressions: data, log density and metric."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

import tfp_rmhmc as rm

__all__ = ['log_density', 'make_data', 'metric']


def make_data(num: int, weights: np.ndarray, variance: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs `[num, D]` whose last column is 1, and labels in (0, 1).

    As in the paper, each label comes from its own draw of the weights.
    """
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(size=(num, len(weights) - 1)), np.ones((num, 1))], axis=1)
    drawn = weights + np.sqrt(variance) * rng.normal(size=(num, len(weights)))
    return x, 1.0 / (1.0 + np.exp(-np.sum(drawn * x, axis=1)))


def log_density(x: np.ndarray, y: np.ndarray, beta: float) -> Callable[[tf.Tensor], tf.Tensor]:
    """The log density of weights `[batch..., D]`, with a prior of precision `beta`."""

    def log_prob(w: tf.Tensor) -> tf.Tensor:
        logits = tf.linalg.matvec(tf.cast(x, w.dtype), w)
        likelihood = tf.reduce_sum(tf.cast(y, w.dtype) * logits - tf.nn.softplus(logits), axis=-1)
        return likelihood - 0.5 * beta * tf.reduce_sum(tf.square(w), axis=-1)

    return log_prob


def metric(x: np.ndarray, beta: float) -> rm.GaussNewtonMetric:
    """The Fisher information plus the prior's precision; here this is also the Hessian of minus the log density."""
    return rm.GaussNewtonMetric(lambda w: tf.linalg.matvec(tf.cast(x, w.dtype), w), 'bernoulli', beta)
