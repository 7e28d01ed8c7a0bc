"""What a warm-up learned of a posterior's scales, in words and as a picture."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from tfp_rmhmc.metric import Fit

__all__ = ['LearnedScales']


@dataclasses.dataclass(frozen=True)
class LearnedScales:
    """Who sets whose scale. `print` it, or `plot` it.

    Attributes:
      exponents: `{(coordinate, setter): e}` by name: the coordinate's scale is proportional to `exp(e * setter)`, as far as
        it varies, both in the unconstrained space.
      blocks: coordinates that move together, by name.
      gain: by how much the log density of a draw's scores is higher than under a constant metric, on draws that were not
        used to learn it; 0 where the metric is constant.
      residual: the largest correlation that is left of what a separable metric cannot express; 0 if none.
      residual_names: two coordinates whose curvature depends on the third.
    """

    exponents: dict[tuple[str, str], float]
    blocks: list[list[str]]
    gain: float
    residual: float
    residual_names: tuple[str, str, str] | None

    @classmethod
    def of(cls, fit: Fit, names: list[str]) -> LearnedScales:
        """From a fit, with a name for each flat coordinate."""
        where = fit.residual_coordinates
        return cls(
            {(names[i], names[j]): e for (i, j), e in fit.exponents.items()},
            [[names[i] for i in block] for block in fit.structure.blocks],
            fit.gain,
            fit.residual,
            None if where is None else (names[where[0]], names[where[1]], names[where[2]]),
        )

    def to_json(self) -> dict[str, Any]:
        """For `from_json`."""
        described = dataclasses.asdict(self)
        return described | {'exponents': [[*key, value] for key, value in self.exponents.items()]}

    @classmethod
    def from_json(cls, described: dict[str, Any]) -> LearnedScales:
        """The inverse of `to_json`."""
        names = described['residual_names']
        return cls(
            {(name, setter): value for name, setter, value in described['exponents']},
            described['blocks'],
            described['gain'],
            described['residual'],
            None if names is None else tuple(names),
        )

    def sentences(self) -> list[str]:
        """One for each coordinate that sets scales."""
        setters = list(dict.fromkeys(setter for _, setter in self.exponents))
        found = []
        for setter in setters:
            groups: dict[str, list[tuple[str, float]]] = {}
            for (name, other), exponent in self.exponents.items():
                if other == setter:
                    groups.setdefault(re.sub(r'\[.*', '', name), []).append((name, exponent))
            told = [f'{_range([n for n, _ in group])} ({np.mean([e for _, e in group]):+.2f})' for group in groups.values()]
            found.append(f'{setter} sets the scale of {" and ".join(told)}')
        return found

    def residual_sentence(self) -> str:
        """What a separable metric cannot express; empty if there is nothing."""
        if self.residual_names is None:
            return ''
        first, second, setter = self.residual_names
        curved = first if first == second else f'{first} and {second}'
        return f'The curvature of {curved} still depends on {setter}, which a separable metric cannot follow'

    def __str__(self) -> str:
        told = self.sentences() or ['the scales are constant']
        return '; '.join([*told, *([self.residual_sentence()] if self.residual_names else [])])

    def plot(self, ax: Any = None) -> Any:
        """A matrix of exponents, coordinates by setters. Needs matplotlib; returns its axes."""
        import matplotlib.pyplot as plt

        setters = list(dict.fromkeys(setter for _, setter in self.exponents))
        rows = list(dict.fromkeys(name for name, _ in self.exponents))
        if ax is None:
            _, ax = plt.subplots(figsize=(2.5 + 0.6 * max(1, len(setters)), 1.5 + 0.22 * min(60, max(1, len(rows)))))
        if not rows:
            ax.text(0.5, 0.5, 'the scales are constant', ha='center', va='center')
            ax.set_axis_off()
            return ax
        matrix = np.array([[self.exponents.get((row, setter), np.nan) for setter in setters] for row in rows])
        limit = np.nanmax(np.abs(matrix))
        image = ax.imshow(matrix, cmap='RdBu_r', vmin=-limit, vmax=limit, aspect='auto', interpolation='nearest')
        ax.set_xticks(range(len(setters)), setters, rotation=45, ha='right')
        every = max(1, len(rows) // 40)
        ax.set_yticks(range(0, len(rows), every), rows[::every])
        ax.set_xlabel('sets the scale of')
        ax.figure.colorbar(image, ax=ax, label='exponent e: scale ~ exp(e x)')
        return ax


def _range(names: list[str]) -> str:
    """`theta[0..7]` for consecutive coordinates of one variable."""
    if len(names) == 1:
        return names[0]
    base = re.sub(r'\[.*', '', names[0])
    indices = [re.sub(r'.*\[|\]', '', name) for name in names]
    numbers = [int(i) for i in indices if i.isdigit()]
    if len(numbers) == len(indices) and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f'{base}[{numbers[0]}..{numbers[-1]}]'
    return f'{len(names)} coordinates of {base}'
