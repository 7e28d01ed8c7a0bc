"""The posterior predictive distribution of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_rmhmc.argument import check_callable, check_instance, check_integer, shown
from tfp_rmhmc.keras.likelihood import Likelihood

__all__ = ['Predictive', 'Reliability']


class Reliability(NamedTuple):
    """Confidence against accuracy, in bins of the confidence of equal width.

    Attributes:
      confidence: mean confidence of each bin, `[num_bins]`; NaN in empty ones.
      accuracy: share of right predictions.
      number: of predictions.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    number: np.ndarray


class Predictive:
    """The mixture of the likelihoods at new inputs, with one component for each posterior draw.

    Each result is computed in one pass over the draws, `batch_size` at a time, so memory does not grow with their
    number.

    Args:
      outputs_fn: from state parts `[S, ...]` to the outputs `[S, N, K]` at the new inputs.
      likelihood: of the outputs.
      draws: state parts, each `[num_draws, ...]`.
      batch_size: draws evaluated together.
    """

    def __init__(
        self,
        outputs_fn: Callable[..., tuple[tf.Tensor, tf.Tensor | None]],
        likelihood: Likelihood,
        draws: Sequence[np.ndarray],
        batch_size: int,
    ):
        check_callable('outputs_fn', outputs_fn)
        check_instance('likelihood', likelihood, Likelihood, 'a Likelihood: use `KerasPosterior.predict`')
        if not isinstance(draws, (list, tuple)) or not draws or not all(np.ndim(part) > 0 for part in draws):
            raise TypeError(f'`draws` must be a list of arrays [num_draws, ...], got {shown(draws)}.')
        check_integer('batch_size', batch_size, least=1)
        self._outputs = tf.function(outputs_fn, autograph=False, reduce_retracing=True)
        self._likelihood = likelihood
        self._draws = draws
        self._batch_size = int(batch_size)

    @property
    def num_draws(self) -> int:
        """The number of components of the mixture."""
        return len(self._draws[0])

    @property
    def is_classifier(self) -> bool:
        """Whether the observations are labels."""
        return self._likelihood.is_classifier

    def _batches(self) -> Any:
        for begin in range(0, self.num_draws, self._batch_size):
            yield self._outputs(*[tf.constant(part[begin : begin + self._batch_size]) for part in self._draws])

    def outputs(self) -> np.ndarray:
        """The network's outputs for each draw, `[num_draws, N, K]`: all of them, in memory."""
        return np.concatenate([outputs.numpy() for outputs, _ in self._batches()])

    def log_prob(self, y: Any) -> np.ndarray:
        """Log predictive density of each observation: `[N]`."""
        total: Any = None
        for outputs, log_scale in self._batches():
            observed = self._likelihood.observations(y, outputs[0])
            log_prob = tf.reduce_logsumexp(self._likelihood.log_prob(observed, outputs, log_scale), axis=0)
            total = log_prob if total is None else np.logaddexp(total, log_prob)
        return np.asarray(total) - np.log(self.num_draws)

    def mean(self) -> np.ndarray:
        """Predictive mean `[N, K]`; for a classifier the probabilities of the classes, or of the label 1."""
        return self._moments()[0]

    def stddev(self) -> np.ndarray:
        """Predictive standard deviation `[N, K]`, of noise and weights together."""
        return np.sqrt(self._moments()[1])

    def credible_interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Bounds `[N, K]` between which the mean lies with this probability: uncertainty of weights, without noise.

        All draws' means are in memory.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f'`level` must be between 0 and 1, got {level!r}.')
        means = np.concatenate([np.asarray(self._likelihood.moments(*pair)[0]) for pair in self._batches()])
        low, high = np.quantile(means, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
        return low, high

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance, by the law of total variance."""
        first: Any = 0.0
        second: Any = 0.0
        for outputs, log_scale in self._batches():
            mean, variance = self._likelihood.moments(outputs, log_scale)
            first = first + np.sum(mean, axis=0, dtype=np.float64)
            second = second + np.sum(np.square(mean, dtype=np.float64) + variance, axis=0)
        mean = first / self.num_draws
        return mean, np.maximum(second / self.num_draws - mean**2, 0.0)

    def accuracy(self, y: Any) -> float:
        """The share of observations whose label is the most probable one under the predictive distribution."""
        confidence, is_right = self._confidence(y)
        del confidence
        return float(np.mean(is_right))

    def calibration_error(self, y: Any, num_bins: int = 15) -> float:
        """Expected calibration error: confidence against accuracy, over bins of equal width (Guo et al. 2017)."""
        found = self.reliability(y, num_bins)
        gaps = np.where(found.number > 0, np.abs(found.confidence - found.accuracy), 0.0)
        return float(np.sum(found.number * gaps) / np.sum(found.number))

    def reliability(self, y: Any, num_bins: int = 15) -> Reliability:
        """Confidence, accuracy and number of predictions in bins of equal width."""
        check_integer('num_bins', num_bins, least=1)
        confidence, is_right = self._confidence(y)
        which = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
        count = np.bincount(which, minlength=num_bins)
        sums = [np.bincount(which, weights=value, minlength=num_bins) for value in (confidence, is_right)]
        means = [np.divide(total, count, out=np.full(num_bins, np.nan), where=count > 0) for total in sums]
        return Reliability(means[0], means[1], count)

    def _confidence(self, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """The probability of the most probable label, and whether it is the right one."""
        if not self._likelihood.is_classifier:
            raise ValueError('Accuracy and calibration are for classifiers: likelihood bernoulli or categorical.')
        probabilities = self.mean()
        labels = self._likelihood.observations(y, tf.constant(probabilities)).numpy()
        if labels.ndim == probabilities.ndim:  # bernoulli, [N, 1]
            probabilities, labels = np.concatenate([1.0 - probabilities, probabilities], axis=-1), labels[:, 0]
        return np.max(probabilities, axis=-1), np.argmax(probabilities, axis=-1) == labels
