"""Pictures of a network's predictions. They need matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfp_rmhmc.keras.predictive import Predictive

__all__ = ['plot_calibration', 'plot_predictive']

# Distinguishable without colour vision (Okabe and Ito).
_BLUE, _ORANGE, _GREY = '#0072B2', '#D55E00', '#666666'


def plot_calibration(predictive: Predictive, y: Any, num_bins: int, axes: Any) -> Any:
    """A reliability diagram: accuracy against confidence, and below it how many predictions each bin has.

    Args:
      predictive: of a classifier.
      y: labels.
      num_bins: of equal width.
      axes: two of matplotlib, for the diagram and the counts; None for a new figure.

    Returns:
      The two axes.
    """
    found = predictive.reliability(y, num_bins)
    error = predictive.calibration_error(y, num_bins)
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(2, 1, figsize=(4.4, 5.2), sharex=True, height_ratios=(3, 1), layout='constrained')
    upper, lower = axes
    full = found.number > 0
    # An error bar is the binomial standard error of the accuracy, where it is what the confidence says.
    expected = found.confidence[full]
    spread = np.sqrt(expected * (1.0 - expected) / found.number[full])
    upper.plot([0.0, 1.0], [0.0, 1.0], color=_GREY, linewidth=1, linestyle='--', label='calibrated')
    upper.errorbar(
        expected, found.accuracy[full], spread, color=_BLUE, marker='o', markersize=4, linewidth=1.2, label='predictions'
    )
    upper.set_ylabel('accuracy')
    upper.set_xlim(0.0, 1.0)
    upper.set_ylim(-0.02, 1.02)
    upper.set_title(f'calibration error {error:.3f}', fontsize='medium')
    upper.legend(loc='upper left', frameon=False)
    width = 1.0 / num_bins
    lower.bar((np.arange(num_bins) + 0.5) * width, found.number, 0.9 * width, color=_BLUE)
    lower.set_ylabel('predictions')
    lower.set_xlabel('confidence')
    for axis in (upper, lower):
        axis.spines[['top', 'right']].set_visible(False)
    return axes


def plot_predictive(predictive: Predictive, grid: np.ndarray, x: np.ndarray, y: np.ndarray, axes: Any) -> Any:
    """The predictive mean and its bands along one input, over the data.

    Args:
      predictive: at the grid, of one output.
      grid: inputs in increasing order, `[G]`.
      x, y: the data, `[N]`.
      axes: of matplotlib; None for a new figure.

    Returns:
      The axes.
    """
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(5.6, 3.6), layout='constrained')
    mean, (low, high) = predictive.mean()[:, 0], (bound[:, 0] for bound in predictive.credible_interval(0.95))
    if not predictive.is_classifier:
        spread = 2.0 * predictive.stddev()[:, 0]
        axes.fill_between(
            grid, mean - spread, mean + spread, color=_BLUE, alpha=0.15, linewidth=0, label='2 deviations, with noise'
        )
    axes.fill_between(grid, low, high, color=_BLUE, alpha=0.35, linewidth=0, label='95 % of draws')
    axes.plot(grid, mean, color=_BLUE, linewidth=1.5, label='mean')
    axes.plot(x, y, linestyle='none', marker='o', markersize=3, color=_ORANGE, label='data')
    axes.set_xlabel('x')
    axes.set_ylabel('y')
    axes.spines[['top', 'right']].set_visible(False)
    axes.legend(frameon=False, fontsize='small')
    return axes
