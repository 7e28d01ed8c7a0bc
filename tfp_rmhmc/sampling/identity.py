"""What a run depends on, so that a checkpoint of another one is not taken for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc._version import __version__
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.metric import Metric
from tfp_rmhmc.sampling.checkpoint import Identity
from tfp_rmhmc.sampling.problem import Problem

__all__ = ['identity_of']

_NUM_POINTS = 3  # the start, and others around it: there log densities of different data may agree
_DEVIATION = 0.3


def identity_of(problem: Problem, settings: dict[str, Any], seed: np.ndarray, metric: Metric | None) -> Identity:
    """A run, by its settings and by what its target and metric are at some points.

    Functions have no names that would last, so models and metrics are known by their values. Cost: one trace of gradient
    and metric.
    """
    words = {'version': __version__} | {name: repr(value) for name, value in settings.items()}
    words |= {
        'metric': type(metric).__name__,
        'seed': str(np.asarray(seed).tolist()),
        'variables': str(problem.names),
        'shapes': str([part.shape.as_list() for part in problem.start]),
        'dtype': problem.start[0].dtype.name,
    }
    density = LogDensity.at_state(problem.target_log_prob_fn, problem.start)
    start = density.layout.flatten(problem.start)

    @tf.function(autograph=False)
    def evaluate(position: tf.Tensor) -> dict[str, tf.Tensor]:
        log_prob, gradient = density.apply(autodiff.value_and_gradient, position)
        found = {'log density': log_prob[..., tf.newaxis], 'gradient': gradient}
        if metric is not None:
            factor = metric.at(density, position).factor
            direction = tf.linspace(tf.constant(0.5, position.dtype), 1.5, position.shape[-1])
            product = factor.multiply(tf.broadcast_to(direction, tf.shape(position)))
            half_log_det = tf.broadcast_to(factor.half_log_det, tf.shape(log_prob))
            found['metric'] = tf.concat([half_log_det[..., tf.newaxis], product], axis=-1)
        return found

    program = evaluate.get_concrete_function(start)
    noise = np.random.default_rng(0).standard_normal((_NUM_POINTS, *start.shape))
    noise[0] = 0.0
    points = [program(start + tf.constant(_DEVIATION * shift, start.dtype)) for shift in noise]
    values = {'start': start.numpy()}
    return Identity(words, values | {key: np.stack([point[key].numpy() for point in points]) for key in points[0]})
