"""What a run gives back: draws, trace, and a plain word about both."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc._quiet import without_warnings_of
from tfp_rmhmc.argument import check_flag, check_instance, check_integer
from tfp_rmhmc.integrator import Status
from tfp_rmhmc.sampling import advice, plot
from tfp_rmhmc.sampling.scales import LearnedScales

__all__ = ['PosteriorDraws', 'least_bulk_ess']


@dataclasses.dataclass(frozen=True)
class PosteriorDraws:
    """The result of `sample_posterior`.

    Attributes:
      draws: in the model's own structure and space, each tensor `[num_draws, num_chains, event...]`.
      trace: dict of arrays `[num_draws, num_chains]` under the keys of `default_trace_fn`: `lp`, `acceptance_rate`,
        `step_size`, `diverging`, `energy`, `status`, `n_steps`, `metric_evaluations` and others.
      warmup: the trace of the adaptation phase, in the same form.
      names: of the variables, in `tf.nest.flatten` order of `draws`.
      seconds: dict of wall times: `'compiling'` (tracing included; estimated for the default kernel), `'warmup'` and
        `'sampling'` without that, and `'total'`.
      is_compiled: True if XLA compiled the run, False if it ran in a plain graph.
      is_partial: True if the run was interrupted before it had all draws.
      gradients: dict with the number of gradients of the log density, or of steps, of `'warmup'` and `'sampling'`, all
        chains together.
      kernel: the name of the kernel, as `sample_posterior` takes it.
      choice: what made the draws, and what the default kernel chose, in words.
      remarks: what else is worth knowing, one sentence each.
      scales: what the default kernel learned; see `learned_scales`.
      extend_fn: makes more draws; see `extend`.
    """

    draws: Any
    trace: dict[str, np.ndarray]
    warmup: dict[str, np.ndarray]
    names: list[str]
    seconds: dict[str, float]
    is_compiled: bool = False
    is_partial: bool = False
    gradients: dict[str, int] = dataclasses.field(default_factory=dict)
    kernel: str = 'auto'
    choice: str = ''
    remarks: list[str] = dataclasses.field(default_factory=list)
    scales: LearnedScales | None = None
    extend_fn: Callable[[int, bool | None], PosteriorDraws] | None = dataclasses.field(default=None, repr=False)

    def learned_scales(self) -> LearnedScales:
        """Which coordinates set the scale of which others, as the warm-up learned it: `print` or `plot` it."""
        if self.scales is None:
            raise ValueError(f"Scales are learned by kernel='auto'; these draws are of {self.choice or 'another kernel'}.")
        return self.scales

    def plot_learned_scales(self, ax: Any = None) -> Any:
        """A picture of `learned_scales`. Needs matplotlib; returns its axes."""
        return self.learned_scales().plot(ax)

    def extend(self, num_draws: int, progress: bool | None = None) -> PosteriorDraws:
        """The result with `num_draws` more draws of each chain: those that one longer run would have given.

        Where XLA compiles the run this holds up to rounding, for XLA rounds a gradient in another way at a run's beginning.
        """
        check_integer('num_draws', num_draws, least=1)
        if progress is not None:
            check_flag('progress', progress)
        if self.extend_fn is None:
            raise ValueError('Only draws that were made in this process can be extended; these were not.')
        return self.extend_fn(num_draws, progress)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes draws, trace and what was learned to one file, a NumPy archive."""
        check_instance('path', path, (str, os.PathLike), 'a path')
        flat = [np.asarray(x) for x in tf.nest.flatten(self.draws)]
        described = {
            'names': self.names,
            'structure': _structure_of(self.draws),
            'seconds': self.seconds,
            'is_compiled': self.is_compiled,
            'is_partial': self.is_partial,
            'gradients': self.gradients,
            'kernel': self.kernel,
            'choice': self.choice,
            'remarks': self.remarks,
            'scales': None if self.scales is None else self.scales.to_json(),
        }
        arrays = {f'draws.{i}': x for i, x in enumerate(flat)}
        arrays |= {f'trace.{key}': value for key, value in self.trace.items()}
        arrays |= {f'warmup.{key}': value for key, value in self.warmup.items()}
        try:
            with open(path, 'wb') as file:
                np.savez(file, allow_pickle=False, described=np.array(json.dumps(described)), **arrays)
        except OSError as error:
            raise ValueError(f'`path` must be a file that can be written, got {str(path)!r}: {error}.') from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PosteriorDraws:
        """What `save` wrote. It cannot be extended."""
        check_instance('path', path, (str, os.PathLike), 'a path')
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            described = json.loads(str(arrays.pop('described')))
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f'`path` must be a file that `save` wrote, got {str(path)!r}: {error}.') from error

        def under(prefix: str) -> dict[str, np.ndarray]:
            return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}

        flat = under('draws.')
        scales = described.pop('scales')
        return cls(
            draws=_structured(described.pop('structure'), [tf.constant(flat[str(i)]) for i in range(len(flat))]),
            trace=under('trace.'),
            warmup=under('warmup.'),
            scales=None if scales is None else LearnedScales.from_json(scales),
            **described,
        )

    def ess(self) -> dict[str, np.ndarray]:
        """Bulk effective sample size of every coordinate, by variable: of ranks as normal scores, split chains."""
        return {name: _bulk_ess(x) for name, x in self.variables().items()}

    def variables(self) -> dict[str, np.ndarray]:
        """The draws by name, `[num_draws, num_chains, event...]`."""
        return dict(zip(self.names, [np.asarray(x) for x in tf.nest.flatten(self.draws)], strict=True))

    def r_hat(self) -> dict[str, np.ndarray]:
        """Rank-normalised split R-hat of every coordinate, by variable, as ArviZ has it.

        NaN where there are too few draws, and for coordinates that are constant, see `constants`.
        """
        if self.trace['lp'].shape[0] < 4:
            return {name: np.full(x.shape[2:], np.nan) for name, x in self.variables().items()}
        return {name: _rank_normalised_r_hat(x) for name, x in self.variables().items()}

    def constants(self) -> dict[str, np.ndarray]:
        """Which coordinates have one value in all draws of all chains, by variable: bool, `[event...]`.

        So have those that are constant by construction, such as the first diagonal entry of a Cholesky factor of a
        correlation, and the zeros above the diagonal. R-hat and effective sample size mean nothing there.
        """
        return {name: np.all(x == x[:1, :1], axis=(0, 1)) for name, x in self.variables().items()}

    def notes(self) -> list[str]:
        """One sentence for each thing to know when reading the summary; unlike `problems`, nothing is wrong."""
        constants = self.constants()
        if all(value.all() for value in constants.values()):
            return []  # nothing has moved, which is a problem
        return [
            f'{int(value.sum())} of {value.size} coordinates of `{name}` are constant and are left out of R-hat.'
            for name, value in constants.items()
            if value.any()
        ]

    def plot_trace(self, names: Sequence[str] | None = None, max_coordinates: int = 8) -> Any:
        """A row for each coordinate: its histogram by chain, and its draws in order, divergences marked below.

        Args:
          names: of variables; all by default.
          max_coordinates: rows at most; the coordinates with the largest R-hat are shown.

        Returns:
          Matplotlib's axes, `[rows, 2]`. Needs matplotlib.
        """
        return plot.trace(self._shown(names, max_coordinates), self.trace['diverging'])

    def plot_pairs(self, names: Sequence[str] | None = None, max_coordinates: int = 5) -> Any:
        """Draws of coordinates against each other, those at the end of diverging trajectories marked.

        Args:
          names: of variables; all by default.
          max_coordinates: rows at most; the coordinates with the largest R-hat are shown.

        Returns:
          Matplotlib's axes, `[rows, rows]`. Needs matplotlib.
        """
        return plot.pairs(self._shown(names, max_coordinates), self.trace['diverging'])

    def _shown(self, names: Sequence[str] | None, most: int) -> dict[str, np.ndarray]:
        """Coordinates for a plot, `[num_draws, num_chains]`, by name."""
        check_integer('max_coordinates', most, least=1)
        variables = self.variables()
        for name in names or []:
            if name not in variables:
                raise ValueError(f'`names` must be some of {self.names}, got {name!r}.')
        worst = self.r_hat()
        found: list[tuple[float, str, np.ndarray]] = []
        for name in variables if names is None else names:
            x = variables[name]
            for index in np.ndindex(*x.shape[2:]):
                label = f'{name}[{",".join(map(str, index))}]' if index else name
                found.append((float(np.nan_to_num(worst[name][index], nan=-np.inf)), label, x[(..., *index)]))
        threshold = sorted((r for r, _, _ in found), reverse=True)[: int(most)][-1]
        return {label: x for r, label, x in [f for f in found if f[0] >= threshold][: int(most)]}

    def to_arviz(self) -> Any:
        """What ArviZ takes, with `posterior` and `sample_stats` under its names.

        Needs `arviz`, or `arviz_base`: an `InferenceData` before ArviZ 1.0, a `DataTree` since.
        """
        try:
            import arviz
        except ImportError:
            import arviz_base as arviz

        def by_chain(x: np.ndarray) -> np.ndarray:
            return np.swapaxes(x, 0, 1)

        groups = {
            'posterior': {name: by_chain(x) for name, x in self.variables().items()},
            'sample_stats': {name: by_chain(x) for name, x in self.trace.items()},
        }
        is_old = 'posterior' in inspect.signature(arviz.from_dict).parameters
        return arviz.from_dict(**groups) if is_old else arviz.from_dict(groups)

    def summary(self, **kwargs: Any) -> Any:
        """ArviZ's summary, a data frame: mean, sd, MCSE, bulk and tail ESS and R-hat of every coordinate.

        The frame's `attrs['notes']` holds `notes`.
        """
        import arviz

        with np.errstate(divide='ignore', invalid='ignore'):  # of coordinates that are constant
            frame = arviz.summary(self.to_arviz(), **kwargs)
        frame.attrs['notes'] = self.notes()
        return frame

    def problems(self) -> list[str]:
        """One sentence for each thing that is wrong with the run, with what to try; empty if nothing is wrong."""
        found = list(self.remarks)
        # Chains that do not move where they started in different places have an infinite R-hat. One value in all chains is
        # a constant of the model, unless nothing has moved at all.
        constants, notes = self.constants(), self.notes()
        worst = {
            name: np.max(np.nan_to_num(value, nan=np.inf)[~constants[name] | (not notes)], initial=0.0)
            for name, value in self.r_hat().items()
        }
        name = max(worst, key=lambda key: worst[key])
        if self.trace['lp'].shape[0] >= 4 and worst[name] > 1.01:
            found.append(
                f'R-hat of `{name}` is {worst[name]:.3f} (should be below 1.01): the chains do not agree yet; draw more, '
                f'or warm up longer.{"".join(f" ({note})" for note in notes)}'
            )
        if self.scales is not None and self.scales.residual_names is not None:
            # Chains that miss a tail agree with each other.
            found.append(
                f"{self.scales.residual_sentence()}, so that chains may miss the far tails: compare with kernel='explicit' "
                '(SoftAbs), or reparametrise.'
            )
        share = np.mean(self.trace['diverging'])
        if share > 0.01:
            found.append(f'{share:.1%} of the trajectories diverged: {advice.against_divergence(self.kernel, self.choice)}')
        failed = np.isin(self.trace['status'], [Status.NOT_CONVERGED, Status.NOT_REVERSIBLE])
        if np.mean(failed) > 0.01:
            remedy = advice.against_failed_solves(self.kernel)
            found.append(f'{np.mean(failed):.1%} of the trajectories could not be solved: {remedy}')
        if 'is_capped' in self.trace and np.mean(self.trace['is_capped']) > 0.01:
            share, most = np.mean(self.trace['is_capped']), int(self.trace['n_steps'].max())
            found.append(
                f'{share:.1%} of the trajectories were cut at {most} steps: the step size is very small for their length; '
                f'{advice.against_caps(self.kernel)}'
            )
        bfmi = self.bfmi()
        if np.any(bfmi < 0.3):
            found.append(
                f'The energy fraction (E-BFMI) of chain {int(np.nanargmin(bfmi))} is {np.nanmin(bfmi):.2f} (should be '
                f'above 0.3): the tails are explored slowly; {advice.against_slow_tails(self.kernel)}'
            )
        is_broken = np.isnan(bfmi)
        if np.any(is_broken):
            found.append(
                f'The energies of chain {int(np.argmax(is_broken))} are not finite, or do not change: it is not where the '
                'posterior is; look at the log density there.'
            )
        return found

    def bfmi(self) -> np.ndarray:
        """Energy fraction of missing information of each chain, as ArviZ has it (Betancourt 2016).

        Transitions from or to an energy that is not finite are left out. NaN where fewer than four energies are finite, or
        all are equal; infinite for runs of fewer than four draws, of which nothing can be said.
        """
        energy = np.asarray(self.trace['energy'], np.float64)
        if energy.shape[0] < 4:
            return np.full(energy.shape[1], np.inf)
        return np.array([_energy_fraction(chain) for chain in energy.T])


def _energy_fraction(energy: np.ndarray) -> float:
    """Of one chain, `[n]`."""
    is_finite = np.isfinite(energy)
    finite = energy[is_finite]
    steps = np.diff(np.where(is_finite, energy, 0.0))[is_finite[1:] & is_finite[:-1]]
    if len(finite) < 4 or not steps.size or np.ptp(finite) == 0.0:
        return float('nan')
    return float(np.mean(np.square(steps)) / np.var(finite, ddof=1))


def least_bulk_ess(parts: list[np.ndarray]) -> float:
    """The least bulk effective sample size of any coordinate of parts `[n, chains, event...]`; 0 for very few draws."""
    return min(float(np.min(_bulk_ess(part))) for part in parts if part.size) if len(parts[0]) >= 8 else 0.0


def _bulk_ess(x: np.ndarray) -> np.ndarray:
    """Of `[n, chains, event...]`; NaN where a coordinate never moves (Vehtari et al. 2021)."""
    half = len(x) // 2
    if half < 4:
        return np.full(x.shape[2:], np.nan)
    halves = np.concatenate([x[:half], x[-half:]], axis=1)
    scores = np.reshape(_average_scores(np.reshape(halves, [half * halves.shape[1], -1])), halves.shape)
    with without_warnings_of('complex128'):  # TFP drops the imaginary part of a real autocorrelation
        ess = tfp.mcmc.effective_sample_size(
            tf.constant(scores, tf.float64), cross_chain_dims=1, filter_beyond_positive_pairs=True
        )
    return np.asarray(ess)


def _average_scores(columns: np.ndarray) -> np.ndarray:
    """Normal scores of each column; equal values have equal ones."""
    scores = np.empty(columns.shape)
    for i, column in enumerate(columns.T):
        _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
        average_rank = np.cumsum(counts) - 0.5 * (counts - 1)
        scores[:, i] = tf.math.ndtri((average_rank[inverse.ravel()] - 0.375) / (len(column) + 0.25))
    return scores


def _structure_of(draws: Any) -> Any:
    """The kind of a nest of draws, and its names, as JSON."""
    if isinstance(draws, dict):
        return {'kind': 'dict', 'names': sorted(draws)}
    if hasattr(draws, '_fields'):
        return {'kind': 'tuple', 'names': list(draws._fields)}
    return {'kind': 'list' if isinstance(draws, (list, tuple)) else 'tensor', 'names': []}


def _structured(structure: Any, flat: list[tf.Tensor]) -> Any:
    """The inverse of flattening a nest of that structure."""
    if structure['kind'] == 'dict':
        return dict(zip(structure['names'], flat, strict=True))
    if structure['kind'] == 'tuple':
        return collections.namedtuple('Draws', structure['names'])(*flat)
    return flat if structure['kind'] == 'list' else flat[0]


def _rank_normalised_r_hat(x: np.ndarray) -> np.ndarray:
    """R-hat of `x: [draws, chains, event...]`: the larger of those of ranks and of ranks of distances from the median.

    Unlike the R-hat of the values it keeps its meaning under heavy tails (Vehtari et al. 2021).
    """

    half = len(x) // 2
    halves = np.concatenate([x[:half], x[-half:]], axis=1)

    def r_hat_of_ranks(halves: np.ndarray) -> np.ndarray:
        scores = np.reshape(_average_scores(np.reshape(halves, [half * halves.shape[1], -1])), halves.shape)
        within = np.mean(np.var(scores, axis=0, ddof=1), axis=0)
        between = np.var(np.mean(scores, axis=0), axis=0, ddof=1)
        # Not tfp.mcmc.potential_scale_reduction, which gives the square of this.
        with np.errstate(divide='ignore', invalid='ignore'):
            return np.sqrt((half - 1) / half + between / within)

    # Distances of a coordinate that has two values are all the same, and tell nothing.
    return np.fmax(r_hat_of_ranks(halves), r_hat_of_ranks(np.abs(halves - np.median(halves, axis=(0, 1)))))
