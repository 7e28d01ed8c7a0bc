"""What draws are worth, and whether they are right: one currency for all samplers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

__all__ = ['Truth', 'least_bulk_ess', 'moment_z', 'moments', 'share_z', 'worst_r_hat', 'worst_z']

# Scalar name -> mean, standard deviation and the Monte Carlo errors of both (0 where the truth is exact).
Truth = Mapping[str, tuple[float, float, float, float]]


def least_bulk_ess(draws: np.ndarray) -> float:
    """The least bulk effective sample size (ArviZ's: ranks as normal scores, split chains) of `[draws, chains, D]`.

    0 where a coordinate never moves.
    """
    return min(_arviz('ess', column, method='bulk') for column in np.moveaxis(draws, 2, 0))


def worst_r_hat(draws: np.ndarray) -> float:
    """The largest rank-normalised split R-hat of `[draws, chains, D]`; infinite where a coordinate never moves."""
    return max(_arviz('rhat', column, method='rank') or np.inf for column in np.moveaxis(draws, 2, 0))


def moments(column: np.ndarray) -> tuple[float, float, float, float]:
    """Mean and standard deviation of `[draws, chains]`, and their Monte Carlo errors.

    That of the standard deviation is the delta method's, from the effective sample size of squared deviations: the normal
    theory's is too small under heavy tails.
    """
    squared = np.square(column - column.mean())
    deviation = np.sqrt(squared.mean())
    if deviation == 0.0:
        return float(column.mean()), 0.0, 0.0, 0.0
    mean_error = deviation / np.sqrt(max(_arviz('ess', column, method='mean'), 1.0))
    squared_error = squared.std() / np.sqrt(max(_arviz('ess', squared, method='mean'), 1.0))
    return float(column.mean()), float(deviation), float(mean_error), float(0.5 * squared_error / deviation)


def moment_z(column: np.ndarray, truth: tuple[float, float, float, float]) -> tuple[float, float]:
    """How far mean and deviation of `[draws, chains]` are from the truth, in units of both sides' Monte Carlo errors."""
    mean, deviation, mean_error, deviation_error = moments(column)
    mean_error, deviation_error = np.hypot(mean_error, truth[2]), np.hypot(deviation_error, truth[3])
    with np.errstate(divide='ignore'):  # draws that never move: infinitely far
        return abs(np.float64(mean - truth[0])) / mean_error, abs(np.float64(deviation - truth[1])) / deviation_error


def share_z(is_below: np.ndarray, probability: float) -> float:
    """How far the share of True in `[draws, chains]` is from its probability, in Monte Carlo standard errors.

    The error is that of the true probability: where a tail is missed, the draws themselves would make it far too small.
    """
    effective = max(_arviz('ess', is_below.astype(float), method='mean'), 1.0)
    return float(abs(is_below.mean() - probability) / np.sqrt(probability * (1.0 - probability) / effective))


def worst_z(columns: Mapping[str, np.ndarray], truth: Truth) -> float:
    """The largest |z| of any mean or standard deviation of columns `[draws, chains]`."""
    return max(max(moment_z(columns[name], moments)) for name, moments in truth.items())


def _arviz(name: str, column: np.ndarray, **options: str) -> float:
    """A diagnostic of `[draws, chains]`; 0 where it is not a number."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # ArviZ announces its next major version
        import arviz

        return float(np.nan_to_num(getattr(arviz, name)(np.asarray(column, np.float64).T, **options)))
