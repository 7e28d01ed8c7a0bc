"""Explicit Riemannian manifold HMC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfp_rmhmc.integrator import Dynamics, MetricCoupling, SymmetricProjection, TaoBinding
from tfp_rmhmc.kernel.base import CalibratedKernel, UncalibratedKernel
from tfp_rmhmc.metric import Metric, SoftAbsMetric

__all__ = ['ExplicitRiemannianHMC', 'UncalibratedExplicitRiemannianHMC']


class UncalibratedExplicitRiemannianHMC(UncalibratedKernel):
    """The proposal of `ExplicitRiemannianHMC`, without its accept step; arguments are the same."""

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        step_size: Any,
        num_leapfrog_steps: Any,
        metric: Metric | None = None,
        coupling: Dynamics | None = None,
        state_gradients_are_stopped: bool = False,
        store_parameters_in_results: bool = False,
        compiled_groups: int | None = None,
        experimental_shard_axis_names: Any = None,
        name: str | None = None,
    ):
        parameters = {
            'target_log_prob_fn': target_log_prob_fn,
            'step_size': step_size,
            'num_leapfrog_steps': num_leapfrog_steps,
            'metric': SoftAbsMetric() if metric is None else metric,
            'coupling': MetricCoupling() if coupling is None else coupling,
            'state_gradients_are_stopped': state_gradients_are_stopped,
            'store_parameters_in_results': store_parameters_in_results,
            'compiled_groups': compiled_groups,
            'experimental_shard_axis_names': experimental_shard_axis_names,
            'name': name,
        }
        if not isinstance(parameters['coupling'], (MetricCoupling, TaoBinding, SymmetricProjection)):
            raise TypeError(f'`coupling` must be a MetricCoupling, TaoBinding or SymmetricProjection, got {coupling!r}.')
        super().__init__(parameters['coupling'], parameters)


class ExplicitRiemannianHMC(CalibratedKernel):
    """Riemannian manifold HMC with an explicit integrator: no equation is solved, every step costs the same.

    The state is doubled and the copies coupled, as in Cobb, Baydin, Markham and Roberts 2019, "Introducing an explicit
    symplectic integration scheme for Riemannian manifold Hamiltonian Monte Carlo". Unlike there, the copies are part of the
    target that the accept step sees, so the kernel leaves the target invariant exactly; see `MetricCoupling`.

    Used like `tfp.mcmc.HamiltonianMonteCarlo`, and in its place in every wrapper:

        kernel = tfp_rmhmc.ExplicitRiemannianHMC(target_log_prob_fn, step_size=0.14, num_leapfrog_steps=25)
        draws = tfp.mcmc.sample_chain(1000, current_state, kernel=kernel, trace_fn=None, seed=(1, 2))

    Args:
      target_log_prob_fn: takes the state parts and returns the log density, `[batch...]`. Chains must be independent of
        each other. It is differentiated three times with most metrics (mind that TensorFlow's third derivative of `x**2` at
        `x = 0` is NaN; `tf.square(x)` is sound).
      step_size: scalar, or a tensor that broadcasts with the state, or a list with one per state part. With a metric that
        follows the curvature, steps are in units of local standard deviations: 0.1 to 0.3 is usual.
      num_leapfrog_steps: steps of a trajectory, a positive integer.
      metric: a `tfp_rmhmc.Metric`; by default `SoftAbsMetric()`.
      coupling: `MetricCoupling()` (the default), `TaoBinding(...)` or `SymmetricProjection(...)`.
      state_gradients_are_stopped: whether to stop gradients through the state.
      store_parameters_in_results: whether step size and number of steps live in the kernel results, where adaptation
        wrappers find them.
      compiled_groups: if given, XLA compiles the trajectory inside a plain `tf.function`, for the chains in at most so many
        equal groups, which run on as many cores of a CPU as there are; 4 is a good number for hundreds of chains. The
        target must take any number of chains. Eagerly, and where XLA compiles the whole, it has no effect.
      experimental_shard_axis_names: must be None.
      name: for scopes in graphs.
    """

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        step_size: Any,
        num_leapfrog_steps: Any,
        metric: Metric | None = None,
        coupling: Dynamics | None = None,
        state_gradients_are_stopped: bool = False,
        store_parameters_in_results: bool = False,
        compiled_groups: int | None = None,
        experimental_shard_axis_names: Any = None,
        name: str | None = None,
    ):
        super().__init__(
            UncalibratedExplicitRiemannianHMC(
                target_log_prob_fn,
                step_size,
                num_leapfrog_steps,
                metric=metric,
                coupling=coupling,
                state_gradients_are_stopped=state_gradients_are_stopped,
                store_parameters_in_results=store_parameters_in_results,
                compiled_groups=compiled_groups,
                experimental_shard_axis_names=experimental_shard_axis_names,
                name=name,
            )
        )
