"""Implicit Riemannian manifold HMC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfp_rmhmc.integrator import Dynamics, GeneralizedLeapfrog, ImplicitMidpoint
from tfp_rmhmc.kernel.base import CalibratedKernel, UncalibratedKernel
from tfp_rmhmc.metric import Metric, SoftAbsMetric

__all__ = ['ImplicitRiemannianHMC', 'UncalibratedImplicitRiemannianHMC']


class UncalibratedImplicitRiemannianHMC(UncalibratedKernel):
    """The proposal of `ImplicitRiemannianHMC`, without its accept step; arguments are the same."""

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        step_size: Any,
        num_leapfrog_steps: Any,
        metric: Metric | None = None,
        integrator: Dynamics | None = None,
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
            'integrator': GeneralizedLeapfrog() if integrator is None else integrator,
            'state_gradients_are_stopped': state_gradients_are_stopped,
            'store_parameters_in_results': store_parameters_in_results,
            'compiled_groups': compiled_groups,
            'experimental_shard_axis_names': experimental_shard_axis_names,
            'name': name,
        }
        if not isinstance(parameters['integrator'], (GeneralizedLeapfrog, ImplicitMidpoint)):
            raise TypeError(f'`integrator` must be a GeneralizedLeapfrog or an ImplicitMidpoint, got {integrator!r}.')
        super().__init__(parameters['integrator'], parameters)


class ImplicitRiemannianHMC(CalibratedKernel):
    """Riemannian manifold HMC with an implicit integrator, each chain solving its own equations to a tolerance.

    Reference: Girolami and Calderhead 2011, "Riemann manifold Langevin and Hamiltonian Monte Carlo methods". A solve that
    does not converge rejects its chain's proposal and shows in `proposed_results.status`.

    Args:
      integrator: `GeneralizedLeapfrog()` (the default) or `ImplicitMidpoint()`.
      target_log_prob_fn, step_size, num_leapfrog_steps, metric, state_gradients_are_stopped,
        store_parameters_in_results, compiled_groups, experimental_shard_axis_names, name: as in `ExplicitRiemannianHMC`.
    """

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        step_size: Any,
        num_leapfrog_steps: Any,
        metric: Metric | None = None,
        integrator: Dynamics | None = None,
        state_gradients_are_stopped: bool = False,
        store_parameters_in_results: bool = False,
        compiled_groups: int | None = None,
        experimental_shard_axis_names: Any = None,
        name: str | None = None,
    ):
        super().__init__(
            UncalibratedImplicitRiemannianHMC(
                target_log_prob_fn,
                step_size,
                num_leapfrog_steps,
                metric=metric,
                integrator=integrator,
                state_gradients_are_stopped=state_gradients_are_stopped,
                store_parameters_in_results=store_parameters_in_results,
                compiled_groups=compiled_groups,
                experimental_shard_axis_names=experimental_shard_axis_names,
                name=name,
            )
        )
