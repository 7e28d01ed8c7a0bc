"""One transition of any dynamics as a TFP kernel, and its Metropolis-Hastings correction."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc import autodiff
from tfp_rmhmc.hamiltonian import Hamiltonian
from tfp_rmhmc.integrator import Dynamics, Proposal, Status
from tfp_rmhmc.kernel.groups import propose_in_groups
from tfp_rmhmc.kernel.results import UncalibratedRiemannianHMCResults
from tfp_rmhmc.metric import Metric
from tfp_rmhmc.state import LogDensity, StateLayout, is_compiled_by_xla, is_list_like, state_parts

__all__ = ['CalibratedKernel', 'UncalibratedKernel']


class UncalibratedKernel(tfp.mcmc.TransitionKernel):
    """Proposes the end of one trajectory; the subclass names the dynamics.

    Subclasses pass their constructor's arguments, raw, as `parameters`: `copy` and TFP's wrappers rebuild the kernel from
    them.
    """

    def __init__(self, dynamics: Dynamics, parameters: dict[str, Any]):
        self._dynamics = dynamics
        self._parameters = parameters
        if not callable(self.target_log_prob_fn):
            raise TypeError(f'`target_log_prob_fn` must be callable, got {self.target_log_prob_fn!r}.')
        if not isinstance(self.metric, Metric):
            raise TypeError(f'`metric` must be a `tfp_rmhmc.Metric`, got {self.metric!r}.')
        _check_step_size(self.step_size)
        _check_num_leapfrog_steps(self.num_leapfrog_steps)
        groups = parameters['compiled_groups']
        if groups is not None and (int(groups) != groups or groups < 1):
            raise ValueError(f'`compiled_groups` must be a positive integer or None, got {groups!r}.')
        if not parameters['store_parameters_in_results'] and any(
            isinstance(x, tf.Variable) for x in tf.nest.flatten([self.step_size, self.num_leapfrog_steps])
        ):
            warnings.warn(
                'Please use constants, not `tf.Variable`s, for `step_size` and `num_leapfrog_steps`, or set '
                '`store_parameters_in_results=True`.',
                stacklevel=4,
            )

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments, as they were given."""
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
    def num_leapfrog_steps(self) -> Any:
        """As given."""
        return self._parameters['num_leapfrog_steps']

    @property
    def metric(self) -> Metric:
        """The metric's description; it is bound to the target in each transition."""
        return self._parameters['metric']

    @property
    def name(self) -> str:
        """As given, or the class's name."""
        return self._parameters['name'] or type(self).__name__

    @property
    def is_calibrated(self) -> bool:
        return False

    @property
    def experimental_shard_axis_names(self) -> Any:
        """As given; a dense metric couples all parts, so sharded transitions are refused."""
        return self._parameters['experimental_shard_axis_names']

    def experimental_with_shard_axes(self, shard_axis_names: Any) -> UncalibratedKernel:
        """A copy with other shard axes."""
        return self.copy(experimental_shard_axis_names=shard_axis_names)

    def bootstrap_results(self, init_state: Any) -> UncalibratedRiemannianHMCResults:
        """Results for the start of a chain. Cost: one value and one gradient."""
        with tf.name_scope(f'{self.name}.bootstrap_results'):
            parts = self._parts_of(init_state)
            density = LogDensity.at_state(self.target_log_prob_fn, parts)
            layout = density.layout
            log_prob, gradient = autodiff.value_and_gradient(density, layout.flatten(parts))
            zeros = [tf.zeros_like(part) for part in parts]
            none = tf.zeros_like(log_prob, dtype=tf.int32)
            store = self._parameters['store_parameters_in_results']
            convert = lambda x: tf.convert_to_tensor(x, dtype=log_prob.dtype, name='step_size')  # noqa: E731
            return UncalibratedRiemannianHMCResults(
                log_acceptance_correction=tf.zeros_like(log_prob),
                target_log_prob=log_prob,
                grads_target_log_prob=layout.unflatten(gradient),
                initial_momentum=zeros,
                final_momentum=zeros,
                step_size=tf.nest.map_structure(convert, self.step_size) if store else [],
                num_leapfrog_steps=tf.convert_to_tensor(self.num_leapfrog_steps, tf.int32) if store else [],
                seed=tf.zeros([2], tf.int32),  # room for one_step's seed
                initial_velocity=zeros,
                final_velocity=zeros,
                energy=-log_prob,
                status=none + int(Status.OK),
                has_divergence=tf.zeros_like(log_prob, dtype=tf.bool),
                solver_iterations=none,
                solver_residual=tf.zeros_like(log_prob),
                num_metric_evaluations=none,
            )

    def one_step(
        self, current_state: Any, previous_kernel_results: UncalibratedRiemannianHMCResults, seed: Any = None
    ) -> tuple[Any, UncalibratedRiemannianHMCResults]:
        """One trajectory from `current_state`; see the class for what is drawn and integrated."""
        with tf.name_scope(f'{self.name}.one_step'):
            if self.experimental_shard_axis_names is not None:
                raise ValueError(
                    '`experimental_shard_axis_names` must be None: a metric couples all coordinates of the state; '
                    f'got {self.experimental_shard_axis_names!r}.'
                )
            if self._parameters['store_parameters_in_results']:
                step_size = previous_kernel_results.step_size
                num_steps = previous_kernel_results.num_leapfrog_steps
            else:
                step_size, num_steps = self.step_size, self.num_leapfrog_steps
            parts = self._parts_of(current_state)
            layout = StateLayout.of(parts, previous_kernel_results.target_log_prob)
            hamiltonian = Hamiltonian(LogDensity(self.target_log_prob_fn, layout), self.metric)
            seed = tfp.random.sanitize_seed(seed)
            arguments = (
                hamiltonian,
                layout.flatten(parts),
                layout.flat_step_size(step_size, parts),
                tf.convert_to_tensor(num_steps, tf.int32),
                seed,
            )
            most_groups = self._parameters['compiled_groups']
            if most_groups is None or tf.executing_eagerly() or is_compiled_by_xla():
                proposal = self._dynamics.propose(*arguments)
            else:
                proposal = propose_in_groups(self._dynamics, *arguments, most_groups)
            return self._unpack(current_state, layout, proposal, previous_kernel_results, seed)

    def _parts_of(self, state: Any) -> list[tf.Tensor]:
        parts = state_parts(state)
        if self._parameters['state_gradients_are_stopped']:
            parts = [tf.stop_gradient(part) for part in parts]
        return parts

    def _unpack(
        self,
        current_state: Any,
        layout: StateLayout,
        proposal: Proposal,
        previous: UncalibratedRiemannianHMCResults,
        seed: tf.Tensor,
    ) -> tuple[Any, UncalibratedRiemannianHMCResults]:
        """The proposal in the caller's structure."""
        next_parts = layout.unflatten(proposal.position)
        if self._parameters['state_gradients_are_stopped']:
            next_parts = [tf.stop_gradient(part) for part in next_parts]
        has_divergence = tf.equal(proposal.status, Status.DIVERGED) | tf.equal(proposal.status, Status.NON_FINITE)
        # `_replace`, not a new tuple: parameters must stay the same objects, or the accept step would choose between
        # two scalars for each chain.
        results = previous._replace(
            log_acceptance_correction=proposal.log_acceptance_correction,
            target_log_prob=proposal.log_prob,
            grads_target_log_prob=layout.unflatten(proposal.gradient),
            initial_momentum=layout.unflatten(proposal.initial_momentum),
            final_momentum=layout.unflatten(proposal.final_momentum),
            seed=seed,
            initial_velocity=layout.unflatten(proposal.initial_velocity),
            final_velocity=layout.unflatten(proposal.final_velocity),
            energy=proposal.energy,
            status=proposal.status,
            has_divergence=has_divergence,
            solver_iterations=proposal.iterations,
            solver_residual=proposal.residual,
            num_metric_evaluations=proposal.metric_evaluations,
        )
        next_state = tf.nest.pack_sequence_as(current_state, next_parts) if is_list_like(current_state) else next_parts[0]
        return next_state, results


class CalibratedKernel(tfp.mcmc.TransitionKernel):
    """`MetropolisHastings` around an uncalibrated kernel, with that kernel's parameters."""

    def __init__(self, uncalibrated: UncalibratedKernel):
        self._impl = tfp.mcmc.MetropolisHastings(uncalibrated, name=uncalibrated.name)
        self._parameters = dict(uncalibrated.parameters)

    @property
    def _uncalibrated(self) -> UncalibratedKernel:
        return self._impl.inner_kernel

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments, as they were given."""
        return self._parameters

    @property
    def target_log_prob_fn(self) -> Callable[..., tf.Tensor]:
        """The log density that is sampled from."""
        return self._uncalibrated.target_log_prob_fn

    @property
    def step_size(self) -> Any:
        """As given."""
        return self._uncalibrated.step_size

    @property
    def num_leapfrog_steps(self) -> Any:
        """As given."""
        return self._uncalibrated.num_leapfrog_steps

    @property
    def metric(self) -> Metric:
        """The metric's description."""
        return self._uncalibrated.metric

    @property
    def name(self) -> str:
        """As given, or the class's name."""
        return self._uncalibrated.name

    @property
    def is_calibrated(self) -> bool:
        """Whether the accept step is exact, which depends on the dynamics."""
        return self._uncalibrated._dynamics.is_exact

    @property
    def experimental_shard_axis_names(self) -> Any:
        """As given."""
        return self._uncalibrated.experimental_shard_axis_names

    def experimental_with_shard_axes(self, shard_axis_names: Any) -> CalibratedKernel:
        """A copy with other shard axes."""
        return self.copy(experimental_shard_axis_names=shard_axis_names)

    def bootstrap_results(self, init_state: Any) -> Any:
        """Results for the start of a chain, in the shape of `MetropolisHastings`'s."""
        return self._impl.bootstrap_results(init_state)

    def one_step(self, current_state: Any, previous_kernel_results: Any, seed: Any = None) -> tuple[Any, Any]:
        """One trajectory and its accept step."""
        return self._impl.one_step(current_state, previous_kernel_results, seed=seed)


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


def _check_num_leapfrog_steps(num_leapfrog_steps: Any) -> None:
    if isinstance(num_leapfrog_steps, tf.Variable):
        return
    static = tf.get_static_value(tf.convert_to_tensor(num_leapfrog_steps))
    if static is None:
        return
    if static.ndim > 0 or int(static) != static or static < 1:
        raise ValueError(f'`num_leapfrog_steps` must be a positive integer, got {num_leapfrog_steps!r}.')
