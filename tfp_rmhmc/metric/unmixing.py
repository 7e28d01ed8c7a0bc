"""Directions along which the scores of a block have scales of their own.

A precision `A + exp(w s) B`, what the data say plus what a prior of varying scale says, has a correlation that varies with
s. But along the directions that diagonalise A and B together it is a diagonal matrix, with a constant and a varying part in
each. So the metric `G = W' diag(p(s)) W` expresses what `S C S` with a constant correlation cannot.

W and the precisions p_i are found by maximising the likelihood of scores under `g ~ N(0, G(s))`, in turns. For given
precisions it is the separation of sources whose variances are known and vary (Pham and Cardoso 2001, "Blind separation of
instantaneous mixtures of nonstationary sources"). Each dual direction m_i, with `m_i . g` of unit variance where G is
right, then has a closed form (iterative projection; Ono 2011, "Stable and fast update rules for independent vector analysis
based on auxiliary function technique"), and no step makes the likelihood less.

**Directions are known as well as the draws tell.** The information about the share of direction j in m_i is
`sum_n p_j(s_n) / p_i(s_n)`, so that what leaks from direction j into i has, at s, the variance

    p_j(s) tau / sum_n p_j(s_n) / p_i(s_n)

for draws of autocorrelation time tau. Where p_j is larger than at any draw, deep in the neck of a funnel, this may be far
more than p_i itself, and a step that is stable by p_i is not stable. So it is added: `M p(s)` takes the place of `p(s)`,
with a constant matrix M. Where there are draws it hardly differs from the identity. On centred eight schools a third of all
trajectories from the lowest hundredth of log tau diverged without it, and one in fifty with it.
"""

from __future__ import annotations

import numpy as np

from tfp_rmhmc.metric.regression import Array, gamma_regression, log_precisions

__all__ = ['unmixed']

_SWEEPS = 3  # from the principal directions the likelihood hardly grows after two
_MAX_ROWS = 2000  # that covariances are made of: a sweep costs O(n d^3)
# The autocorrelation time that leaks are reckoned with. A coordinate that sets scales is slow while they are being learned,
# and a neck is visited by few draws, one after the other: more than is likely is safe, and costs little elsewhere.
_TIME = 16.0


def unmixed(values: Array, scores: Array, shrinkage: float) -> dict[str, Array]:
    """Directions and their scales: the parameters of a `LearnedMetric`'s block.

    Args:
      values: of the setters, `[n, S]`.
      scores: of the block, `[n, d]`.
      shrinkage: share by which covariances of scores lose what is outside of their diagonal.
    """
    dimension = scores.shape[1]
    every_setter = np.ones((values.shape[1], dimension))
    spread = np.maximum(scores.std(axis=0), 1e-150)
    scaled = scores / spread
    # The start: principal directions of scores whose overall scale does not vary, or where it is largest would say it all.
    level = log_precisions(gamma_regression(values, np.square(scaled), every_setter), values).mean(axis=1)
    levelled = scaled * np.exp(-0.5 * (level - level.mean()))[:, None]
    eigenvalues, vectors = np.linalg.eigh(_without_correlation(levelled.T @ levelled / len(levelled), shrinkage))
    duals = (vectors / np.sqrt(np.maximum(eigenvalues, 1e-12 * eigenvalues[-1]))).T  # rows m_i
    rows = slice(None, None, max(1, len(scaled) // _MAX_ROWS))
    parameters = gamma_regression(values, np.square(scaled @ duals.T), every_setter)
    for _ in range(_SWEEPS):
        weights = np.exp(-log_precisions(parameters, values))[rows]
        duals = _swept(duals, scaled[rows], weights, shrinkage)
        parameters = gamma_regression(values, np.square(scaled @ duals.T), every_setter)
    parameters |= {'mixture': _mixture(parameters, values)}
    duals = duals / spread
    # Directions of determinant one: their length goes into the scales.
    log_length = -np.linalg.slogdet(duals)[1] / dimension
    dual = duals.T * np.exp(log_length)
    shifted = {key: parameters[key] + 2.0 * log_length for key in ('c', 'a')}
    return parameters | shifted | {'directions': np.linalg.inv(dual), 'dual': dual}


def _mixture(parameters: dict[str, Array], values: Array) -> Array:
    """The matrix M that adds what leaks between directions, `[d, d]`.

    The mean of log precisions stays what it is, so that scores that are held out judge the shape of a metric, whose overall
    scale is the step size's.
    """
    precisions = np.exp(log_precisions(parameters, values))
    leaks: Array = _TIME / ((1.0 / precisions).T @ precisions)
    np.fill_diagonal(leaks, 0.0)
    mixture: Array = np.eye(len(leaks)) + leaks
    growth = np.mean(np.log(precisions @ mixture.T) - np.log(precisions))
    return mixture * np.exp(-growth)


def _swept(duals: Array, scores: Array, weights: Array, shrinkage: float) -> Array:
    """Each dual direction in turn, the others being what they are: `m_i ~ (M V_i)^-1 e_i` with `V_i = E[weight_i g g']`."""
    duals = duals.copy()
    for i, unit in enumerate(np.eye(len(duals))):
        covariance = _without_correlation((scores * weights[:, i : i + 1]).T @ scores / len(scores), shrinkage)
        direction = np.linalg.solve(duals @ covariance, unit)
        duals[i] = direction / np.sqrt(direction @ covariance @ direction)
    return duals


def _without_correlation(covariance: Array, share: float) -> Array:
    """A covariance without a share of what is outside of its diagonal."""
    return (1.0 - share) * covariance + share * np.diag(np.diag(covariance))
