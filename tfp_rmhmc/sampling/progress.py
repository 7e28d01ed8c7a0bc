"""The line that is shown while a run goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ['progress_bar', 'shown_by']


def progress_bar(total: int, wanted: bool | None) -> Any:
    """A tqdm bar; without tqdm, in logs, or if not wanted, an object with the same methods that shows nothing."""
    if wanted is None:
        wanted = sys.stderr.isatty() or _in_notebook()
    if wanted:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            wanted = False
    return tqdm(total=total, unit='draw') if wanted else _Silent()


def shown_by(bar: Any) -> Callable[[str, dict[str, np.ndarray]], None]:
    """What tells a bar of each chunk: phase, step size, gradients a draw, acceptance, divergences so far."""
    diverged = 0

    def show(phase: str, trace: dict[str, np.ndarray]) -> None:
        nonlocal diverged
        diverged += int(trace['diverging'].sum())
        bar.update(len(trace['lp']))
        bar.set_description(phase)
        bar.set_postfix(
            step=f'{trace["step_size"][-1].mean():.3g}',
            gradients=f'{trace["n_steps"].mean():.1f}',
            accept=f'{trace["acceptance_rate"].mean():.2f}',
            diverged=diverged,
        )

    return show


def _in_notebook() -> bool:
    # That IPython is imported says nothing: plotting and test tools import it too.
    ipython = sys.modules.get('IPython')
    return ipython is not None and ipython.get_ipython() is not None


class _Silent:
    def update(self, n: int) -> None:
        pass

    def set_description(self, text: str) -> None:
        pass

    def set_postfix(self, **values: Any) -> None:
        pass

    def close(self) -> None:
        pass
