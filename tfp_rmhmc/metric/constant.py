"""The constant metric that fits draws and scores best: the mass matrix of HMC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfp_rmhmc.metric.regression import Array

__all__ = ['MAX_DENSE', 'DrawsAndScores', 'constant_parameters', 'rooted']

MAX_DENSE = 300  # coordinates of a block with a correlation matrix
# Shares by which correlations may be shrunk; 1 is a diagonal metric.
_SHRINKAGES = (1.0, 0.5, 0.2, 0.05, 0.01, 1e-3, 1e-5, 0.0)
_LEAST_EIGENVALUE = 1e-13  # of a covariance, by its largest


class DrawsAndScores(NamedTuple):
    """Both `[n, D]`."""

    draws: Array
    scores: Array


def constant_parameters(whole: DrawsAndScores, halves: Sequence[DrawsAndScores]) -> dict[str, Array]:
    """Parameters of a `LearnedMetric`'s only block: the matrix with `G cov(q) G = cov(g)`.

    It is the geometric mean of the scores' covariance and the inverse of the draws', and for a Gaussian target the
    precision itself, from any D + 1 draws, converged or not. It minimises

        F(G) = trace(G^-1 cov(g)) + trace(G cov(q))

    which is, up to a constant, the Fisher divergence of the target from a Gaussian of precision G. How far the
    correlations are shrunk is chosen by F on draws that were held out. So what the draws say exactly is kept, however much
    they depend on each other, and what is noise is not. Reference: Seyboldt, Carlson and Carpenter 2026,
    "Preconditioning Hamiltonian Monte Carlo by minimizing Fisher divergence".

    Args:
      whole: all draws.
      halves: two parts of them, each to be fitted and the other to be judged.
    """
    spreads = [np.maximum(x.std(axis=0), 1e-150) for x in whole]
    log_precision = np.log(spreads[1]) - np.log(spreads[0])
    if not 1 < len(log_precision) <= MAX_DENSE:
        return {'c': log_precision}
    scale = np.exp(0.5 * log_precision)
    of_whole, *of_halves = [_covariances(part, scale) for part in (whole, *halves)]
    losses = np.zeros(len(_SHRINKAGES))
    for fitted, judged in (of_halves, of_halves[::-1]):
        losses += [_divergence(metric, *judged) for metric in _shrunk_geometric_means(*fitted, _SHRINKAGES)]
    best = _SHRINKAGES[int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))]
    (metric,) = _shrunk_geometric_means(*of_whole, (best,))
    diagonal = np.diag(metric)
    correlation = metric / np.sqrt(np.outer(diagonal, diagonal))
    return {'c': log_precision + np.log(diagonal)} | rooted(0.5 * (correlation + correlation.T))


def rooted(correlation: Array) -> dict[str, Array]:
    """A correlation as a `LearnedMetric` takes it: its lower triangular root, and its inverse."""
    return {'root': np.linalg.cholesky(correlation), 'inverse': np.linalg.inv(correlation)}


def _covariances(part: DrawsAndScores, scale: Array) -> tuple[Array, Array]:
    """Of draws and of scores, `[D, D]` each, in coordinates `scale * q`."""
    return np.cov((part.draws * scale).T), np.cov((part.scores / scale).T)


def _shrunk_geometric_means(of_draws: Array, of_scores: Array, shrinkages: Sequence[float]) -> list[Array]:
    """The matrices G with `G of_draws G = of_scores`, for each share by which both correlations are shrunk."""
    found = []
    (of_draws, draws_spread), (of_scores, scores_spread) = (
        (matrix / np.outer(spread, spread), spread)
        for matrix, spread in ((x, np.sqrt(np.maximum(np.diag(x), 1e-300))) for x in (of_draws, of_scores))
    )
    identity = np.eye(len(of_draws))
    for shrinkage in shrinkages:
        first, second = (
            ((1.0 - shrinkage) * correlation + shrinkage * identity) * np.outer(spread, spread)
            for correlation, spread in ((of_draws, draws_spread), (of_scores, scores_spread))
        )
        values, vectors = np.linalg.eigh(first)
        values = np.maximum(values, _LEAST_EIGENVALUE * values[-1])
        root, inverse_root = (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
        values, vectors = np.linalg.eigh(root @ second @ root)
        values = np.maximum(values, _LEAST_EIGENVALUE * values[-1])
        found.append(inverse_root @ ((vectors * np.sqrt(values)) @ vectors.T) @ inverse_root)
    return found


def _divergence(metric: Array, of_draws: Array, of_scores: Array) -> float:
    """`trace(G^-1 cov(g)) + trace(G cov(q))`."""
    return float(np.trace(np.linalg.solve(metric, of_scores)) + np.sum(metric * of_draws))
