"""What a run gives back: draws, trace, and a plain word about both."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.integrator import Status

__all__ = ['PosteriorDraws']


@dataclasses.dataclass(frozen=True)
class PosteriorDraws:
    """The result of `sample_posterior`.

    Attributes:
      draws: in the model's own structure and space, each tensor `[num_draws, num_chains, event...]`.
      trace: dict of arrays `[num_draws, num_chains]` under the keys of `default_trace_fn`: `lp`, `acceptance_rate`,
        `step_size`, `diverging`, `energy`, `status`, `n_steps`, `metric_evaluations` and others.
      warmup: the trace of the adaptation phase, in the same form.
      names: of the variables, in `tf.nest.flatten` order of `draws`.
      seconds: dict in which `'total'` is the wall time, compilation included.
      is_compiled: True if XLA compiled the run, False if it ran in a plain graph.
    """

    draws: Any
    trace: dict[str, np.ndarray]
    warmup: dict[str, np.ndarray]
    names: list[str]
    seconds: dict[str, float]
    is_compiled: bool = False

    def variables(self) -> dict[str, np.ndarray]:
        """The draws by name, `[num_draws, num_chains, event...]`."""
        return dict(zip(self.names, [np.asarray(x) for x in tf.nest.flatten(self.draws)], strict=True))

    def r_hat(self) -> dict[str, np.ndarray]:
        """Rank-normalised split R-hat of every coordinate, by variable; NaN where there are too few draws."""
        if self.trace['lp'].shape[0] < 4:
            return {name: np.full(x.shape[2:], np.nan) for name, x in self.variables().items()}
        return {name: _rank_normalised_r_hat(x) for name, x in self.variables().items()}

    def to_arviz(self) -> Any:
        """An ArviZ `InferenceData` with `posterior` and `sample_stats` under ArviZ's names. Needs `arviz`."""
        import arviz

        def by_chain(x: np.ndarray) -> np.ndarray:
            return np.swapaxes(x, 0, 1)

        return arviz.from_dict(
            posterior={name: by_chain(x) for name, x in self.variables().items()},
            sample_stats={name: by_chain(x) for name, x in self.trace.items()},
        )

    def summary(self, **kwargs: Any) -> Any:
        """ArviZ's summary, a data frame: mean, sd, MCSE, bulk and tail ESS and R-hat of every coordinate."""
        import arviz

        return arviz.summary(self.to_arviz(), **kwargs)

    def problems(self) -> list[str]:
        """One sentence for each thing that is wrong with the run, with what to try; empty if nothing is wrong."""
        found = []
        # An R-hat that is not finite means that a coordinate never moved, which is worse than any large R-hat.
        worst = {name: np.max(np.nan_to_num(value, nan=np.inf)) for name, value in self.r_hat().items() if value.size}
        name = max(worst, key=lambda key: worst[key])
        if self.trace['lp'].shape[0] >= 4 and worst[name] > 1.01:
            found.append(
                f'R-hat of `{name}` is {worst[name]:.3f} (should be below 1.01): the chains do not agree yet; draw more, '
                'or warm up longer.'
            )
        share = np.mean(self.trace['diverging'])
        if share > 0.01:
            found.append(
                f'{share:.1%} of the trajectories diverged: try a smaller step (a larger `target_accept_prob`), a metric '
                'that follows the curvature, or a smaller `alpha` of SoftAbsMetric.'
            )
        failed = np.isin(self.trace['status'], [Status.NOT_CONVERGED, Status.NOT_REVERSIBLE])
        if np.mean(failed) > 0.01:
            found.append(
                f"{np.mean(failed):.1%} of the trajectories could not be solved: try a smaller step, or kernel='explicit'."
            )
        bfmi = self.bfmi()
        if np.any(bfmi < 0.3):
            found.append(
                f'The energy fraction (E-BFMI) of chain {int(np.argmin(bfmi))} is {np.min(bfmi):.2f} (should be above '
                '0.3): the tails are explored slowly; try longer trajectories or a reparametrisation.'
            )
        return found

    def bfmi(self) -> np.ndarray:
        """Energy fraction of missing information of each chain (Betancourt 2016)."""
        energy = self.trace['energy']
        if energy.shape[0] < 4:
            return np.full(energy.shape[1], np.inf)
        return np.mean(np.square(np.diff(energy, axis=0)), axis=0) / np.var(energy, axis=0)


def _rank_normalised_r_hat(x: np.ndarray) -> np.ndarray:
    """R-hat of `x: [draws, chains, event...]`: the larger of those of ranks and of ranks of distances from the median.

    Unlike the R-hat of the values it keeps its meaning under heavy tails (Vehtari et al. 2021).
    """

    def r_hat_of_ranks(x: np.ndarray) -> np.ndarray:
        columns = np.reshape(x, [x.shape[0] * x.shape[1], -1])
        scores = np.empty(columns.shape)
        for i, column in enumerate(columns.T):
            _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
            average_rank = np.cumsum(counts) - 0.5 * (counts - 1)
            scores[:, i] = tf.math.ndtri((average_rank[inverse.ravel()] - 0.375) / (len(column) + 0.25))
        half = len(x) // 2
        scores = np.reshape(scores, x.shape)
        halves = np.concatenate([scores[:half], scores[-half:]], axis=1)
        within = np.mean(np.var(halves, axis=0, ddof=1), axis=0)
        between = np.var(np.mean(halves, axis=0), axis=0, ddof=1)
        # Not tfp.mcmc.potential_scale_reduction, which gives the square of this.
        return np.sqrt((half - 1) / half + between / within)

    distances = np.abs(x - np.median(x, axis=(0, 1)))
    return np.maximum(r_hat_of_ranks(x), r_hat_of_ranks(distances))
