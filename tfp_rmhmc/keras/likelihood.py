"""Likelihoods of a network's outputs: a distribution of the observations, and its Fisher information."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.argument import check_choice, check_positive, shown
from tfp_rmhmc.metric.gauss_newton import INFORMATION

__all__ = ['Likelihood', 'likelihood_of']

tfd = tfp.distributions

# Activations that make probabilities.
_PROBABILITIES = ('softmax', 'sigmoid', 'hard_sigmoid')


class Likelihood:
    """The distribution of each of N observations, given the outputs `[batch..., N, K]` of a network.

    Args:
      distribution_fn: from outputs to a `tfd.Distribution`. If its log density has dimensions beyond `[batch..., N]`,
        they are summed over.
    """

    has_log_scale = False  # whether the state has one more part, `[batch..., 1]`
    is_classifier = False
    # What the outputs are taken for, and last activations that contradict it.
    meaning = ''
    other_activations: tuple[str, ...] = ()
    # Fisher information of the natural parameters, in a shape that `GaussNewtonMetric` takes; None if it is not known.
    information_fn: Callable[[tf.Tensor], tf.Tensor] | None = None

    def __init__(self, distribution_fn: Callable[[tf.Tensor], tfp.distributions.Distribution]):
        self._distribution_fn = distribution_fn

    def distribution(self, outputs: tf.Tensor, log_scale: tf.Tensor | None = None) -> tfp.distributions.Distribution:
        """The distribution of the observations."""
        del log_scale
        return self._distribution_fn(outputs)

    def observations(self, y: Any, outputs: tf.Tensor) -> tf.Tensor:
        """`y` as the distribution wants it; raises an error of one sentence if it does not fit `outputs: [N, K]`."""
        y = _numbers(y)
        if y.shape.rank == 0 or not y.shape[:1].is_compatible_with(outputs.shape[:1]):
            raise ValueError(f'`y` must have one row for each of {outputs.shape[0]} rows of `x`, got shape {y.shape}.')
        return y

    def log_prob(self, y: tf.Tensor, outputs: tf.Tensor, log_scale: tf.Tensor | None = None) -> tf.Tensor:
        """The log density of each observation: `[batch..., N]`."""
        log_prob = self.distribution(outputs, log_scale).log_prob(y)
        return tf.reduce_sum(log_prob, axis=list(range(outputs.shape.rank - 1, log_prob.shape.rank)))

    def moments(self, outputs: tf.Tensor, log_scale: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of the observations, shaped like the outputs."""
        distribution = self.distribution(outputs, log_scale)
        return distribution.mean(), distribution.variance()

    def natural_parameters(self, outputs: tf.Tensor, log_scale: tf.Tensor | None) -> tf.Tensor:
        """The parameters that `information_fn` takes: the outputs, and beside them the log scale if there is one."""
        del log_scale
        return outputs


class _Gaussian(Likelihood):
    """Independent normal noise of a known scale; with `scale=None` its logarithm is inferred, N(-1, 1) a priori."""

    def __init__(self, scale: float | None):
        if scale is not None:
            check_positive('noise_scale', scale)
        self._scale = scale
        self.has_log_scale = scale is None
        self.information_fn = self._information

    def distribution(self, outputs: tf.Tensor, log_scale: tf.Tensor | None = None) -> tfp.distributions.Distribution:
        if log_scale is None:
            return tfd.Normal(outputs, tf.cast(self._scale, outputs.dtype))
        return tfd.Normal(outputs, tf.exp(log_scale)[..., tf.newaxis, :])

    def observations(self, y: Any, outputs: tf.Tensor) -> tf.Tensor:
        return _like_outputs(y, outputs)

    def natural_parameters(self, outputs: tf.Tensor, log_scale: tf.Tensor | None) -> tf.Tensor:
        if log_scale is None:
            return outputs
        column = tf.broadcast_to(log_scale[..., tf.newaxis, :], tf.concat([tf.shape(outputs)[:-1], [1]], axis=0))
        return tf.concat([outputs, column], axis=-1)

    def _information(self, natural_parameters: tf.Tensor) -> tf.Tensor:
        if self._scale is not None:
            return tf.cast(self._scale**-2, natural_parameters.dtype) * tf.ones_like(natural_parameters)
        num_outputs = natural_parameters.shape[-1] - 1
        precision = tf.exp(-2.0 * natural_parameters[..., -1:])
        return tf.concat([precision] * num_outputs + [2.0 * num_outputs * tf.ones_like(precision)], axis=-1)


class _Named(Likelihood):
    """A likelihood whose outputs are its natural parameters."""

    def __init__(self, name: str, distribution_fn: Callable[[tf.Tensor], tfp.distributions.Distribution]):
        super().__init__(distribution_fn)
        self.information_fn = INFORMATION[name]


class _Bernoulli(_Named):
    is_classifier = True
    meaning, other_activations = 'logits', _PROBABILITIES

    def __init__(self) -> None:
        super().__init__('bernoulli', lambda outputs: tfd.Bernoulli(logits=outputs, dtype=outputs.dtype))

    def observations(self, y: Any, outputs: tf.Tensor) -> tf.Tensor:
        return _in_range(_like_outputs(y, outputs), lambda v: (v == 0) | (v == 1), '0 or 1')


class _Poisson(_Named):
    meaning, other_activations = 'logarithms of rates', ('exponential', 'exp', 'softplus')

    def __init__(self) -> None:
        super().__init__('poisson', lambda outputs: tfd.Poisson(log_rate=outputs))

    def observations(self, y: Any, outputs: tf.Tensor) -> tf.Tensor:
        return _in_range(_like_outputs(y, outputs), lambda v: (v >= 0) & (v == np.round(v)), 'counts')


class _Categorical(_Named):
    is_classifier = True
    meaning, other_activations = 'logits', _PROBABILITIES

    def __init__(self) -> None:
        super().__init__('categorical', lambda outputs: tfd.Categorical(logits=outputs))

    def moments(self, outputs: tf.Tensor, log_scale: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        probabilities = tf.nn.softmax(outputs)
        return probabilities, probabilities * (1.0 - probabilities)

    def observations(self, y: Any, outputs: tf.Tensor) -> tf.Tensor:
        labels = _numbers(y)
        if labels.shape.rank == outputs.shape.rank and labels.shape[-1] == 1:
            labels = labels[..., 0]
        if not labels.shape.is_compatible_with(outputs.shape[:-1]):
            raise ValueError(
                f'`y` must hold one integer label for each row of `x`, {outputs.shape[:-1]}, got {labels.shape}.'
            )
        classes = outputs.shape[-1]
        is_label = lambda v: (v >= 0) & (v < classes) & (v == np.round(v))  # noqa: E731
        return tf.cast(_in_range(labels, is_label, f'integer labels from 0 to {classes - 1}'), tf.int32)


def likelihood_of(
    likelihood: str | Callable[[tf.Tensor], tfp.distributions.Distribution], noise_scale: float | None
) -> Likelihood:
    """The likelihood that `make_posterior`'s arguments name."""
    named: dict[str, Callable[[], Likelihood]] = {
        'gaussian': lambda: _Gaussian(noise_scale),
        'bernoulli': _Bernoulli,
        'categorical': _Categorical,
        'poisson': _Poisson,
    }
    if callable(likelihood):
        return Likelihood(likelihood)
    check_choice('likelihood', likelihood, list(named), also='callable or ')
    return named[likelihood]()


def _like_outputs(y: Any, outputs: tf.Tensor) -> tf.Tensor:
    """`y` in the shape of the outputs; with a single output it may be a vector."""
    y = tf.cast(_numbers(y), outputs.dtype)
    if y.shape.rank == outputs.shape.rank - 1 and outputs.shape[-1] == 1:
        y = y[..., tf.newaxis]
    # Not is_compatible_with alone: a row too many would be broadcast.
    if y.shape.rank != outputs.shape.rank or not y.shape.is_compatible_with(outputs.shape):
        raise ValueError(f"`y` must have the shape of the model's outputs, {outputs.shape}, got {y.shape}.")
    return y


def _numbers(y: Any) -> tf.Tensor:
    """Observations as a tensor."""
    try:
        tensor = tf.convert_to_tensor(y)
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise TypeError(f'`y` must be an array of numbers, got {shown(y)}.')
    return tensor


def _in_range(y: tf.Tensor, is_good: Callable[[np.ndarray], np.ndarray], what: str) -> tf.Tensor:
    if tf.executing_eagerly():  # in a graph, a dataset's labels are not known
        values = y.numpy()
        bad = values[~is_good(values)]
        if bad.size:
            raise ValueError(f'`y` must hold {what}, got {bad.flat[0]}.')
    return y
