"""Learning a separable metric from draws and scores: who sets whose scale, how, and what is correlated.

With the score g = dl/dq, integration by parts gives `E[g_i^2 | q_-b] = E[-d2l/dq_i^2 | q_-b]`: the conditional second
moment of the score is the conditional expected curvature. So a metric is a model of the scores' covariance as a function of
the position, and can be fitted by gradients alone. Everything is judged by one number, the log density of scores under
`g ~ N(0, G(q))`, on draws that were not used for the fit.

The same draws give the same metric. A fit of 1,000 draws in 200 dimensions takes about a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfp_rmhmc.metric.learned import ScaleStructure

__all__ = ['LEAST_GAIN', 'MAX_DENSE', 'MAX_LEARNED', 'Fit', 'diagonal_fit', 'fit_metric', 'normal_scores']

_Array = NDArray[np.floating[Any]]

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
MAX_DENSE = 300  # coordinates of a block with a correlation matrix
MAX_LEARNED = 2000  # coordinates in all, beyond which scales are constant
_MAX_DRAWS = 4000  # that are looked at
_MAX_RESIDUAL_COORDINATES = 16  # whose products are looked at for what is not separable
_MAX_LAG = 50  # of autocorrelations
_TRIMMED = 0.02  # share of draws at each end that a mean of log densities leaves out
# Penalty of the regression on standardised coordinates, and on the distance of the constant term from its first guess.
_RIDGE, _RIDGE_OF_CONSTANT = 1e-3, 3e-4
# Shares by which correlations of a constant metric may be shrunk; 1 is a diagonal metric.
_SHRINKAGES = (1.0, 0.5, 0.2, 0.05, 0.01, 1e-3, 1e-5, 0.0)
_LEAST_EIGENVALUE = 1e-13  # of a covariance, by its largest
# Where scales vary so do correlations, as a rule, and a constant one is least right in the directions that it calls
# loosest. Measured on the volatility model: 4 to 6 effective samples per 1,000 gradients in place of 1 to 2.
_LEAST_SHRINKAGE = 0.1
# By how much, in log density of a draw's scores, a structure must be better than a constant metric: blocks that are apart
# lose what correlates them, and one or two tenths are what skewness feigns. The second is for gains that are certain.
LEAST_GAIN, _LEAST_CERTAIN_GAIN = 0.5, 0.25
# Log of the constant term's share of the mean precision: where the fit begins, and to what it is drawn without evidence.
_CONSTANT_SHARE, _NO_CONSTANT_SHARE = -3.0, -6.0


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
    parameters: list[dict[str, _Array]]
    exponents: dict[tuple[int, int], float]
    gain: float
    residual: float
    residual_coordinates: tuple[int, int, int] | None

    def log_density(self, draws: _Array, scores: _Array) -> float:
        """Of scores under `N(0, G(q))`, for each draw: a trimmed mean, up to a constant; both `[n, chains, D]`."""
        of_blocks = zip(self.structure.blocks, self.structure.setters, self.parameters, strict=True)
        blocks = [_Block(*block) for block in of_blocks]
        return _trimmed_mean(_log_densities(_Sample.of(draws, scores), blocks))


def fit_metric(draws: _Array, scores: _Array, learns_scales: bool = True) -> Fit:
    """The separable metric that describes these scores best.

    Args:
      draws: `[n, chains, D]`.
      scores: gradients of the log density there.
      learns_scales: False for a constant metric.
    """
    if draws.shape[-1] > MAX_LEARNED:
        return diagonal_fit(draws, scores)
    sample = _Sample.of(draws, scores)
    dimension = sample.draws.shape[-1]
    nobody: _Setters = [()] * dimension
    best, best_gain = nobody, 0.0
    if learns_scales and dimension > 1 and len(sample.draws) >= 20:
        candidates = _candidates(*_who_sets_whose_scale(sample))
        folds = sample.folds()
        for candidate in candidates:
            gain, error = _held_out_gain(folds, candidate, nobody)
            least = min(LEAST_GAIN, max(_LEAST_CERTAIN_GAIN, _LEAST_SIGNIFICANCE * error))
            if gain > max(best_gain, least):
                best, best_gain = candidate, gain
    blocks = _fitted(sample, best)
    if best is nobody:
        blocks, best_gain = [_constant_block(sample)], 0.0
    structure = ScaleStructure(tuple(block.members for block in blocks), tuple(block.setters for block in blocks))
    residual, coordinates = _residual(sample, blocks)
    return Fit(structure, [b.parameters for b in blocks], _exponents(blocks), best_gain, residual, coordinates)


def diagonal_fit(draws: _Array, scores: _Array) -> Fit:
    """The constant diagonal metric `sd(g) / sd(q)`: what is left where there are very many coordinates."""
    spreads = [np.maximum(np.nan_to_num(np.std(x, axis=(0, 1), dtype=np.float64)), 1e-150) for x in (draws, scores)]
    structure = ScaleStructure.constant(draws.shape[-1])
    return Fit(structure, [{'c': np.log(spreads[1]) - np.log(spreads[0])}], {}, 0.0, 0.0, None)


def normal_scores(x: _Array) -> _Array:
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

    draws: _Array
    scores: _Array
    z: _Array
    y: _Array
    z_correlations: _Array
    y_correlations: _Array
    chains: tuple[_Array, _Array]

    @classmethod
    def of(cls, draws: _Array, scores: _Array) -> _Sample:
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


def _autocorrelations(x: _Array) -> _Array:
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


def _who_sets_whose_scale(sample: _Sample) -> tuple[_Setters, _Array]:
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


def _candidates(setters: _Setters, explained: _Array) -> list[_Setters]:
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
    parameters: dict[str, _Array]

    def log_precisions(self, draws: _Array) -> _Array:
        """`log G_ii` at draws `[n, D]`: `[n, d]`."""
        c = self.parameters['c']
        if not self.setters:
            return np.broadcast_to(c, (len(draws), len(c)))
        return np.logaddexp(c, self.parameters['a'] + draws[:, list(self.setters)] @ self.parameters['w'])

    def whitened(self, sample: _Sample) -> _Array:
        """Scores that would be standard normal if the metric were right: `[n, d]`."""
        scaled = sample.scores[:, list(self.members)] * np.exp(-0.5 * self.log_precisions(sample.draws))
        return np.linalg.solve(self.parameters['root'], scaled.T).T if 'root' in self.parameters else scaled


def _fitted(sample: _Sample, setters: _Setters) -> list[_Block]:
    """The blocks of a structure, with scales and correlations fitted."""
    blocks = []
    for members in _colours(setters):
        chosen = tuple(sorted({s for i in members for s in setters[i]}))
        columns, squares = list(members), np.square(sample.scores[:, list(members)])
        parameters: dict[str, _Array] = {'c': np.log(np.mean(squares, axis=0) + 1e-300)}
        if chosen:
            mask = np.array([[s in setters[i] for i in members] for s in chosen], float)
            parameters = _regression(sample.draws[:, list(chosen)], squares, mask)
        block = _Block(members, chosen, parameters)
        scaled = sample.scores[:, columns] * np.exp(-0.5 * block.log_precisions(sample.draws))
        blocks.append(block._replace(parameters=parameters | _correlation(scaled, sample.effective_size())))
    return blocks


def _regression(values: _Array, squares: _Array, mask: _Array) -> dict[str, _Array]:
    """`log G_i = log(exp(c_i) + exp(a_i + sum_s w_si q_s))` fitted to squared scores, for each coordinate i by itself.

    Minimises `mean(1/2 log G + 1/2 g^2 / G)` and a ridge, by Fisher scoring with damping: a Gamma regression.

    Args:
      values: of the setters, `[n, S]`.
      squares: of the scores, `[n, d]`.
      mask: which setters count for which coordinate, `[S, d]`.
    """
    mean, deviation = values.mean(axis=0), np.maximum(values.std(axis=0), 1e-300)
    base = np.log(np.mean(squares, axis=0) + 1e-300)
    relative = squares * np.exp(-base)
    num_setters, d = mask.shape
    # Each coordinate's own setters, at most `_MAX_SETTERS`; the first of them fill up for those that have fewer.
    most = max(1, int(mask.sum(axis=0).max()))
    order = np.argsort(-mask, axis=0, kind='stable')[:most]
    counts = np.take_along_axis(mask, order, axis=0)
    features = ((values - mean) / deviation)[:, order] * counts  # [n, most, d]
    theta = np.concatenate([np.full((1, d), -0.05), np.full((1, d), _CONSTANT_SHARE), np.zeros((most, d))])
    penalty = 2.0 * np.concatenate([[0.0, _RIDGE_OF_CONSTANT], np.full(most, _RIDGE)])
    target = np.concatenate([[0.0, _NO_CONSTANT_SHARE], np.zeros(most)])[:, None]

    def evaluate(theta: _Array) -> tuple[_Array, _Array, _Array]:
        varying = theta[0] + np.einsum('nkd,kd->nd', features, theta[2:])
        eta = np.logaddexp(theta[1], varying)
        loss = 0.5 * np.mean(eta + relative * np.exp(-eta), axis=0)
        return loss + 0.5 * penalty @ np.square(theta - target), eta, np.exp(varying - eta)

    loss, eta, share = evaluate(theta)
    damping = np.full(d, 1e-3)
    for _ in range(60):
        slopes = np.concatenate([share[:, None], 1.0 - share[:, None], share[:, None] * features], axis=1)  # [n, P, d]
        weights = 0.5 * (1.0 - relative * np.exp(-eta)) / len(values)
        gradient = np.einsum('nd,npd->pd', weights, slopes) + penalty[:, None] * (theta - target)
        information = 0.5 * np.einsum('npd,nqd->dpq', slopes, slopes) / len(values)
        information += np.diag(penalty) + (damping + 1e-9)[:, None, None] * np.eye(len(penalty))
        step = np.linalg.solve(information, gradient.T[..., None])[..., 0].T
        proposed = theta - np.clip(step, -2.0, 2.0)
        new_loss, new_eta, new_share = evaluate(proposed)
        better = new_loss < loss
        theta = np.where(better, proposed, theta)
        eta, share = np.where(better, new_eta, eta), np.where(better, new_share, share)
        change, loss = np.where(better, loss - new_loss, 0.0), np.where(better, new_loss, loss)
        damping = np.clip(np.where(better, 0.3 * damping, 10.0 * damping), 1e-6, 1e6)
        if np.all(change < 1e-8) and np.all(better | (damping >= 1e3)):
            break
    w = np.zeros((num_setters, d))
    np.put_along_axis(w, order, theta[2:] * counts, axis=0)
    w /= deviation[:, None]
    return {'c': base + theta[1], 'a': base + theta[0] - mean @ w, 'w': w}


def _correlation(scaled: _Array, effective_size: float) -> dict[str, _Array]:
    """Root and inverse of the correlation of scaled scores, shrunk to the identity; nothing for one or very many."""
    d = scaled.shape[1]
    if d == 1 or d > MAX_DENSE:
        return {}
    return _rooted(_shrunk(np.corrcoef(scaled.T), effective_size, _LEAST_SHRINKAGE))


def _shrunk(correlation: Any, effective_size: float, least: float) -> _Array:
    """A correlation matrix shrunk to the identity by as much as its noise demands (Schaefer and Strimmer 2005), or more.

    The intensity is the sum of the entries' variances, `(1 - r^2)^2 / n`, by the sum of their squares.
    """
    outside = ~np.eye(len(correlation), dtype=bool)
    squares = np.square(correlation[outside])
    noise = np.sum(np.square(1.0 - squares)) / max(effective_size, 1.0)
    intensity = min(1.0, max(noise / max(float(squares.sum()), 1e-300), least))
    return (1.0 - intensity) * correlation + intensity * np.eye(len(correlation))


def _rooted(matrix: _Array) -> dict[str, _Array]:
    return {'root': np.linalg.cholesky(matrix), 'inverse': np.linalg.inv(matrix)}


def _constant_block(sample: _Sample) -> _Block:
    """One block: the matrix G that maps the covariance of draws to that of scores, `G cov(q) G = cov(g)`.

    It is the geometric mean of the scores' covariance and the inverse of the draws', and for a Gaussian target the
    precision itself, from any D + 1 draws, converged or not. It minimises

        F(G) = trace(G^-1 cov(g)) + trace(G cov(q))

    which is, up to a constant, the Fisher divergence of the target from a Gaussian of precision G. How far the
    correlations are shrunk is chosen by F on draws that were held out. So what the draws say exactly is kept, however much
    they depend on each other, and what is noise is not. Reference: Seyboldt, Carlson and Carpenter 2026,
    "Preconditioning Hamiltonian Monte Carlo by minimizing Fisher divergence".
    """
    members = tuple(range(sample.draws.shape[1]))
    spreads = [np.maximum(x.std(axis=0), 1e-150) for x in (sample.draws, sample.scores)]
    log_precision = np.log(spreads[1]) - np.log(spreads[0])
    if len(members) == 1 or len(members) > MAX_DENSE:
        return _Block(members, (), {'c': log_precision})
    scale = np.exp(0.5 * log_precision)
    covariances = [_covariances(part, scale) for part in (sample, *(fold for fold, _ in sample.folds()))]
    whole, *halves = covariances
    losses = np.zeros(len(_SHRINKAGES))
    for fitted, judged in (halves, halves[::-1]):
        losses += [_divergence(metric, *judged) for metric in _shrunk_geometric_means(*fitted, _SHRINKAGES)]
    best = _SHRINKAGES[int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))]
    (metric,) = _shrunk_geometric_means(*whole, (best,))
    diagonal = np.diag(metric)
    correlation = metric / np.sqrt(np.outer(diagonal, diagonal))
    return _Block(members, (), {'c': log_precision + np.log(diagonal)} | _rooted(0.5 * (correlation + correlation.T)))


def _covariances(sample: _Sample, scale: _Array) -> tuple[_Array, _Array]:
    """Of draws and of scores, `[D, D]` each, in coordinates `scale * q`."""
    return np.cov((sample.draws * scale).T), np.cov((sample.scores / scale).T)


def _shrunk_geometric_means(of_draws: _Array, of_scores: _Array, shrinkages: Sequence[float]) -> list[_Array]:
    """The matrices G with `G of_draws G = of_scores`, for each share by which both correlations are shrunk."""
    found = []
    (of_draws, draws_spread), (of_scores, scores_spread) = (
        (matrix / np.outer(spread, spread), spread)
        for matrix, spread in ((x, np.sqrt(np.maximum(np.diag(x), 1e-300))) for x in (of_draws, of_scores))
    )
    identity = np.eye(len(of_draws))
    for shrinkage in shrinkages:
        first, second = (
            ((1.0 - shrinkage) * correlation + shrinkage * identity) * np.outer(spread, spread)
            for correlation, spread in ((of_draws, draws_spread), (of_scores, scores_spread))
        )
        values, vectors = np.linalg.eigh(first)
        values = np.maximum(values, _LEAST_EIGENVALUE * values[-1])
        root, inverse_root = (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
        values, vectors = np.linalg.eigh(root @ second @ root)
        values = np.maximum(values, _LEAST_EIGENVALUE * values[-1])
        found.append(inverse_root @ ((vectors * np.sqrt(values)) @ vectors.T) @ inverse_root)
    return found


def _divergence(metric: _Array, of_draws: _Array, of_scores: _Array) -> float:
    """`trace(G^-1 cov(g)) + trace(G cov(q))`."""
    return float(np.trace(np.linalg.solve(metric, of_scores)) + np.sum(metric * of_draws))


def _log_densities(sample: _Sample, blocks: Sequence[_Block]) -> _Array:
    """Of scores under `N(0, G(q))`, for each draw, up to a constant."""
    total = np.zeros(len(sample.draws))
    for block in blocks:
        total -= 0.5 * np.sum(block.log_precisions(sample.draws) + np.square(block.whitened(sample)), axis=1)
        if 'root' in block.parameters:
            total -= np.sum(np.log(np.diag(block.parameters['root'])))
    return total


def _held_out_gain(folds: list[tuple[_Sample, _Sample]], setters: _Setters, others: _Setters) -> tuple[float, float]:
    """By how much one structure describes held-out scores better than another, for each draw: a trimmed mean.

    And its standard error, with the draws taken to be as far from independent as `_MAX_TIME` says.
    """
    gains = np.concatenate(
        [
            _log_densities(judged, _fitted(fitted, setters)) - _log_densities(judged, _fitted(fitted, others))
            for fitted, judged in folds
        ]
    )
    low, high = np.quantile(gains, [_TRIMMED, 1.0 - _TRIMMED])
    error = float(np.std(np.clip(gains, low, high)) * np.sqrt(_MAX_TIME / len(gains)))
    return _trimmed_mean(gains), error


def _trimmed_mean(values: _Array) -> float:
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
