"""Pictures of draws, by matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ['pairs', 'trace']

# Distinguishable without colour vision (Okabe and Ito).
_COLORS = ['#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9', '#F0E442', '#999999']
_DIVERGING = '#D55E00'
_BINS = 40
_MAX_POINTS = 5000  # of a scatter plot, so that files stay small


def trace(coordinates: dict[str, np.ndarray], diverging: np.ndarray) -> Any:
    """Histograms by chain, and draws in order; axes `[rows, 2]`.

    Args:
      coordinates: `[num_draws, num_chains]`, by name.
      diverging: which trajectories did, `[num_draws, num_chains]`.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(coordinates), 2, figsize=(10.0, 1.0 + 1.5 * len(coordinates)), squeeze=False, width_ratios=[1, 2]
    )
    when = np.flatnonzero(diverging.any(axis=1))
    for (left, right), (name, x) in zip(axes, coordinates.items(), strict=True):
        bins = np.histogram_bin_edges(x[np.isfinite(x)], _BINS)
        for chain, column in enumerate(x.T):
            color = _COLORS[chain % len(_COLORS)]
            left.hist(column, bins, density=True, histtype='step', color=color, linewidth=1.0)
            right.plot(column, color=color, linewidth=0.5, alpha=0.8)
        bottom = right.get_ylim()[0]
        right.plot(when, np.full(len(when), bottom), '|', color=_DIVERGING, markersize=8, clip_on=False, label='diverged')
        left.set_ylabel(name, rotation=0, ha='right', va='center')
        left.set_yticks([])
        right.set_xlim(0, len(x))
        for axis in (left, right):
            axis.spines[['top', 'right']].set_visible(False)
    axes[-1, 1].set_xlabel('draw')
    if len(when):
        axes[0, 1].legend(loc='upper right', frameon=False, fontsize='small')
    figure.tight_layout()
    return axes


def pairs(coordinates: dict[str, np.ndarray], diverging: np.ndarray) -> Any:
    """Scatter plots below the diagonal, histograms on it; axes `[rows, rows]`.

    Args:
      coordinates: `[num_draws, num_chains]`, by name.
      diverging: which trajectories did, `[num_draws, num_chains]`.
    """
    import matplotlib.pyplot as plt

    num = len(coordinates)
    figure, axes = plt.subplots(num, num, figsize=(1.0 + 1.9 * num, 1.0 + 1.9 * num), squeeze=False, sharex='col')
    columns = [np.ravel(x) for x in coordinates.values()]
    is_bad = np.ravel(diverging).astype(bool)
    shown = np.unique(np.linspace(0, is_bad.size - 1, min(_MAX_POINTS, is_bad.size)).astype(int))
    for (i, j), axis in np.ndenumerate(axes):
        axis.spines[['top', 'right']].set_visible(False)
        if i < j:
            axis.axis('off')
            continue
        if i == j:
            axis.hist(columns[i][np.isfinite(columns[i])], _BINS, color=_COLORS[0], alpha=0.6)
            axis.set_yticks([])
        else:
            axis.plot(columns[j][shown], columns[i][shown], '.', color=_COLORS[0], markersize=2, alpha=0.4)
            axis.plot(columns[j][is_bad], columns[i][is_bad], 'x', color=_DIVERGING, markersize=4)
    for name, below, left in zip(coordinates, axes[-1], axes[:, 0], strict=True):
        below.set_xlabel(name)
        left.set_ylabel(name)
    if is_bad.any():
        figure.legend(
            handles=[plt.Line2D([], [], color=_DIVERGING, marker='x', linestyle='', label=f'diverged ({is_bad.sum()})')],
            loc='upper right',
            frameon=False,
        )
    figure.tight_layout()
    return axes
