"""Directions along which the precision of a block is a constant plus an exponential, and nothing else.

What the data say and what a prior of varying scale says add up to a pencil of matrices,

    P(s) = A + e(s) B,        e(s) = exp(w . s)

whose correlation varies with s. But along the directions that diagonalise A and B together it is a diagonal matrix p(s), so
that the metric `G = W' diag(p(s)) W` expresses what `S C S` with a constant correlation cannot.

A and B are found by regression. Where a block is Gaussian given s, its scores are linear in its coordinates x,

    -g = (A + e(s) B) x + a + e(s) b

without any noise, so that `2 d + 2` draws give both exactly, however much they depend on each other. Elsewhere it is the
best linear fit. Each draw counts by the inverse of its mean precision, or those with large scores would say it all. The
exponents' size is what leaves the least residual. From the directions on, precisions are fitted to squared scores, as those
of coordinates are.

**Directions are known as well as the draws tell.** If a dual direction m_i is not exact, `m_i . g` has a share of what
scores are along another direction j. From n draws of autocorrelation time tau the variance of that share is about

    p_j(s) tau / sum_n p_j(s_n) / p_i(s_n)

Where p_j is larger than at any draw, deep in the neck of a funnel, this may be far more than p_i itself, and a step that is
stable by p_i is not stable. So it is added: `M p(s)` takes the place of `p(s)`, with a constant matrix M. Where there are
draws it hardly differs from the identity.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfp_rmhmc.metric.regression import Array, gamma_regression, log_precisions

__all__ = ['parameters_along_directions']

# The autocorrelation time that leaks are reckoned with. A coordinate that sets scales is slow while they are being learned.
_TIME = 4.0
_MOST = np.log(1.6)  # by which log exponents may differ from those of coordinates
_LEAST_EIGENVALUE = 1e-4  # of a correlation, by its largest
# At which shares of draws the pencil's two matrices are taken: far apart, and still among the draws.
_LOW, _HIGH = 0.1, 0.9


def parameters_along_directions(values: Array, draws: Array, scores: Array, ridge: float) -> dict[str, Array]:
    """Directions and their scales: the parameters of a `LearnedMetric`'s block. O(n d^2 + d^3).

    Args:
      values: of the setters, `[n, S]`.
      draws: of the block, `[n, d]`.
      scores: gradients of the log density there.
      ridge: by which A and B are drawn to diagonal matrices.
    """
    every_setter = np.ones((values.shape[1], scores.shape[1]))
    spread = np.maximum(scores.std(axis=0), 1e-150)
    duals = _dual_directions(values, (draws - draws.mean(axis=0)) * spread, scores / spread, ridge) / spread
    # Directions of determinant one: their length goes into the scales.
    duals *= np.exp(-np.linalg.slogdet(duals)[1] / len(duals))
    parameters = gamma_regression(values, np.square(scores @ duals.T), every_setter)
    parameters |= {'mixture': _mixture(np.exp(log_precisions(parameters, values)))}
    return parameters | {'directions': np.linalg.inv(duals.T), 'dual': duals.T}


def _dual_directions(values: Array, draws: Array, scores: Array, ridge: float) -> Array:
    """Rows m_i for which `m_i P(s) m_j` vanishes at all s, `[d, d]`."""
    along = gamma_regression(values, np.square(scores), np.ones((values.shape[1], scores.shape[1])))
    log_precision = log_precisions(along, values)
    weights = np.exp(-0.5 * (log_precision.mean(axis=1, keepdims=True) - log_precision.mean()))
    varying = along['a'] + values @ along['w']
    shares = np.mean(np.exp(varying - log_precision), axis=0)
    exponent = values @ (along['w'] @ shares / shares.sum())
    exponent -= exponent.mean()
    guesses = np.exp(along['c']), np.exp(varying.mean(axis=0))

    def fitted(log_factor: float) -> tuple[float, Array, Array, Array]:
        factors = np.exp(np.exp(log_factor) * exponent)
        return (*_regressed(draws, scores, factors, weights, guesses, ridge), factors)

    _, constant, slope, factors = fitted(_least(lambda x: fitted(x)[0], -_MOST, _MOST))
    low, high = (_positive(constant + factor * slope) for factor in np.quantile(factors, [_LOW, _HIGH]))
    inverse_root = np.linalg.inv(np.linalg.cholesky(low))
    _, vectors = np.linalg.eigh(inverse_root @ high @ inverse_root.T)
    return vectors.T @ inverse_root


def _regressed(
    draws: Array, scores: Array, factors: Array, weights: Array, guesses: tuple[Array, Array], ridge: float
) -> tuple[float, Array, Array]:
    """The residual, A and B of `-g = (A + e B) x + a + e b`, drawn to the guesses' diagonal matrices."""
    num, dimension = draws.shape
    e = factors[:, None]
    features = np.concatenate([draws, e * draws, np.ones_like(e), e], axis=1) * weights
    size = np.sqrt(np.mean(np.square(features), axis=0)) + 1e-300
    features /= size
    unexplained = (-scores - (guesses[0] + e * guesses[1]) * draws) * weights
    penalty = num * np.append(np.full(2 * dimension, ridge + 1e-10), [1e-10, 1e-10])
    found = np.linalg.solve(features.T @ features + np.diag(penalty), features.T @ unexplained)
    residual = float(np.mean(np.square(unexplained - features @ found)))
    found /= size[:, None]
    matrices = (found[k * dimension : (k + 1) * dimension] + np.diag(guesses[k]) for k in (0, 1))
    constant, slope = (0.5 * (matrix + matrix.T) for matrix in matrices)
    return residual, constant, slope


def _positive(matrix: Array) -> Array:
    """The matrix with eigenvalues of its correlation not below a least one."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-12 * np.abs(matrix).max()))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    values = np.maximum(values, _LEAST_EIGENVALUE * values[-1])
    return (vectors * values) @ vectors.T * np.outer(scale, scale)


def _least(fn: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one variable is least, by golden sections, to a thousandth of the range."""
    ratio = 0.5 * (np.sqrt(5.0) - 1.0)
    inner = [high - ratio * (high - low), low + ratio * (high - low)]
    values = [fn(x) for x in inner]
    for _ in range(15):
        if values[0] < values[1]:
            high, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = high - ratio * (high - low)
            values[0] = fn(inner[0])
        else:
            low, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = low + ratio * (high - low)
            values[1] = fn(inner[1])
    return inner[int(values[1] < values[0])]


def _mixture(precisions: Array) -> Array:
    """The matrix M that adds what leaks between directions, `[d, d]`, from precisions at draws, `[n, d]`.

    The mean of log precisions stays what it is, so that scores that are held out judge the shape of a metric, whose overall
    scale is the step size's.
    """
    leaks: Array = _TIME / ((1.0 / precisions).T @ precisions)
    np.fill_diagonal(leaks, 0.0)
    mixture: Array = np.eye(len(leaks)) + leaks
    growth = np.mean(np.log(precisions @ mixture.T) - np.log(precisions))
    return mixture * np.exp(-growth)
