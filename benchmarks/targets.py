"""Targets of the benchmarks: a formula, a way to start in the typical set, and the truth or a reference.

A formula is a log density of `q: [batch..., D]`, made of `arrays.Arrays`: TensorFlow's and JAX's samplers see the same.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.arrays import Arrays, in_jax, in_tensorflow

# Moments by long runs: `reference.py`.
REFERENCE = pathlib.Path(__file__).parent / 'reference.json'


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: arrays have no truth value
class Target:
    """A log density and what is known of it.

    Attributes:
      name: also its key in `reference.json`.
      dimension: D.
      formula: `(arrays, q: [batch..., D]) -> [batch...]`.
      draws: `(num, seed) -> [num, D]`, exact or close to it.
      inputs, labels: of a regression.
      moments: coordinate -> exact mean and standard deviation, where they are known.
      known: the same with Monte Carlo errors, of a reference that came with the target.
      quantiles: `(coordinate, value, probability)`, exact, where moments alone would hide what is missed.
      constrain: what moments are of, as a function of draws `[..., D]`; None for q itself.
      easy: `(arrays, z) -> q, log |dq/dz|`: coordinates in which NUTS samples well, for reference runs; None where q are.
    """

    name: str
    dimension: int
    formula: Callable[[Arrays, Any], Any]
    draws: Callable[[int, int], np.ndarray]
    inputs: np.ndarray | None = None
    labels: np.ndarray | None = None
    moments: dict[int, tuple[float, float]] | None = None
    quantiles: tuple[tuple[int, float, float], ...] = ()
    easy: Callable[[Arrays, Any], tuple[Any, Any]] | None = None
    constrain: Callable[[np.ndarray], np.ndarray] | None = None
    known: dict[int, tuple[float, float, float, float]] | None = None

    @functools.cached_property
    def log_prob(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """The log density in TensorFlow."""
        return lambda q: self.formula(in_tensorflow(), tf.convert_to_tensor(q))

    @functools.cached_property
    def log_prob_in_jax(self) -> Callable[[Any], Any]:
        """The log density of one point in JAX."""
        arrays = in_jax()
        return lambda q: self.formula(arrays, q)

    def truth(self) -> dict[int, tuple[float, float, float, float]] | None:
        """Coordinate -> mean, standard deviation and their Monte Carlo errors; None if nobody knows."""
        if self.moments is not None:
            return {i: (mean, deviation, 0.0, 0.0) for i, (mean, deviation) in self.moments.items()}
        if self.known is not None:
            return self.known
        stored = json.loads(REFERENCE.read_text())['moments'].get(self.name)
        return None if stored is None else {int(i): tuple(row) for i, row in stored.items()}


def funnel(dimension: int = 11) -> Target:
    """v ~ N(0, 9), x_i ~ N(0, exp(-v)), the paper's; v comes first."""

    def log_prob(xp, q):
        v, x = q[..., 0], q[..., 1:]
        return -xp.square(v) / 18.0 + 0.5 * (dimension - 1) * v - 0.5 * xp.exp(v) * xp.total(xp.square(x))

    def draws(num, seed):
        rng = np.random.default_rng(seed)
        v = 3.0 * rng.standard_normal((num, 1))
        return np.concatenate([v, np.exp(-0.5 * v) * rng.standard_normal((num, dimension - 1))], axis=1)

    quantiles = ((0, -4.9346, 0.05), (0, -3.8447, 0.1), (0, 0.0, 0.5), (0, 3.8447, 0.9), (0, 4.9346, 0.95))
    return Target(f'funnel-{dimension}', dimension, log_prob, draws, moments={0: (0.0, 3.0)}, quantiles=quantiles)


def gaussian(dimension: int = 100) -> Target:
    """Scales from 0.1 to 10, independent."""
    scale = np.geomspace(0.1, 10.0, dimension)

    def log_prob(xp, q):
        return -0.5 * xp.total(xp.square(q / xp.constant(scale, q)))

    return Target(
        f'gaussian-{dimension}',
        dimension,
        log_prob,
        lambda num, seed: scale * np.random.default_rng(seed).standard_normal((num, dimension)),
        moments={i: (0.0, float(s)) for i, s in enumerate(scale)},
    )


def banana(dimension: int = 2) -> Target:
    """x0 ~ N(0, 1), x1 ~ N(x0^2, 1/4), the rest standard normal."""

    def log_prob(xp, q):
        x0, x1 = q[..., 0], q[..., 1]
        rest = xp.total(xp.square(q[..., 2:]))
        return -0.5 * (xp.square(x0) + rest) - 2.0 * xp.square(x1 - xp.square(x0))

    def draws(num, seed):
        z = np.random.default_rng(seed).standard_normal((num, dimension))
        z[:, 1] = z[:, 0] ** 2 + 0.5 * z[:, 1]
        return z

    moments = {0: (0.0, 1.0), 1: (1.0, 1.5)}
    return Target(f'banana-{dimension}', dimension, log_prob, draws, moments=moments)


def logistic(num: int = 1000, dimension: int = 25) -> Target:
    """Logistic regression on synthetic data, N(0, I) prior; starts from a Laplace approximation."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((num, dimension))
    y = (rng.uniform(size=num) < 1.0 / (1.0 + np.exp(-x @ rng.standard_normal(dimension)))).astype(float)

    def log_prob(xp, w):
        logits = xp.matvec(x, w)
        return xp.total(xp.constant(y, w) * logits - xp.softplus(logits)) - 0.5 * xp.total(xp.square(w))

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

    def log_prob(xp, q):
        deviation = q - mean
        prior = xp.total(deviation * xp.matvec(precision, deviation))
        return xp.total(xp.constant(y, q) * q - xp.exp(q) / num) - 0.5 * prior

    def draws(count, seed):
        mode = np.full(num, mean)
        for _ in range(30):
            rate = np.exp(mode) / num
            hessian = precision + np.diag(rate)
            mode += np.linalg.solve(hessian, y - rate - precision @ (mode - mean))
        noise = np.random.default_rng(seed).standard_normal((count, num))
        return mode + np.linalg.solve(np.linalg.cholesky(hessian).T, noise.T).T

    root = np.linalg.cholesky(covariance)
    return Target(f'log-gaussian-cox-{num}', num, log_prob, draws, easy=lambda xp, z: (mean + xp.matvec(root, z), 0.0))


def eight_schools() -> Target:
    """Centred, 10-D: mu ~ N(0, 10), log tau ~ N(5, 1), eight effects; starts near the prior's middle."""
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])

    def log_prob(xp, q):
        mu, log_tau, theta = q[..., 0], q[..., 1], q[..., 2:]
        centred = xp.square(theta - mu[..., None]) * xp.exp(-2.0 * log_tau)[..., None]
        likelihood = xp.square((theta - xp.constant(y, q)) / xp.constant(sigma, q))
        prior = xp.square(mu / 10.0) + xp.square(log_tau - 5.0) + 16.0 * log_tau
        return -0.5 * (prior + xp.total(centred + likelihood))

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

    def log_prob(xp, q):
        mu, log_tau, x = q[..., 0], q[..., 1], q[..., 2:]
        tau = xp.exp(log_tau)
        prior = -0.5 * xp.square(mu / 5.0) - xp.log1p(xp.square(tau / 5.0)) + log_tau
        if centred:
            theta, score = x, (x - mu[..., None]) / tau[..., None]
            prior -= 8.0 * log_tau
        else:
            theta, score = mu[..., None] + tau[..., None] * x, x
        likelihood = xp.square((xp.constant(y, q) - theta) / xp.constant(sigma, q))
        return prior - 0.5 * xp.total(xp.square(score) + likelihood)

    def easy(xp, z):
        return xp.concat([z[..., :2], z[..., :1] + xp.exp(z[..., 1:2]) * z[..., 2:]]), 8.0 * z[..., 1]

    def draws(num, seed):
        rng = np.random.default_rng(seed)
        mu, log_tau = 4.0 + 3.0 * rng.standard_normal((num, 1)), 1.0 + rng.standard_normal((num, 1))
        z = rng.standard_normal((num, 8))
        return np.concatenate([mu, log_tau, mu + np.exp(log_tau) * z if centred else z], axis=1)

    name = 'schools-centred' if centred else 'schools-non-centred'
    return Target(name, 10, log_prob, draws, easy=easy if centred else None)


def correlated_gaussian(dimension: int = 20, condition: float = 1e4) -> Target:
    """Precisions from `condition**-0.5` to `condition**0.5`, along directions that are not those of the coordinates."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
    precisions = np.geomspace(condition**-0.5, condition**0.5, dimension)
    matrix = (basis * precisions) @ basis.T

    def log_prob(xp, q):
        return -0.5 * xp.total(q * xp.matvec(matrix, q))

    def draws(num, seed):
        return np.random.default_rng(seed).standard_normal((num, dimension)) / np.sqrt(precisions) @ basis.T

    deviations = np.sqrt(np.sum(np.square(basis) / precisions, axis=1))
    moments = {i: (0.0, float(s)) for i, s in enumerate(deviations)}
    return Target(f'correlated-{dimension}', dimension, log_prob, draws, moments=moments)


def stochastic_volatility(num: int = 100) -> Target:
    """Log volatilities h of `num` returns, an AR(1) process with its mean, persistence and scale: num + 3 dimensions."""
    rng = np.random.default_rng(3)
    h = np.zeros(num)
    for i in range(1, num):
        h[i] = 0.95 * h[i - 1] + 0.25 * rng.standard_normal()
    returns = np.exp(0.5 * h) * rng.standard_normal(num)

    def log_prob(xp, q):
        mean, persistence, log_scale = q[..., 0], xp.tanh(q[..., 1]), q[..., 2]
        h = q[..., 3:]
        centred = h - mean[..., None]
        innovation = centred[..., 1:] - persistence[..., None] * centred[..., :-1]
        stationary = 1.0 - xp.square(persistence)
        precision = xp.exp(-2.0 * log_scale)
        process = precision * (xp.total(xp.square(innovation)) + stationary * xp.square(centred[..., 0]))
        likelihood = xp.total(h + xp.constant(np.square(returns), q) * xp.exp(-h))
        prior = xp.square(mean) + xp.square(q[..., 1] - 1.5) + 4.0 * xp.square(log_scale + 1.5)
        return -0.5 * (process + likelihood + prior) - num * log_scale + 0.5 * xp.log(stationary)

    def easy(xp, z):  # the path in units of its innovations
        return xp.concat([z[..., :3], z[..., :1] + xp.exp(z[..., 2:3]) * z[..., 3:]]), num * z[..., 2]

    def draws(count, seed):
        rng = np.random.default_rng(seed)
        noise = 0.1 * rng.standard_normal((count, num + 3))
        return noise + np.concatenate([[0.0, 1.5, -1.4], h])

    return Target(f'stochastic-volatility-{num + 3}', num + 3, log_prob, draws, easy=easy)


def horseshoe(num: int = 60, dimension: int = 20) -> Target:
    """A sparse regression: beta_j ~ N(0, (tau lambda_j)^2), lambda_j ~ half-Cauchy(1), tau ~ half-Cauchy(0.2), centred.

    Coordinates: log sigma, log tau, log lambda, beta. Three coefficients of the synthetic data are not zero.
    """
    rng = np.random.default_rng(11)
    x = rng.standard_normal((num, dimension))
    y = x[:, :3] @ np.array([2.0, -1.0, 0.5]) + rng.standard_normal(num)

    def log_prob(xp, q):
        log_sigma, log_tau, log_local, beta = q[..., 0], q[..., 1], q[..., 2 : 2 + dimension], q[..., 2 + dimension :]
        log_scale = log_tau[..., None] + log_local
        prior = _half_cauchy(xp, log_tau, 0.2) + xp.total(_half_cauchy(xp, log_local, 1.0)) - 0.5 * xp.square(log_sigma)
        effects = xp.total(-0.5 * xp.square(beta * xp.exp(-log_scale)) - log_scale)
        residual = (xp.constant(y, q) - xp.matvec(x, beta)) * xp.exp(-log_sigma)[..., None]
        return prior + effects - 0.5 * xp.total(xp.square(residual)) - num * log_sigma

    size = 2 + 2 * dimension
    return Target(f'horseshoe-{size}', size, log_prob, _near(0.0, size), x, y)


def hierarchical_logistic(num_groups: int = 20) -> Target:
    """Varying intercepts and slopes, centred; groups of 3 to 25 observations; scales are half-normal(1).

    Coordinates: mean intercept and slope, log scales of both, intercepts, slopes.
    """
    rng = np.random.default_rng(12)
    sizes = rng.integers(3, 26, num_groups)
    group = np.repeat(np.arange(num_groups), sizes)
    x = rng.standard_normal(len(group))
    logits = (-0.5 + 0.8 * rng.standard_normal(num_groups))[group] + (1.0 + 0.4 * rng.standard_normal(num_groups))[
        group
    ] * x
    y = (rng.uniform(size=len(group)) < 1.0 / (1.0 + np.exp(-logits))).astype(float)

    def log_prob(xp, q):
        means, log_scales = q[..., :2], q[..., 2:4]
        intercepts, slopes = q[..., 4 : 4 + num_groups], q[..., 4 + num_groups :]
        prior = xp.total(-xp.square(means) / 8.0 - 0.5 * xp.exp(2.0 * log_scales) + (1.0 - num_groups) * log_scales)
        precisions = xp.exp(-2.0 * log_scales)
        for k, effects in enumerate((intercepts, slopes)):
            prior -= 0.5 * precisions[..., k] * xp.total(xp.square(effects - means[..., k : k + 1]))
        logits = xp.take(intercepts, group) + xp.take(slopes, group) * xp.constant(x, q)
        return prior + xp.total(xp.constant(y, q) * logits - xp.softplus(logits))

    def easy(xp, z):
        scales, effects = xp.exp(z[..., 2:4]), z[..., 4:]
        parts = (effects[..., :num_groups], effects[..., num_groups:])
        effects = [z[..., k : k + 1] + scales[..., k : k + 1] * part for k, part in enumerate(parts)]
        return xp.concat([z[..., :4], *effects]), num_groups * (z[..., 2] + z[..., 3])

    dimension = 4 + 2 * num_groups
    return Target(f'hierarchical-logistic-{dimension}', dimension, log_prob, _near(0.0, dimension), easy=easy)


def hierarchical_normal() -> Target:
    """Two levels, centred, twelve groups of 1 to 80 observations: tau ~ half-Cauchy(1), sigma ~ half-Cauchy(1).

    Coordinates: mu, log tau, log sigma, the groups' means. Large groups determine their means, small ones do not.
    """
    sizes = np.array([1, 1, 2, 2, 3, 4, 6, 8, 12, 20, 40, 80])
    num_groups = len(sizes)
    rng = np.random.default_rng(13)
    group = np.repeat(np.arange(num_groups), sizes)
    y = (1.0 + 0.3 * rng.standard_normal(num_groups))[group] + rng.standard_normal(len(group))

    def log_prob(xp, q):
        mu, log_tau, log_sigma, theta = q[..., 0], q[..., 1], q[..., 2], q[..., 3:]
        prior = -xp.square(mu) / 50.0 + _half_cauchy(xp, log_tau, 1.0) + _half_cauchy(xp, log_sigma, 1.0)
        prior -= 0.5 * xp.exp(-2.0 * log_tau) * xp.total(xp.square(theta - mu[..., None])) + num_groups * log_tau
        residual = xp.constant(y, q) - xp.take(theta, group)
        return prior - 0.5 * xp.exp(-2.0 * log_sigma) * xp.total(xp.square(residual)) - len(group) * log_sigma

    def easy(xp, z):
        return xp.concat([z[..., :3], z[..., :1] + xp.exp(z[..., 1:2]) * z[..., 3:]]), num_groups * z[..., 1]

    return Target('hierarchical-normal-15', 3 + num_groups, log_prob, _near(0.0, 3 + num_groups), easy=easy)


def gaussian_process(num: int = 40) -> Target:
    """Regression: log length scale, amplitude and noise of a squared exponential kernel, the function integrated out."""
    rng = np.random.default_rng(14)
    x = np.sort(rng.uniform(0.0, 10.0, num))
    y = np.sin(x) + 0.3 * rng.standard_normal(num)
    squared = np.square(x[:, None] - x)

    def log_prob(xp, q):
        length, amplitude, noise = (xp.exp(2.0 * q[..., i, None, None]) for i in range(3))
        kernel = amplitude * xp.exp(-0.5 * xp.constant(squared, q) / length)
        root = xp.cholesky(kernel + (noise + 1e-6) * xp.constant(np.eye(num), q))
        scores = xp.solve_lower(root, xp.constant(y, q) + 0.0 * q[..., :1])
        diagonal = xp.total(root * xp.constant(np.eye(num), q))
        return -0.5 * xp.total(xp.square(scores)) - xp.total(xp.log(diagonal)) - 0.5 * xp.total(xp.square(q))

    return Target('gaussian-process-3', 3, log_prob, _near(-0.5, 3))


def robust_regression(num: int = 100, dimension: int = 8) -> Target:
    """Student's t errors with unknown degrees of freedom nu ~ Gamma(2, 0.1). Coordinates: log sigma, log nu, beta."""
    rng = np.random.default_rng(15)
    x = rng.standard_normal((num, dimension))
    x[:, 1] = 0.95 * x[:, 0] + 0.3 * x[:, 1]
    y = x @ rng.standard_normal(dimension) + 0.5 * rng.standard_t(2.5, num)

    def log_prob(xp, q):
        log_sigma, log_nu, beta = q[..., 0], q[..., 1], q[..., 2:]
        nu = xp.exp(log_nu)
        prior = 2.0 * log_nu - 0.1 * nu - 0.5 * xp.square(log_sigma) - xp.total(xp.square(beta)) / 50.0
        scores = (xp.constant(y, q) - xp.matvec(x, beta)) * xp.exp(-log_sigma)[..., None]
        tails = xp.total(xp.log1p(xp.square(scores) / nu[..., None]))
        normaliser = xp.lgamma(0.5 * (nu + 1.0)) - xp.lgamma(0.5 * nu) - 0.5 * log_nu - log_sigma
        return prior + num * normaliser - 0.5 * (nu + 1.0) * tails

    return Target(f'robust-regression-{2 + dimension}', 2 + dimension, log_prob, _near(0.0, 2 + dimension))


def item_response(num_persons: int = 30, num_items: int = 12) -> Target:
    """Two-parameter logistic: ability N(0, 1), log discrimination N(0, 0.5), difficulty N(mu, tau) with tau half-Cauchy(1).

    Coordinates: mu, log tau, abilities, log discriminations, difficulties (centred).
    """
    rng = np.random.default_rng(16)
    ability, difficulty = rng.standard_normal(num_persons), 0.5 + rng.standard_normal(num_items)
    logits = np.exp(0.4 * rng.standard_normal(num_items)) * (ability[:, None] - difficulty)
    y = (rng.uniform(size=logits.shape) < 1.0 / (1.0 + np.exp(-logits))).astype(float)
    first, second = 2 + num_persons, 2 + num_persons + num_items

    def log_prob(xp, q):
        mu, log_tau = q[..., 0], q[..., 1]
        ability, log_slope, difficulty = q[..., 2:first], q[..., first:second], q[..., second:]
        prior = -0.5 * xp.square(mu) / 4.0 + _half_cauchy(xp, log_tau, 1.0) - 0.5 * xp.total(xp.square(ability))
        prior -= 2.0 * xp.total(xp.square(log_slope)) + num_items * log_tau
        prior -= 0.5 * xp.exp(-2.0 * log_tau) * xp.total(xp.square(difficulty - mu[..., None]))
        logits = xp.exp(log_slope)[..., None, :] * (ability[..., :, None] - difficulty[..., None, :])
        return prior + xp.total(xp.total(xp.constant(y, q) * logits - xp.softplus(logits)))

    dimension = second + num_items
    return Target(f'item-response-{dimension}', dimension, log_prob, _near(0.0, dimension))


def posteriordb_file(name: str) -> dict:
    """Data and reference moments of a posterior of posteriordb."""
    return json.loads((pathlib.Path(__file__).parent / 'posteriordb' / f'{name}.json').read_text())


def posteriordb(name: str) -> Target:
    """arK, kidscore_momiq or logearn_interaction as (beta, log sigma), or garch11, with posteriordb's reference moments."""
    file = posteriordb_file(name)
    data = {key: np.array(value, np.float64) for key, value in file['data'].items()}
    if name == 'garch11':
        return _garch(data, _reference(file, ['mu', 'alpha0', 'alpha1', 'beta1']))
    width = 2.5  # of sigma's half-Cauchy prior
    if name == 'arK':
        order, y = file['data']['K'], data['y']
        design = np.stack([np.ones(len(y) - order), *(y[order - k - 1 : -k - 1] for k in range(order))], axis=-1)
        y, prior_scale, names = y[order:], 10.0, ['alpha', *(f'beta[{k + 1}]' for k in range(order))]
    else:
        prior_scale = np.inf
        if name == 'kidscore_momiq':
            design, y = np.stack([np.ones_like(data['mom_iq']), data['mom_iq']], axis=-1), data['kid_score']
        else:
            height, male = data['height'], data['male']
            design, y = np.stack([np.ones_like(height), height, male, height * male], axis=-1), np.log(data['earn'])
            width = np.inf
        names = [f'beta[{k + 1}]' for k in range(design.shape[1])]
    dimension = len(names) + 1

    def log_prob(xp, q):
        beta, log_sigma = q[..., :-1], q[..., -1]
        residual = (xp.constant(y, q) - xp.matvec(design, beta)) * xp.exp(-log_sigma)[..., None]
        prior = _half_cauchy(xp, log_sigma, width) - 0.5 * xp.total(xp.square(beta / prior_scale))
        return prior - 0.5 * xp.total(xp.square(residual)) - len(y) * log_sigma

    return Target(
        name,
        dimension,
        log_prob,
        _near(0.0, dimension),
        constrain=lambda q: np.concatenate([q[..., :-1], np.exp(q[..., -1:])], axis=-1),
        known=_reference(file, [*names, 'sigma']),
    )


def _garch(data: dict[str, np.ndarray], known: dict[int, tuple[float, float, float, float]]) -> Target:
    """(mu, log alpha0, logit alpha1, logit of beta1 / (1 - alpha1)); the recursion solved: sums over powers of beta1."""
    y = data['y']
    num = len(y)
    lag = np.maximum(np.subtract.outer(np.arange(num), np.arange(num)), 0).astype(float)  # of variance t to shock s
    is_past = np.tril(np.ones((num, num)))

    def log_prob(xp, q):
        mu, log_alpha0 = q[..., 0], q[..., 1]
        log_alpha1, log_rest1 = -xp.softplus(-q[..., 2]), -xp.softplus(q[..., 2])
        log_share, log_rest = -xp.softplus(-q[..., 3]), -xp.softplus(q[..., 3])
        powers = xp.exp(xp.constant(lag, q) * (log_share + log_rest1)[..., None, None]) * xp.constant(is_past, q)
        squared = xp.square(xp.constant(y, q) - mu[..., None])
        shocks = xp.exp(log_alpha0)[..., None] + xp.exp(log_alpha1)[..., None] * squared[..., :-1]
        first = xp.constant(np.square(data['sigma1']), q) + 0.0 * q[..., :1]
        variance = xp.total(powers * xp.concat([first, shocks])[..., None, :])
        likelihood = -0.5 * xp.total(squared / variance + xp.log(variance))
        return likelihood + log_alpha0 + log_alpha1 + 2.0 * log_rest1 + log_share + log_rest

    def constrain(q):
        alpha1 = 1.0 / (1.0 + np.exp(-q[..., 2]))
        beta1 = (1.0 - alpha1) / (1.0 + np.exp(-q[..., 3]))
        return np.stack([q[..., 0], np.exp(q[..., 1]), alpha1, beta1], axis=-1)

    return Target('garch11', 4, log_prob, _near(0.0, 4), constrain=constrain, known=known)


def _reference(file: dict, names: list[str]) -> dict[int, tuple[float, float, float, float]]:
    """posteriordb's moments by coordinate."""
    rows = (file['reference'][name] for name in names)
    return {i: (row['mean'], row['sd'], row['mcse_mean'], row['mcse_sd']) for i, row in enumerate(rows)}


def _near(centre: float, dimension: int) -> Callable[[int, int], np.ndarray]:
    """Starts close to a point from which every sampler finds the typical set; not draws of the target."""
    return lambda num, seed: centre + 0.1 * np.random.default_rng(seed).standard_normal((num, dimension))


def _half_cauchy(xp: Arrays, log_scale: Any, width: float) -> Any:
    """Log density of the logarithm of a half-Cauchy variable, up to a constant."""
    return log_scale - xp.log1p(xp.square(xp.exp(log_scale) / width))
