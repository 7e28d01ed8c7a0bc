"""The kernels that `sample_posterior` offers by name, each adapting its step size, under one trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.diagnostic import find_result
from tfp_rmhmc.integrator import Status
from tfp_rmhmc.kernel import ExplicitRiemannianHMC, ImplicitRiemannianHMC
from tfp_rmhmc.metric import Metric
from tfp_rmhmc.sampling.trajectory import RandomTrajectoryLength

__all__ = ['KERNELS', 'adaptive_kernel', 'trace']

# Uncorrelated draws on a Gaussian (see `RandomTrajectoryLength`), and longer than the paper's 3.5 on the funnel, whose v
# changes slowly along a trajectory.
_MEAN_LENGTH = 2.0 * math.pi


class _Scheme(NamedTuple):
    initial_step_size: float
    target_accept_prob: float


KERNELS = {
    'explicit': _Scheme(0.1, 0.8),
    'implicit': _Scheme(0.1, 0.9),
    'hmc': _Scheme(0.1, 0.8),
    'nuts': _Scheme(0.1, 0.8),
}


def adaptive_kernel(
    kind: str,
    target_log_prob_fn: Callable[..., tf.Tensor],
    dtype: tf.DType,
    num_adaptation_steps: int,
    metric: Metric | None = None,
    step_size: float | None = None,
    target_accept_prob: float | None = None,
    mean_length: float | None = None,
) -> tfp.mcmc.TransitionKernel:
    """The kernel `kind` with dual averaging of its step size for `num_adaptation_steps`, and fixed from there on."""
    scheme = KERNELS[kind]
    initial = tf.constant(scheme.initial_step_size if step_size is None else step_size, dtype)
    length = _MEAN_LENGTH if mean_length is None else mean_length
    kernel: tfp.mcmc.TransitionKernel
    if kind == 'nuts':
        kernel = tfp.mcmc.NoUTurnSampler(target_log_prob_fn, initial)
    elif kind == 'hmc':
        inner = tfp.mcmc.HamiltonianMonteCarlo(target_log_prob_fn, initial, 1, store_parameters_in_results=True)
        kernel = RandomTrajectoryLength(inner, length)
    else:
        cls = {'explicit': ExplicitRiemannianHMC, 'implicit': ImplicitRiemannianHMC}[kind]
        inner = cls(target_log_prob_fn, initial, 1, metric=metric, store_parameters_in_results=True)
        kernel = RandomTrajectoryLength(inner, length)
    return tfp.mcmc.DualAveragingStepSizeAdaptation(
        kernel,
        num_adaptation_steps=num_adaptation_steps,
        target_accept_prob=tf.constant(
            scheme.target_accept_prob if target_accept_prob is None else target_accept_prob, dtype
        ),
        # The chains' mean. The default, their harmonic mean, lets one bad chain of many shorten everybody's step.
        reduce_fn=tfp.math.reduce_logmeanexp,
    )


def trace(state: Any, results: Any) -> dict[str, tf.Tensor]:
    """What is kept of each transition, for each chain, under ArviZ's names where it has them."""
    del state
    log_prob = find_result(results, 'target_log_prob')
    log_accept_ratio = find_result(results, 'log_accept_ratio')
    kept = {
        'lp': log_prob,
        'acceptance_rate': tf.exp(tf.minimum(log_accept_ratio, 0.0)),
        'step_size': tf.broadcast_to(results.new_step_size, tf.shape(log_prob)),
    }
    proposed = find_result(results, 'proposed_results')
    if hasattr(proposed, 'status'):
        return kept | {
            'diverging': proposed.has_divergence,
            'energy': proposed.energy,
            'status': proposed.status,
            'n_steps': tf.broadcast_to(find_result(results, 'num_leapfrog_steps'), tf.shape(log_prob)),
            'metric_evaluations': proposed.num_metric_evaluations,
        }
    none = tf.zeros_like(log_prob, dtype=tf.int32)
    if proposed is None:  # TFP's NUTS
        return kept | {
            'diverging': find_result(results, 'has_divergence'),
            'energy': find_result(results, 'energy'),
            'status': none,
            'n_steps': find_result(results, 'leapfrogs_taken'),
            'metric_evaluations': none,
        }
    kinetic = [
        0.5 * tf.reduce_sum(tf.reshape(tf.square(p), [tf.shape(log_prob)[0], -1]), axis=-1) for p in proposed.final_momentum
    ]
    return kept | {  # TFP's HMC
        'diverging': log_accept_ratio < -1000.0,
        'energy': tf.add_n(kinetic) - proposed.target_log_prob,
        'status': none + int(Status.OK),
        'n_steps': tf.broadcast_to(find_result(results, 'num_leapfrog_steps'), tf.shape(log_prob)),
        'metric_evaluations': none,
    }
