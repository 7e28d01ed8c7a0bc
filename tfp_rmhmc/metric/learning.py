"""Learning a separable metric from draws and scores: who sets whose scale, how, along which directions.

With the score g = dl/dq, integration by parts gives `E[g_i^2 | q_-b] = E[-d2l/dq_i^2 | q_-b]`: the conditional second
moment of the score is the conditional expected curvature. So a metric is a model of the scores' covariance as a function of
the position, and can be fitted by gradients alone. Everything is judged by one number, the log density of scores under
`g ~ N(0, G(q))`, on draws that were not used for the fit.

The same draws give the same metric. A fit of 1,000 draws in 200 dimensions takes about a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_rmhmc.metric.constant import MAX_DENSE, DrawsAndScores, constant_parameters, rooted
from tfp_rmhmc.metric.learned import ScaleStructure
from tfp_rmhmc.metric.pencil import parameters_along_directions
from tfp_rmhmc.metric.regression import Array, gamma_regression, log_precisions

__all__ = ['LEAST_GAIN', 'MAX_LEARNED', 'Fit', 'diagonal_fit', 'fit_metric', 'normal_scores']

# Correlation of a log squared score with a coordinate, both as normal scores, below which a scale counts as constant. The
# logarithm of a squared normal variable has a deviation of 2.2, so 0.2 is a scale that varies by a quarter.
_LEAST_CORRELATION = 0.2
# Standard errors by which it must differ from zero besides: about the largest of some ten thousand under no dependence.
_LEAST_SIGNIFICANCE = 4.0
# The largest autocorrelation time that is believed in for this: a coordinate that sets the scale of others is slow as long
# as the metric does not know it. What is found too easily is left to the held-out scores to judge.
_MAX_TIME = 4.0
# Correlation of a product of whitened scores with a coordinate from which on the geometry counts as not separable.
_LEAST_RESIDUAL = 0.4
_MAX_SETTERS = 3  # of one coordinate
_MAX_HINTED_BLOCKS = 8  # of a structure that a model gives; a program grows with them
_MAX_DIRECTIONS = 128  # coordinates of a block whose scales may be those of directions
MAX_LEARNED = 2000  # coordinates in all, beyond which scales are constant
_MAX_DRAWS = 4000  # that are looked at
_MAX_RESIDUAL_COORDINATES = 16  # whose products are looked at for what is not separable
_MAX_LAG = 50  # of autocorrelations
_TRIMMED = 0.02  # share of draws at each end that a mean of log densities leaves out
# Penalties of the regression that finds directions, of which held-out scores choose one.
_RIDGES_OF_DIRECTIONS = (1e-8, 1e-2)
# Where scales vary so do correlations, as a rule, and a constant one is least right in the directions that it calls
# loosest. Measured on the volatility model: 4 to 6 effective samples per 1,000 gradients in place of 1 to 2.
_LEAST_SHRINKAGE = 0.1
# By how much, in log density of a draw's scores, a structure must be better than a constant metric: blocks that are apart
# lose what correlates them, and one or two tenths are what skewness feigns. The second is for gains that are certain.
LEAST_GAIN, _LEAST_CERTAIN_GAIN = 0.5, 0.25


class Fit(NamedTuple):
    """A learned metric.

    Attributes:
      structure: blocks and who sets their scales.
      parameters: of `LearnedMetric`, arrays.
      exponents: `{(i, j): e}` where coordinate j sets the scale of i, which is proportional to `exp(e q_j)` as far as it
        varies.
      gain: by how much the log density of held-out scores, for each draw, exceeds that under a constant metric.
      residual: the largest correlation that is left between products of whitened scores and a coordinate, and its
        significance: what a separable metric cannot express.
      residual_coordinates: two coordinates of these scores, and that on which they depend.
    """

    structure: ScaleStructure
    parameters: list[dict[str, Array]]
    exponents: dict[tuple[int, int], float]
    gain: float
    residual: float
    residual_coordinates: tuple[int, int, int] | None

    def log_density(self, draws: Array, scores: Array) -> float:
        """Of scores under `N(0, G(q))`, for each draw: a trimmed mean, up to a constant; both `[n, chains, D]`."""
        of_blocks = zip(self.structure.blocks, self.structure.setters, self.parameters, strict=True)
        blocks = [_Block(*block) for block in of_blocks]
        return _trimmed_mean(_log_densities(_Sample.of(draws, scores), blocks))


def fit_metric(draws: Array, scores: Array, learns_scales: bool = True, hint: _Setters | None = None) -> Fit:
    """The separable metric that describes these scores best.

    Args:
      draws: `[n, chains, D]`.
      scores: gradients of the log density there.
      learns_scales: False for a constant metric.
      hint: for each coordinate those that a model says set its scale, to be judged beside what is found; or None.
    """
    if draws.shape[-1] > MAX_LEARNED:
        return diagonal_fit(draws, scores)
    sample = _Sample.of(draws, scores)
    dimension = sample.draws.shape[-1]
    nobody: _Setters = [()] * dimension
    best, best_gain = nobody, 0.0
    if learns_scales and dimension > 1 and len(sample.draws) >= 20:
        candidates = _candidates(*_who_sets_whose_scale(sample))
        if hint is not None and any(hint) and hint not in candidates and len(_colours(hint)) <= _MAX_HINTED_BLOCKS:
            candidates.append(hint)
        folds = sample.folds()
        for candidate in candidates:
            gain, is_enough = _held_out_gain(folds, candidate, None, nobody)
            if is_enough and gain > best_gain:
                best, best_gain = candidate, gain
    if best is nobody:
        whole, *halves = [DrawsAndScores(x.draws, x.scores) for x in (sample, *(half for half, _ in sample.folds()))]
        blocks = [_Block(tuple(range(dimension)), (), constant_parameters(whole, halves))]
        exponents = {}
    else:
        ridge, gain = _best_directions(folds, best)
        best_gain += gain
        # What is said of scales is of coordinates, which a user knows, also where the metric has directions.
        exponents = _exponents(_fitted(sample, best))
        blocks = _fitted(sample, best, ridge)
    residual, coordinates = _residual(sample, blocks)
    return Fit(_structure(blocks), [b.parameters for b in blocks], exponents, best_gain, residual, coordinates)


def diagonal_fit(draws: Array, scores: Array) -> Fit:
    """The constant diagonal metric `sd(g) / sd(q)`: what is left where there are very many coordinates."""
    spreads = [np.maximum(np.nan_to_num(np.std(x, axis=(0, 1), dtype=np.float64)), 1e-150) for x in (draws, scores)]
    structure = ScaleStructure.constant(draws.shape[-1])
    return Fit(structure, [{'c': np.log(spreads[1]) - np.log(spreads[0])}], {}, 0.0, 0.0, None)


def normal_scores(x: Array) -> Array:
    """The ranks of each column of `x: [n, k]`, as quantiles of the normal distribution (Blom 1958)."""
    ranks = np.argsort(np.argsort(x, axis=0, kind='stable'), axis=0, kind='stable') + 1.0
    return np.asarray(tf.math.ndtri(tf.constant((ranks - 0.375) / (len(x) + 0.25))))


# For each coordinate those that set its scale.
_Setters = list[tuple[int, ...]]


class _Sample(NamedTuple):
    """Draws and scores, both `[n, D]`, with what n of them is worth.

    Attributes:
      z: normal scores of the draws.
      y: of the logarithms of squared scores.
      z_correlations, y_correlations: autocorrelations of these, `[lags, D]`.
      chains: draws as they came, `[n, chains, D]`, and scores.
    """

    draws: Array
    scores: Array
    z: Array
    y: Array
    z_correlations: Array
    y_correlations: Array
    chains: tuple[Array, Array]

    @classmethod
    def of(cls, draws: Array, scores: Array) -> _Sample:
        """From `[n, chains, D]`, without what is not finite, and not more than are needed."""
        draws, scores = np.asarray(draws, np.float64), np.asarray(scores, np.float64)
        is_finite = np.all(np.isfinite(draws) & np.isfinite(scores), axis=-1)
        chains = is_finite.mean(axis=0) > 0.5  # a chain that is lost tells nothing
        draws, scores, is_finite = draws[:, chains], scores[:, chains], np.all(is_finite[:, chains], axis=1)
        stride = max(1, -(-draws.shape[0] * draws.shape[1] // _MAX_DRAWS))
        if draws.shape[1] > stride:  # many chains: fewer of them, each as it is
            draws, scores = draws[:, ::stride], scores[:, ::stride]
        else:
            draws, scores, is_finite = draws[::stride], scores[::stride], is_finite[::stride]
        draws, scores = draws[is_finite], scores[is_finite]
        n, num_chains, dimension = draws.shape
        flat_draws, flat_scores = draws.reshape(-1, dimension), scores.reshape(-1, dimension)
        z, y = normal_scores(flat_draws), normal_scores(np.log(np.square(flat_scores) + 1e-300))
        of_z, of_y = (_autocorrelations(x.reshape(n, num_chains, dimension)) for x in (z, y))
        return cls(flat_draws, flat_scores, z, y, of_z, of_y, (draws, scores))

    def folds(self) -> list[tuple[_Sample, _Sample]]:
        """Halves, each to be fitted and the other to be judged."""
        draws, scores = self.chains
        half = len(draws) // 2
        halves = [_Sample.of(draws[part], scores[part]) for part in (slice(None, half), slice(half, None))]
        return [(halves[0], halves[1]), (halves[1], halves[0])]

    def effective_size(self) -> float:
        """What the draws are worth for second moments of scores."""
        times = 1.0 + 2.0 * np.sum(np.square(self.y_correlations), axis=0)
        return len(self.draws) / float(np.median(times))


def _autocorrelations(x: Array) -> Array:
    """Of `[n, chains, D]` around the mean of all chains, lags 1 to at most `_MAX_LAG`, until they vanish: `[lags, D]`."""
    n = len(x)
    lags = min(_MAX_LAG, n - 2)
    if lags < 1:
        return np.zeros((1, x.shape[-1]))
    centred = x - x.mean(axis=(0, 1))
    transformed = np.fft.rfft(centred, 2 * n, axis=0)
    covariance = np.fft.irfft(np.square(np.abs(transformed)), axis=0)[: lags + 1].mean(axis=1) / n
    rho = covariance[1:] / np.maximum(covariance[0], 1e-300)
    is_noise = np.cumsum(rho < 0.05, axis=0) > 0
    return np.where(is_noise, 0.0, rho)


def _who_sets_whose_scale(sample: _Sample) -> tuple[_Setters, Array]:
    """Setters of each coordinate by forward selection, and how much each coordinate explains, `[D]`."""
    n, dimension = sample.z.shape
    z, y = (x / np.maximum(x.std(axis=0), 1e-300) for x in (sample.z, sample.y))
    between, with_scores = z.T @ z / n, y.T @ z / n
    times = np.minimum(1.0 + 2.0 * sample.y_correlations.T @ sample.z_correlations, _MAX_TIME)
    least = np.maximum(_LEAST_CORRELATION, _LEAST_SIGNIFICANCE * np.sqrt(times / n))
    found: _Setters = []
    explained = np.zeros(dimension)
    for i in range(dimension):
        chosen: list[int] = []
        partial, variance = with_scores[i].copy(), 1.0
        while len(chosen) < _MAX_SETTERS:
            correlation = partial / np.sqrt(max(variance, 1e-12))
            correlation[[i, *chosen]] = 0.0
            excess = np.abs(correlation) - least[i]
            j = int(np.argmax(np.where(excess > 0.0, np.abs(correlation), -1.0)))
            if excess[j] <= 0.0:
                break
            chosen.append(j)
            explained[j] += float(np.square(correlation[j]))
            inner = between[np.ix_(chosen, chosen)] + 1e-9 * np.eye(len(chosen))
            weights = np.linalg.solve(inner, with_scores[i, chosen])
            partial = with_scores[i] - weights @ between[chosen]
            variance = 1.0 - float(weights @ with_scores[i, chosen])
        found.append(tuple(chosen))
    return found, explained


def _candidates(setters: _Setters, explained: Array) -> list[_Setters]:
    """Structures to be compared: those of the 1, 2, 4, 8, ... coordinates that explain most, and of all."""
    order = [int(s) for s in np.argsort(-explained, kind='stable') if explained[s] > 0.0]
    sizes = [2**k for k in range(8) if 2**k < len(order)] + ([len(order)] if order else [])
    return [[tuple(s for s in chosen if s in set(order[:size])) for chosen in setters] for size in sizes]


def _colours(setters: _Setters) -> list[tuple[int, ...]]:
    """Blocks in which nobody sets the scale of another one; those who might be in several go where most are."""
    dimension = len(setters)
    neighbours: list[set[int]] = [set(chosen) for chosen in setters]
    for i, chosen in enumerate(setters):
        for j in chosen:
            neighbours[j].add(i)
    blocks: list[set[int]] = []
    for i in sorted(range(dimension), key=lambda i: -len(neighbours[i])):
        free = [block for block in blocks if not neighbours[i] & block]
        if free:
            max(free, key=len).add(i)
        else:
            blocks.append({i})
    return [tuple(sorted(block)) for block in blocks]


class _Block(NamedTuple):
    """Coordinates of a block, who sets their scales, and the parameters of `LearnedMetric`."""

    members: tuple[int, ...]
    setters: tuple[int, ...]
    parameters: dict[str, Array]

    def log_precisions(self, draws: Array) -> Array:
        """Of coordinates or directions, at draws `[n, D]`: `[n, d]`."""
        return log_precisions(self.parameters, draws[:, list(self.setters)])

    def whitened(self, sample: _Sample) -> Array:
        """Scores that would be standard normal if the metric were right: `[n, d]`."""
        scores, scale = sample.scores[:, list(self.members)], np.exp(-0.5 * self.log_precisions(sample.draws))
        if 'dual' in self.parameters:
            return (scores @ self.parameters['dual']) * scale
        scaled = scores * scale
        return np.linalg.solve(self.parameters['root'], scaled.T).T if 'root' in self.parameters else scaled


def _structure(blocks: Sequence[_Block]) -> ScaleStructure:
    return ScaleStructure(
        tuple(block.members for block in blocks),
        tuple(block.setters for block in blocks),
        tuple('directions' in block.parameters for block in blocks),
    )


def _may_have_directions(members: Sequence[int], setters: _Setters) -> bool:
    """Whether a block is small enough, and all of its scales that vary are set by the same coordinates."""
    kinds = {setters[i] for i in members if setters[i]}
    return 1 < len(members) <= _MAX_DIRECTIONS and len(kinds) == 1


def _best_directions(folds: list[tuple[_Sample, _Sample]], setters: _Setters) -> tuple[float | None, float]:
    """The ridge with which directions describe held-out scores best, and the gain; None where coordinates are as good."""
    best, best_gain = None, 0.0
    if any(_may_have_directions(members, setters) for members in _colours(setters)):
        for ridge in _RIDGES_OF_DIRECTIONS:
            with contextlib.suppress(np.linalg.LinAlgError):  # few draws that lie in a plane have no directions
                gain, is_enough = _held_out_gain(folds, setters, ridge, setters)
                if is_enough and gain > best_gain:
                    best, best_gain = ridge, gain
    return best, best_gain


def _fitted(sample: _Sample, setters: _Setters, ridge: float | None = None) -> list[_Block]:
    """The blocks of a structure, with scales and correlations fitted; along directions if a ridge for them is given."""
    blocks = []
    for members in _colours(setters):
        chosen = tuple(sorted({s for i in members for s in setters[i]}))
        columns, squares = list(members), np.square(sample.scores[:, list(members)])
        parameters: dict[str, Array] = {'c': np.log(np.mean(squares, axis=0) + 1e-300)}
        if ridge is not None and _may_have_directions(members, setters):
            of_members = sample.draws[:, columns], sample.scores[:, columns]
            parameters = parameters_along_directions(sample.draws[:, list(chosen)], *of_members, ridge)
            blocks.append(_Block(members, chosen, parameters))
            continue
        if chosen:
            mask = np.array([[s in setters[i] for i in members] for s in chosen], float)
            parameters = gamma_regression(sample.draws[:, list(chosen)], squares, mask)
        block = _Block(members, chosen, parameters)
        scaled = sample.scores[:, columns] * np.exp(-0.5 * block.log_precisions(sample.draws))
        blocks.append(block._replace(parameters=parameters | _correlation(scaled, sample.effective_size())))
    return blocks


def _correlation(scaled: Array, effective_size: float) -> dict[str, Array]:
    """Root and inverse of the correlation of scaled scores, shrunk to the identity; nothing for one or very many."""
    d = scaled.shape[1]
    if d == 1 or d > MAX_DENSE:
        return {}
    return rooted(_shrunk(np.corrcoef(scaled.T), effective_size, _LEAST_SHRINKAGE))


def _shrunk(correlation: Any, effective_size: float, least: float) -> Array:
    """A correlation matrix shrunk to the identity by as much as its noise demands (Schaefer and Strimmer 2005), or more.

    The intensity is the sum of the entries' variances, `(1 - r^2)^2 / n`, by the sum of their squares.
    """
    outside = ~np.eye(len(correlation), dtype=bool)
    squares = np.square(correlation[outside])
    noise = np.sum(np.square(1.0 - squares)) / max(effective_size, 1.0)
    intensity = min(1.0, max(noise / max(float(squares.sum()), 1e-300), least))
    return (1.0 - intensity) * correlation + intensity * np.eye(len(correlation))


def _log_densities(sample: _Sample, blocks: Sequence[_Block]) -> Array:
    """Of scores under `N(0, G(q))`, for each draw, up to a constant."""
    total = np.zeros(len(sample.draws))
    for block in blocks:
        total -= 0.5 * np.sum(block.log_precisions(sample.draws) + np.square(block.whitened(sample)), axis=1)
        if 'root' in block.parameters:
            total -= np.sum(np.log(np.diag(block.parameters['root'])))
    return total


def _held_out_gain(
    folds: list[tuple[_Sample, _Sample]], setters: _Setters, ridge: float | None, others: _Setters
) -> tuple[float, bool]:
    """By how much one structure describes held-out scores better than another, for each draw: a trimmed mean.

    And whether it is enough: a gain of `LEAST_GAIN`, or a smaller one that is certain, with the draws taken to be as far
    from independent as `_MAX_TIME` says.
    """
    gains = np.concatenate(
        [
            _log_densities(judged, _fitted(fitted, setters, ridge)) - _log_densities(judged, _fitted(fitted, others))
            for fitted, judged in folds
        ]
    )
    low, high = np.quantile(gains, [_TRIMMED, 1.0 - _TRIMMED])
    error = float(np.std(np.clip(gains, low, high)) * np.sqrt(_MAX_TIME / len(gains)))
    gain = _trimmed_mean(gains)
    return gain, gain > min(LEAST_GAIN, max(_LEAST_CERTAIN_GAIN, _LEAST_SIGNIFICANCE * error))


def _trimmed_mean(values: Array) -> float:
    ordered = np.sort(values)
    cut = int(_TRIMMED * len(ordered))
    return float(np.mean(ordered[cut : len(ordered) - cut]))


def _exponents(blocks: Sequence[_Block]) -> dict[tuple[int, int], float]:
    """The log scales' slopes, by coordinate and setter."""
    return {
        (i, s): -0.5 * float(weight)
        for block in blocks
        for s, row in zip(block.setters, block.parameters.get('w', ()), strict=True)
        for i, weight in zip(block.members, row, strict=True)
        if weight != 0.0
    }


def _residual(sample: _Sample, blocks: Sequence[_Block]) -> tuple[float, tuple[int, int, int] | None]:
    """What is left: the largest correlation of a product of whitened scores with a coordinate; zero if it is small."""
    whitened = np.empty_like(sample.scores)
    for block in blocks:
        whitened[:, list(block.members)] = block.whitened(sample)
    spread = np.mean(np.square(np.square(whitened)), axis=0)
    chosen = np.sort(np.argsort(-spread, kind='stable')[:_MAX_RESIDUAL_COORDINATES])
    pairs = [(i, j) for k, i in enumerate(chosen) for j in chosen[k:]]
    products = normal_scores(np.stack([whitened[:, i] * whitened[:, j] for i, j in pairs], axis=1))
    # With the coordinate, not with its distance from the middle: the products of a Gaussian's scores are even.
    correlation = np.abs(products.T @ sample.z) / len(products)
    best = np.unravel_index(int(np.argmax(correlation)), correlation.shape)
    largest = float(correlation[best])
    if largest < max(_LEAST_RESIDUAL, _LEAST_SIGNIFICANCE / np.sqrt(sample.effective_size())):
        return 0.0, None
    i, j = pairs[int(best[0])]
    return largest, (int(i), int(j), int(best[1]))
