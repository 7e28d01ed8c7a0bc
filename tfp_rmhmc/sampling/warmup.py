"""The warm-up of the default kernel: it finds where the posterior is, its metric, a step size and a trajectory length."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_rmhmc.metric import (
    LEAST_GAIN,
    MAX_DENSE,
    Fit,
    ScaleHint,
    ScaleStructure,
    diagonal_fit,
    fit_metric,
    normal_scores,
)
from tfp_rmhmc.sampling.engine import Stretch, Tuning
from tfp_rmhmc.sampling.result import least_bulk_ess

__all__ = ['MAX_STEPS', 'STRETCH', 'RunStretch', 'Tuned', 'warm_up']

STRETCH = 50  # transitions of a program
# Makes transitions: `Engine.run`.
RunStretch = Callable[..., Stretch]
# Trajectory lengths that are tried, as multiples of the present one.
_COARSE, _FINE = (0.5, 1.0, 2.0), (0.5, 2.0**-0.5, 1.0, 2.0**0.5, 2.0)
_MAX_COORDINATES = 500  # that the length is tuned by
_NEAR = np.log(2.2)  # how far from each other, in logarithms, lengths are compared
_MAX_KEPT = 10**8  # numbers of draws that are kept for learning
_LEAST_DRAWS, _LEAST_MOVED = 20, 0.1  # below which nothing is learned from a window
_INITIAL_STEP, _INITIAL_LENGTH = 0.1, 6.0
# While the metric is learned, trajectories are not shorter than this, about half a period of a coordinate in its own
# metric: chains that do not explore look well mixed, and the ladder would fall to its shortest rung.
_LEAST_LENGTH_OF_LEARNING = 4.0
_RANGE_OF_LENGTHS = (1.5, 100.0)
# At which step sizes aim. Where curvature varies in a way that a metric cannot follow, steps that are right on average are
# unstable in the tails. Chains seldom get there, and what they miss an R-hat does not show: on two bananas and a twisted
# Gaussian five of twelve seeds were off by more than four standard errors at an acceptance of 0.93, none at 0.98, and one
# of eighteen other seeds.
_ACCEPTANCE, _ACCEPTANCE_WITH_RESIDUAL = 0.85, 0.98
_MAX_STEPS_EARLY, MAX_STEPS = 32, 1000
# Where the worst coordinate's draws are worth less than this, in independent ones, several transitions make a draw: then
# 500 draws of 4 chains have some 800 effective ones, which an R-hat below 1.01 needs.
_LEAST_WORTH, _MAX_TRANSITIONS_PER_DRAW = 0.4, 10
# Autocorrelations outside of this range are not what they seem, see `WorstCoordinateLengthAdaptation`.
_LEAST_CORRELATION, _MOST_CORRELATION = -0.2, 0.999


class _Window(NamedTuple):
    """A piece of the warm-up.

    Attributes:
      share: of all transitions.
      ladder: lengths that are tried, as multiples.
      learns: what is learned at its end: None, 'diagonal', 'constant' or 'scales'.
      finds_length: whether the best rung is taken.
      max_steps: of a trajectory. With a metric that knows little, steps are short, and many of them teach no more than
        some do.
      can_be_spared: whether it is left out where there is no more to learn: where scales are found to be constant, or the
        metric was not improved by the window before.
    """

    share: float
    ladder: tuple[float, ...]
    learns: str | None
    finds_length: bool
    max_steps: int
    can_be_spared: bool = False


# First with short trajectories, to get to the posterior and to know its extent; then with ever better metrics; the last
# window has the metric with which draws are kept, and finds its length.
_BURN_IN = [_Window(0.5, (1.0,), kind, False, _MAX_STEPS_EARLY) for kind in ('diagonal', 'constant')]
_LEARNING = [
    _Window(0.1, _COARSE, 'scales', True, 64),
    _Window(0.17, _COARSE, 'scales', True, 256),
    _Window(0.25, _COARSE, 'scales', True, MAX_STEPS, can_be_spared=True),
    _Window(0.09, _COARSE, None, True, MAX_STEPS),
    _Window(0.09, _COARSE, None, True, MAX_STEPS),
    _Window(0.3, _FINE, None, True, MAX_STEPS),
]


@dataclasses.dataclass
class Tuned:
    """What a warm-up found, and what it cost.

    Attributes:
      state: of the chains.
      fit: the metric.
      step_size: the step size.
      length: the mean trajectory length.
      transitions_per_draw: so many that a draw is worth having even of the coordinate that mixes worst.
      gradients: that were evaluated, for all chains.
      trace: of all transitions.
    """

    state: list[Any]
    fit: Fit
    step_size: float
    length: float
    transitions_per_draw: int
    gradients: int
    trace: dict[str, np.ndarray]


def warm_up(
    start: list[tf.Tensor],
    num_burnin: int,
    num_adaptation: int,
    step_size: float | None,
    target_accept_prob: float | None,
    trajectory_length: float | None,
    seed: tf.Tensor,
    run_of: Callable[[ScaleStructure, float], RunStretch],
    show: Callable[[str, Stretch], None],
    hint: ScaleHint | None = None,
) -> Tuned:
    """Burn-in and learning, in growing windows; afterwards everything is frozen.

    Args:
      start: state parts, `[chains, event...]`.
      num_burnin, num_adaptation: transitions.
      step_size: the first one, or None.
      target_accept_prob: at which step sizes aim; None for a usual one, and a higher one where the metric cannot follow.
      trajectory_length: None to find it.
      seed: int32[2].
      run_of: makes transitions with a metric of that structure. It is told how many steps a transition is expected to have
        once this metric is the final one, and 0 before.
      show: is told of each stretch.
      hint: what the model says of scales: the first metric, and a structure that is judged beside those that are found.
    """
    dimension = sum(int(np.prod(part.shape[1:])) for part in start)
    fit = _known_before_draws(dimension, hint)
    tuning = Tuning.begin(_INITIAL_STEP if step_size is None else step_size, target_accept_prob or _ACCEPTANCE)
    state: list[Any] = list(start)
    length = _INITIAL_LENGTH if trajectory_length is None else trajectory_length
    traces: list[dict[str, np.ndarray]] = []
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    first, is_settled = 0, False
    with_final_metric: list[_Jumps] = []
    plan = [(w, num_burnin, True) for w in _BURN_IN] + [(w, num_adaptation, False) for w in _LEARNING]
    for window, total, is_burnin in plan:
        num = round(window.share * total)
        if num == 0 or (window.can_be_spared and (is_settled or not fit.exponents)):
            continue
        run = run_of(fit.structure, 0.0 if window.learns or not traces else float(traces[-1]['n_steps'].mean()))
        if not window.learns and fit.residual_coordinates is not None and target_accept_prob is None:
            tuning = tuning._replace(target=_ACCEPTANCE_WITH_RESIDUAL)
        multiples = np.array(window.ladder if trajectory_length is None else (1.0,))
        stretches: list[Stretch] = []
        before: list[np.ndarray] = []
        tried: list[np.ndarray] = []
        for done in range(0, num, STRETCH):
            count = min(STRETCH, num - done)
            # In the burn-in a trajectory has some ten steps, whatever their size.
            ladder = length * multiples[np.arange(done, done + count) % len(multiples)]
            lengths = np.full(count, 1e9) if is_burnin else ladder
            most = min(window.max_steps, 8 + dimension // 4) if is_burnin else window.max_steps
            stretch = run(state, fit.parameters, tuning, lengths, first, seed, True, most)
            before.append(np.concatenate([_flat(state)[None], stretch.flat[:-1]]))
            state, tuning, first = [part[-1] for part in stretch.states], stretch.tuning, first + count
            if stretch.scores.size * (len(stretches) + 1) > _MAX_KEPT:  # very many coordinates: the newest have to do
                stretches, before, tried = [], before[-1:], []
            stretches.append(stretch)
            tried.append(lengths)
            traces.append(stretch.trace)
            show('burn-in' if is_burnin else 'learning' if window.learns else 'tuning', stretch)
        flat, scores = (np.concatenate(x) for x in ([s.flat for s in stretches], [s.scores for s in stretches]))
        if window.finds_length:
            skipped = 0 if with_final_metric else len(flat) // 5  # while the step size was found
            newest = _Jumps.of(*(np.concatenate(x)[skipped:] for x in (before, [flat], tried)))
            if not window.learns:
                with_final_metric.append(newest)
            if trajectory_length is None:
                least = _LEAST_LENGTH_OF_LEARNING if window.learns else _RANGE_OF_LENGTHS[0]
                length = _best_length(with_final_metric or [newest], tuning.step_size, least, _RANGE_OF_LENGTHS[1])
        if window.learns:
            # The newer two thirds of what was seen in the burn-in, or after it.
            kept = [*kept, (flat, scores)] if flat.size < _MAX_KEPT // 4 else [(flat, scores)]
            draws, gradients = (np.concatenate(x) for x in zip(*kept, strict=True))
            before_it = fit
            fit = _learned(draws[len(draws) // 3 :], gradients[len(draws) // 3 :], window.learns, fit, hint)
            if fit.exponents and before_it.exponents:
                # These draws were used for the one and not for the other, so this is more than it has gained.
                is_settled = fit.log_density(flat, scores) - before_it.log_density(flat, scores) < LEAST_GAIN
            if is_burnin:
                kept = []
            tuning = Tuning.begin(0.5 * min(1.0, max(0.2, dimension**-0.25)), target_accept_prob or _ACCEPTANCE)
    merged = {key: np.concatenate([t[key] for t in traces]) for key in traces[0]} if traces else {}
    num_gradients = int(sum(t['n_steps'].sum() for t in traces))
    per_draw = _transitions_per_draw(with_final_metric[-1]) if with_final_metric else 1
    return Tuned(state, fit, tuning.step_size, length, per_draw, num_gradients, merged)


def _flat(state: list[Any]) -> np.ndarray:
    return np.concatenate([np.reshape(part, [len(part), -1]) for part in map(np.asarray, state)], axis=-1)


def _known_before_draws(dimension: int, hint: ScaleHint | None) -> Fit:
    """The metric before there are draws: the identity, or the precisions that the model says."""
    structure = ScaleStructure.constant(dimension)
    parameters = _with_root({'c': np.zeros(dimension) if hint is None else hint.log_precision})
    return Fit(structure, [parameters], {}, 0.0, 0.0, None)


def _with_root(parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters of a block with the identity for a correlation, in the form of a dense one: one program serves both."""
    size = len(parameters['c'])
    return parameters | {'root': np.eye(size), 'inverse': np.eye(size)} if size <= MAX_DENSE else parameters


def _learned(draws: np.ndarray, scores: np.ndarray, kind: str, previous: Fit, hint: ScaleHint | None) -> Fit:
    """The metric of a window's draws; the one before where they are too few, or hardly moved."""
    moved = np.mean(np.any(np.diff(draws, axis=0) != 0.0, axis=-1)) if len(draws) > 1 else 0.0
    if draws.shape[0] * draws.shape[1] < _LEAST_DRAWS or moved < _LEAST_MOVED:
        return previous
    if kind == 'diagonal':
        fit = diagonal_fit(draws, scores)
        return fit._replace(parameters=[_with_root(fit.parameters[0])])
    try:
        return fit_metric(draws, scores, kind == 'scales', None if hint is None else hint.setters)
    except np.linalg.LinAlgError:  # draws that lie in a plane
        return previous


class _Jumps(NamedTuple):
    """Transitions whose efficiency is to be compared.

    Attributes:
      before, after: states around each, `[n, chains, D]`, of some hundred coordinates, which tell enough.
      lengths: mean integration time of each, `[n]`.
    """

    before: np.ndarray
    after: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, before: np.ndarray, after: np.ndarray, lengths: np.ndarray) -> _Jumps:
        """From states of all coordinates."""
        columns = np.unique(np.linspace(0, after.shape[-1] - 1, _MAX_COORDINATES).astype(int))
        return cls(before[..., columns], after[..., columns], lengths)


def _best_length(pieces: list[_Jumps], step_size: float, least: float, most: float) -> float:
    """The mean length at which the worst coordinate mixes best for its steps.

    With z the coordinate's normal scores, ranked over all lengths together,

        1 - rho_i = 1/2 mean (z_after - z_before)^2,       efficiency = min_i (1 - rho_i) / (1 + rho_i) / steps

    Args:
      pieces: transitions with one metric, the newest last.
      step_size: with which lengths will be made of steps.
      least, most: the range of lengths that may be found.
    """
    before, after, lengths = (np.concatenate(x) for x in zip(*pieces, strict=True))
    # A parabola is right near its top only: what is far from the newest lengths was tried before more was known.
    is_near = np.abs(np.log(lengths / np.median(pieces[-1].lengths))) < _NEAR
    before, after, lengths = before[is_near], after[is_near], lengths[is_near]
    squares = _squared_jumps(before, after)
    rungs, rung_of = np.unique(np.round(2.0 * np.log2(lengths)), return_inverse=True)  # steps of sqrt 2
    counts, tried, efficiencies = np.bincount(rung_of), np.empty(len(rungs)), np.empty(len(rungs))
    for rung in range(len(rungs)):
        on = rung_of == rung
        tried[rung] = np.exp(np.mean(np.log(lengths[on])))
        efficiencies[rung] = _least_worth(squares[on]) / (tried[rung] / step_size + 0.5)
    if len(rungs) >= 4:
        # Between the rungs of a fine ladder, by a parabola through all of them: one rung alone is noisy.
        curvature, slope, _ = np.polyfit(np.log(tried), np.log(efficiencies), 2, w=np.sqrt(counts))
        if curvature < 0.0:
            return float(np.clip(np.exp(-0.5 * slope / curvature), max(least, tried[0]), min(most, tried[-1])))
    return float(np.clip(tried[int(np.argmax(efficiencies))], least, most))


def _squared_jumps(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Of normal scores, ranked over all states together, `[n, chains, D]`."""
    both = np.stack([before, after])
    z = normal_scores(both.reshape(-1, both.shape[-1])).reshape(both.shape)
    # Equal values, of rejected proposals, must have equal scores.
    return np.where(before == after, 0.0, np.square(z[1] - z[0]))


def _least_worth(squared_jumps: np.ndarray) -> float:
    """Of the coordinates, `min_i (1 - rho_i) / (1 + rho_i)`: what a draw is worth if correlations fall exponentially."""
    rho = np.clip(1.0 - 0.5 * squared_jumps.mean(axis=(0, 1)), _LEAST_CORRELATION, _MOST_CORRELATION)
    return float(np.min((1.0 - rho) / (1.0 + rho)))


def _transitions_per_draw(jumps: _Jumps) -> int:
    """So many that a draw of the worst coordinate is worth a good part of an independent one.

    By the effective sample size of these transitions, which is too small rather than too large: a chain that lingers
    somewhere counts as slow. Autocorrelations at lag one alone do not see what changes slowly under what changes fast; on
    the volatility model they promised three to ten times too much.

    Args:
      jumps: with the final metric and step size, and lengths around the final one.
    """
    num, chains, _ = jumps.after.shape
    worth = least_bulk_ess([jumps.after]) / (num * chains)
    return int(np.clip(round(_LEAST_WORTH / worth), 1, _MAX_TRANSITIONS_PER_DRAW)) if worth > 0.0 else 1
