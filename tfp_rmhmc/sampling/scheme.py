"""The kernels that `sample_posterior` offers by name, each with adaptation of its step size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.adaptation import RandomTrajectoryLength
from tfp_rmhmc.kernel import ExplicitRiemannianHMC, ImplicitRiemannianHMC, RiemannianHMC, RiemannianNUTS
from tfp_rmhmc.metric import Metric

__all__ = ['KERNELS', 'RIEMANNIAN', 'adaptive_kernel']

# On a Gaussian this length gives uncorrelated draws (see `RandomTrajectoryLength`). It is longer than the 3.5 that the
# paper takes on the funnel, whose v changes slowly along a trajectory.
_MEAN_LENGTH = 2.0 * math.pi


class _Scheme(NamedTuple):
    initial_step_size: float
    target_accept_prob: float


KERNELS = {
    'explicit': _Scheme(0.1, 0.8),
    'implicit': _Scheme(0.1, 0.9),
    'rnuts': _Scheme(0.1, 0.8),
    'hmc': _Scheme(0.1, 0.8),
    'nuts': _Scheme(0.1, 0.8),
}
# Those that take a metric.
RIEMANNIAN = ('explicit', 'implicit', 'rnuts')


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
    """The kernel `kind`; dual averaging adapts its step size for `num_adaptation_steps`, after which it is fixed."""
    scheme = KERNELS[kind]
    initial = tf.constant(scheme.initial_step_size if step_size is None else step_size, dtype)
    length = _MEAN_LENGTH if mean_length is None else mean_length
    kernel: tfp.mcmc.TransitionKernel
    if kind == 'nuts':
        kernel = tfp.mcmc.NoUTurnSampler(target_log_prob_fn, initial)
    elif kind == 'rnuts':
        kernel = RiemannianNUTS(target_log_prob_fn, initial, metric=metric)
    elif kind == 'hmc':
        inner = tfp.mcmc.HamiltonianMonteCarlo(target_log_prob_fn, initial, 1, store_parameters_in_results=True)
        kernel = RandomTrajectoryLength(inner, length)
    else:
        cls = {'explicit': ExplicitRiemannianHMC, 'implicit': ImplicitRiemannianHMC}[kind]
        if kind == 'explicit' and metric is not None and metric.is_separable:
            cls = RiemannianHMC  # its default integrator is explicit here, at one gradient a step
        inner = cls(target_log_prob_fn, initial, 1, metric=metric, store_parameters_in_results=True)
        kernel = RandomTrajectoryLength(inner, length)
    return tfp.mcmc.DualAveragingStepSizeAdaptation(
        kernel,
        num_adaptation_steps=num_adaptation_steps,
        target_accept_prob=tf.constant(
            scheme.target_accept_prob if target_accept_prob is None else target_accept_prob, dtype
        ),
        # The mean over chains. With the default, the harmonic mean, one bad chain of many shortens the step of all.
        reduce_fn=tfp.math.reduce_logmeanexp,
    )
