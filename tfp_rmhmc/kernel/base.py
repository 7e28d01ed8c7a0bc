"""What all kernels of the package share: their arguments, and how they are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.integrator import Integrator, MetricCoupling, SeparableLeapfrog
from tfp_rmhmc.metric import Metric
from tfp_rmhmc.state import is_list_like

__all__ = ['RiemannianKernel', 'check_arguments', 'default_integrator']


class RiemannianKernel(tfp.mcmc.TransitionKernel):
    """A kernel with a metric and an integrator."""

    _parameters: dict[str, Any]
    _metric: Metric
    _integrator: Integrator

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments, as they were given: `copy` and TFP's wrappers rebuild the kernel from them."""
        return self._parameters

    @property
    def target_log_prob_fn(self) -> Callable[..., tf.Tensor]:
        """The log density that is sampled from."""
        return self._parameters['target_log_prob_fn']

    @property
    def step_size(self) -> Any:
        """As given."""
        return self._parameters['step_size']

    @property
    def metric(self) -> Metric:
        """The metric, which is bound to the current target in each transition."""
        return self._metric

    @property
    def integrator(self) -> Integrator:
        """The integrator that makes the trajectories."""
        return self._integrator

    @property
    def name(self) -> str:
        """As given, or the class's name."""
        return self._parameters['name'] or type(self).__name__

    @property
    def experimental_shard_axis_names(self) -> Any:
        """As given; a metric couples all coordinates of the state, so sharded transitions are refused."""
        return self._parameters['experimental_shard_axis_names']

    def experimental_with_shard_axes(self, shard_axis_names: Any) -> RiemannianKernel:
        """A copy with other shard axes."""
        return self.copy(experimental_shard_axis_names=shard_axis_names)

    def _refuse_shards(self) -> None:
        if self.experimental_shard_axis_names is not None:
            raise ValueError(
                '`experimental_shard_axis_names` must be None: a metric couples all coordinates of the state; '
                f'got {self.experimental_shard_axis_names!r}.'
            )


def default_integrator(metric: Metric) -> Integrator:
    """The integrator that is taken for a metric if none is given."""
    return SeparableLeapfrog() if metric.is_separable else MetricCoupling()


def check_arguments(target_log_prob_fn: Any, step_size: Any, metric: Any) -> None:
    """Raises one sentence if one of these cannot be what a kernel needs; `metric` may be None."""
    if not callable(target_log_prob_fn):
        raise TypeError(f'`target_log_prob_fn` must be callable, got {target_log_prob_fn!r}.')
    if metric is not None and not isinstance(metric, Metric):
        raise TypeError(f'`metric` must be a `tfp_rmhmc.Metric`, got {metric!r}.')
    _check_step_size(step_size)


def _check_step_size(step_size: Any) -> None:
    if is_list_like(step_size) and not step_size:
        raise ValueError('`step_size` must not be an empty list.')
    for step in tf.nest.flatten(step_size):
        if isinstance(step, tf.Variable):
            continue  # its value is a matter of run time
        static = tf.get_static_value(tf.convert_to_tensor(step))
        # Zero is allowed: it moves nothing and accepts everything, which TFP's own kernels promise.
        if static is not None and not (np.all(static >= 0) and np.all(np.isfinite(static))):
            raise ValueError(f'`step_size` must be non-negative and finite, got {step_size!r}.')
