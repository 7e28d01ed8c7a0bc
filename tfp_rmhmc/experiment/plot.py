"""Figures of the experiments, as files."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ['COLORS', 'save_figure']

# Distinguishable without colour vision (Okabe and Ito).
COLORS = ['#0072B2', '#E69F00', '#009E73', '#D55E00', '#CC79A7', '#56B4E9', '#000000']


def save_figure(
    path: pathlib.Path, draw: Callable[[Any], None], columns: int = 1, size: float = 3.4, rows: int = 1
) -> str | None:
    """Draws into axes, row by row, and saves it; returns the path, or None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=(size * columns * 1.15, size * rows), squeeze=False)
    for axis in np.ravel(axes):
        axis.spines[['top', 'right']].set_visible(False)
    draw(np.ravel(axes))
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return str(path)
