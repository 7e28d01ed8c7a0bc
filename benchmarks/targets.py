"""Targets of the benchmarks, each with a way to start in its typical set."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: arrays have no truth value
class Target:
    """A log density on `[batch..., D]` and `draws(num, seed) -> [num, D]`, exact or close to it."""

    name: str
    dimension: int
    log_prob: Callable[[tf.Tensor], tf.Tensor]
    draws: Callable[[int, int], np.ndarray]
    inputs: np.ndarray | None = None
    labels: np.ndarray | None = None


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

    return Target(f'logistic-{num}x{dimension}', dimension, log_prob, draws, x, y)


def log_gaussian_cox(side: int = 10) -> Target:
    """Counts on a grid of side x side cells, Poisson with the exponential of a Gaussian process; starts from a Laplace fit.

    Mean, variance and correlation length (two cells) of the process are those of Girolami and Calderhead 2011, section 9.1.
    """
    num = side * side
    variance, expected = 1.91, 126.0
    mean = np.log(expected) - 0.5 * variance
    cells = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing='ij'), axis=-1).reshape(num, 2)
    distance = np.linalg.norm(cells[:, None] - cells, axis=-1)
    covariance = variance * np.exp(-0.5 * distance)
    precision = np.linalg.inv(covariance)
    rng = np.random.default_rng(5)
    y = rng.poisson(np.exp(mean + np.linalg.cholesky(covariance) @ rng.standard_normal(num)) / num).astype(float)

    def log_prob(q):
        deviation = q - mean
        prior = tf.reduce_sum(deviation * tf.matmul(deviation, tf.cast(precision, q.dtype)), axis=-1)
        return tf.reduce_sum(tf.cast(y, q.dtype) * q - tf.exp(q) / num, axis=-1) - 0.5 * prior

    def draws(count, seed):
        mode = np.full(num, mean)
        for _ in range(30):
            rate = np.exp(mode) / num
            hessian = precision + np.diag(rate)
            mode += np.linalg.solve(hessian, y - rate - precision @ (mode - mean))
        noise = np.random.default_rng(seed).standard_normal((count, num))
        return mode + np.linalg.solve(np.linalg.cholesky(hessian).T, noise.T).T

    return Target(f'log-gaussian-cox-{num}', num, log_prob, draws)


def eight_schools() -> Target:
    """Centred, 10-D: mu ~ N(0, 10), log tau ~ N(5, 1), eight effects; starts near the prior's middle."""
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])

    def log_prob(q):
        mu, log_tau, theta = q[..., 0], q[..., 1], q[..., 2:]
        centred = tf.square(theta - mu[..., tf.newaxis]) * tf.exp(-2.0 * log_tau)[..., tf.newaxis]
        likelihood = tf.square((theta - tf.cast(y, q.dtype)) / tf.cast(sigma, q.dtype))
        prior = tf.square(mu / 10.0) + tf.square(log_tau - 5.0) + 16.0 * log_tau
        return -0.5 * (prior + tf.reduce_sum(centred + likelihood, axis=-1))

    def draws(num, seed):
        rng = np.random.default_rng(seed)
        mu, log_tau = 4.0 + 3.0 * rng.standard_normal((num, 1)), 2.0 + 0.5 * rng.standard_normal((num, 1))
        theta = mu + np.exp(log_tau) * rng.standard_normal((num, 8))
        return np.concatenate([mu, log_tau, theta], axis=1)

    return Target('eight-schools', 10, log_prob, draws)


def half_cauchy_schools(centred: bool = True) -> Target:
    """Eight schools, mu ~ N(0, 5), tau ~ half-Cauchy(5), 10-D: mu, log tau, and the effects or their standard scores."""
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])

    def log_prob(q):
        mu, log_tau, x = q[..., 0], q[..., 1], q[..., 2:]
        tau = tf.exp(log_tau)
        prior = -0.5 * tf.square(mu / 5.0) - tf.math.log1p(tf.square(tau / 5.0)) + log_tau
        if centred:
            theta, score = x, (x - mu[..., tf.newaxis]) / tau[..., tf.newaxis]
            prior -= 8.0 * log_tau
        else:
            theta, score = mu[..., tf.newaxis] + tau[..., tf.newaxis] * x, x
        likelihood = tf.square((tf.cast(y, q.dtype) - theta) / tf.cast(sigma, q.dtype))
        return prior - 0.5 * tf.reduce_sum(tf.square(score) + likelihood, axis=-1)

    def draws(num, seed):
        rng = np.random.default_rng(seed)
        mu, log_tau = 4.0 + 3.0 * rng.standard_normal((num, 1)), 1.0 + rng.standard_normal((num, 1))
        z = rng.standard_normal((num, 8))
        return np.concatenate([mu, log_tau, mu + np.exp(log_tau) * z if centred else z], axis=1)

    return Target('schools-centred' if centred else 'schools-non-centred', 10, log_prob, draws)


def correlated_gaussian(dimension: int = 20, condition: float = 1e4) -> Target:
    """Precisions from `condition**-0.5` to `condition**0.5`, along directions that are not those of the coordinates."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
    precisions = np.geomspace(condition**-0.5, condition**0.5, dimension)
    matrix = (basis * precisions) @ basis.T

    def log_prob(q):
        return -0.5 * tf.reduce_sum(q * tf.matmul(q, tf.cast(matrix, q.dtype)), axis=-1)

    def draws(num, seed):
        return np.random.default_rng(seed).standard_normal((num, dimension)) / np.sqrt(precisions) @ basis.T

    return Target(f'correlated-{dimension}', dimension, log_prob, draws)


def stochastic_volatility(num: int = 100) -> Target:
    """Log volatilities h of `num` returns, an AR(1) process with its mean, persistence and scale: num + 3 dimensions."""
    rng = np.random.default_rng(3)
    h = np.zeros(num)
    for i in range(1, num):
        h[i] = 0.95 * h[i - 1] + 0.25 * rng.standard_normal()
    returns = np.exp(0.5 * h) * rng.standard_normal(num)

    def log_prob(q):
        mean, persistence, log_scale = q[..., 0], tf.tanh(q[..., 1]), q[..., 2]
        h = q[..., 3:]
        centred = h - mean[..., tf.newaxis]
        innovation = centred[..., 1:] - persistence[..., tf.newaxis] * centred[..., :-1]
        stationary = 1.0 - tf.square(persistence)
        precision = tf.exp(-2.0 * log_scale)
        process = precision * (tf.reduce_sum(tf.square(innovation), axis=-1) + stationary * tf.square(centred[..., 0]))
        likelihood = tf.reduce_sum(h + tf.square(tf.cast(returns, q.dtype)) * tf.exp(-h), axis=-1)
        prior = tf.square(mean) + tf.square(q[..., 1] - 1.5) + 4.0 * tf.square(log_scale + 1.5)
        return -0.5 * (process + likelihood + prior) - num * log_scale + 0.5 * tf.math.log(stationary)

    def draws(count, seed):
        rng = np.random.default_rng(seed)
        noise = 0.1 * rng.standard_normal((count, num + 3))
        return noise + np.concatenate([[0.0, 1.5, -1.4], h])

    return Target(f'stochastic-volatility-{num + 3}', num + 3, log_prob, draws)
