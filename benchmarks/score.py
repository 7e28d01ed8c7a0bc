"""What draws are worth, and whether they are right: one currency for all samplers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

__all__ = ['Truth', 'least_bulk_ess', 'moment_z', 'worst_r_hat', 'worst_z']

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


def moment_z(column: np.ndarray, truth: tuple[float, float, float, float]) -> tuple[float, float]:
    """How far mean and standard deviation of `[draws, chains]` are from the truth, in Monte Carlo standard errors.

    The errors of both sides count. That of the standard deviation is the delta method's, from the effective sample size of
    squared deviations: the normal theory's is too small under heavy tails.
    """
    mean, deviation, mean_error, deviation_error = truth
    centred = np.square(column - column.mean())
    found = np.sqrt(centred.mean())
    errors = [
        found / np.sqrt(max(_arviz('ess', column, method='mean'), 1.0)),
        0.5 * centred.std() / found / np.sqrt(max(_arviz('ess', centred, method='mean'), 1.0)) if found > 0.0 else 0.0,
    ]
    return (
        abs(column.mean() - mean) / np.hypot(errors[0], mean_error),
        abs(found - deviation) / np.hypot(errors[1], deviation_error),
    )


def worst_z(columns: Mapping[str, np.ndarray], truth: Truth) -> float:
    """The largest |z| of any mean or standard deviation of columns `[draws, chains]`."""
    return max(max(moment_z(columns[name], moments)) for name, moments in truth.items())


def _arviz(name: str, column: np.ndarray, **options: str) -> float:
    """A diagnostic of `[draws, chains]`; 0 where it is not a number."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # ArviZ announces its next major version
        import arviz

        return float(np.nan_to_num(getattr(arviz, name)(np.asarray(column, np.float64).T, **options)))
