"""What all kernels of the package share: their arguments, and how they are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_callable, check_instance, check_name, check_real, shown
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.integrator import Integrator, MetricCoupling, SeparableLeapfrog
from tfp_rmhmc.metric import Metric
from tfp_rmhmc.state import is_list_like

__all__ = ['RiemannianKernel', 'check_arguments', 'check_common', 'default_integrator']

_ANY_RANK = 32  # of a step size, which the state bounds later


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

    def _first_evaluation(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Log density and gradient at the start of a chain, and a word about what may take long."""
        log_prob, gradient = density.apply(autodiff.value_and_gradient, position)
        if self.metric.differentiates_target:
            autodiff.warn_of_nested_loops(position, log_prob)
        return log_prob, gradient

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
    check_callable('target_log_prob_fn', target_log_prob_fn)
    if metric is not None:
        check_instance('metric', metric, Metric, 'a `tfp_rmhmc.Metric`')
    if is_list_like(step_size) and not step_size:
        raise ValueError('`step_size` must not be empty, got an empty list.')
    for step in step_size if is_list_like(step_size) else [step_size]:
        # Zero is allowed: it moves nothing and accepts everything, which TFP's own kernels promise.
        check_real('step_size', step, least=0.0, max_rank=_ANY_RANK)


def check_common(name: Any, experimental_shard_axis_names: Any) -> None:
    """Raises unless these are what every kernel takes, in whatever way TFP's wrappers pass them."""
    check_name('name', name)
    try:
        names = tf.nest.flatten(experimental_shard_axis_names)
    except TypeError:  # keys that cannot be sorted
        names = [experimental_shard_axis_names]
    if not all(name is None or isinstance(name, str) for name in names):
        raise TypeError(
            f'`experimental_shard_axis_names` must be None or made of strings, got {shown(experimental_shard_axis_names)}.'
        )
