"""Riemannian manifold HMC as a TFP kernel: any metric with any integrator that can use it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.argument import check_flag, check_instance, check_integer, shown, static_real
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.hamiltonian import Hamiltonian
from tfp_rmhmc.integrator import Integrator, Proposal, Status, propose
from tfp_rmhmc.kernel.base import RiemannianKernel, check_arguments, check_common, default_integrator
from tfp_rmhmc.kernel.groups import propose_in_groups
from tfp_rmhmc.kernel.results import UncalibratedRiemannianHMCResults
from tfp_rmhmc.metric import Evaluation, Metric, SoftAbsMetric
from tfp_rmhmc.noise import checked_seed, plain_seed
from tfp_rmhmc.state import StateLayout, is_list_like, state_parts
from tfp_rmhmc.xla import is_compiled_by_xla

__all__ = ['CalibratedKernel', 'RiemannianHMC', 'UncalibratedRiemannianHMC', 'with_signature_of']

# Of a trajectory: up to ten phases of each step are counted in int32.
_MAX_STEPS = 10**8


class _FixedLengthKernel(RiemannianKernel):
    """What the kernels with and without an accept step share."""

    @property
    def num_leapfrog_steps(self) -> Any:
        """As given."""
        return self._parameters['num_leapfrog_steps']


class UncalibratedRiemannianHMC(_FixedLengthKernel):
    """The proposal of `RiemannianHMC`, without its accept step; the arguments are the same."""

    # The name under which the constructor takes the integrator, and which integrators it takes: see `Integrator`.
    _integrator_argument: ClassVar[str] = 'integrator'
    _takes_explicit: ClassVar[bool | None] = None

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        step_size: Any,
        num_leapfrog_steps: Any,
        metric: Metric | None = None,
        integrator: Integrator | None = None,
        state_gradients_are_stopped: bool = False,
        store_parameters_in_results: bool = False,
        compiled_groups: int | None = None,
        experimental_shard_axis_names: Any = None,
        name: str | None = None,
    ):
        self._parameters = {
            'target_log_prob_fn': target_log_prob_fn,
            'step_size': step_size,
            'num_leapfrog_steps': num_leapfrog_steps,
            'metric': metric,
            self._integrator_argument: integrator,
            'state_gradients_are_stopped': state_gradients_are_stopped,
            'store_parameters_in_results': store_parameters_in_results,
            'compiled_groups': compiled_groups,
            'experimental_shard_axis_names': experimental_shard_axis_names,
            'name': name,
        }
        check_arguments(target_log_prob_fn, step_size, metric)
        self._metric = SoftAbsMetric() if metric is None else metric
        self._integrator = self._checked(integrator)
        _check_num_leapfrog_steps(num_leapfrog_steps)
        check_flag('state_gradients_are_stopped', state_gradients_are_stopped)
        check_flag('store_parameters_in_results', store_parameters_in_results)
        if compiled_groups is not None:
            check_integer('compiled_groups', compiled_groups, least=1)
        check_common(name, experimental_shard_axis_names)
        if not store_parameters_in_results and any(
            isinstance(x, tf.Variable) for x in tf.nest.flatten([step_size, num_leapfrog_steps])
        ):
            warnings.warn(
                'Please use constants, not `tf.Variable`s, for `step_size` and `num_leapfrog_steps`, or set '
                '`store_parameters_in_results=True`.',
                stacklevel=4,
            )

    @staticmethod
    def _default_integrator(metric: Metric) -> Integrator:
        """The integrator that is taken for this metric if none is given."""
        return default_integrator(metric)

    def _checked(self, integrator: Integrator | None) -> Integrator:
        """The integrator, or the default one; raises if it cannot be used."""
        if integrator is None:
            integrator = self._default_integrator(self._metric)
        check_instance(self._integrator_argument, integrator, Integrator, 'a `tfp_rmhmc.Integrator`')
        takes, is_explicit = self._takes_explicit, integrator.is_explicit
        if takes is not None and is_explicit is not None and takes != is_explicit:
            kind = 'explicit' if takes else 'implicit'
            raise TypeError(
                f'`{self._integrator_argument}` of {type(self).__name__} must be an {kind} integrator, got {integrator!r}; '
                'RiemannianHMC takes any.'
            )
        integrator.check_metric(self._metric)
        return integrator

    @property
    def is_calibrated(self) -> bool:
        return False

    def bootstrap_results(self, init_state: Any) -> UncalibratedRiemannianHMCResults:
        """Results for the start of a chain. Cost: one value and one gradient."""
        with tf.name_scope(f'{self.name}.bootstrap_results'):
            parts = self._parts_of(init_state, 'init_state')
            density = LogDensity.at_state(self.target_log_prob_fn, parts)
            layout = density.layout
            log_prob, gradient = self._first_evaluation(density, layout.flatten(parts))
            zeros = [tf.zeros_like(part) for part in parts]
            none = tf.zeros_like(log_prob, dtype=tf.int32)
            store = self._parameters['store_parameters_in_results']
            layout.flat_step_size(self.step_size, parts)  # raises if it does not fit the state
            return UncalibratedRiemannianHMCResults(
                log_acceptance_correction=tf.zeros_like(log_prob),
                target_log_prob=log_prob,
                grads_target_log_prob=layout.unflatten(gradient),
                initial_momentum=zeros,
                final_momentum=zeros,
                step_size=layout.stored_step_size(self.step_size) if store else [],
                num_leapfrog_steps=tf.cast(self.num_leapfrog_steps, tf.int32) if store else [],
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
            self._refuse_shards()
            if self._parameters['store_parameters_in_results']:
                step_size = previous_kernel_results.step_size
                num_steps = previous_kernel_results.num_leapfrog_steps
            else:
                step_size, num_steps = self.step_size, self.num_leapfrog_steps
            parts = self._parts_of(current_state)
            layout = StateLayout.of(parts, previous_kernel_results.target_log_prob)
            hamiltonian = Hamiltonian(LogDensity(self.target_log_prob_fn, layout), self.metric)
            seed = checked_seed(seed)
            arguments = (
                hamiltonian,
                layout.flatten(parts),
                layout.flat_step_size(step_size, parts),
                tf.cast(num_steps, tf.int32),
                seed,
                # The two that every wrapper keeps up to date, whatever it does to the state.
                Evaluation(
                    previous_kernel_results.target_log_prob, layout.flatten(previous_kernel_results.grads_target_log_prob)
                ),
            )
            most_groups = self._parameters['compiled_groups']
            if most_groups is None or tf.executing_eagerly() or is_compiled_by_xla():
                proposal = propose(self._integrator, *arguments)
            else:
                proposal = propose_in_groups(most_groups, self._integrator, *arguments)
            return self._unpack(current_state, layout, proposal, previous_kernel_results, seed)

    def _parts_of(self, state: Any, name: str = 'current_state') -> list[tf.Tensor]:
        parts = state_parts(state, name)
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
        ledger = proposal.ledger
        has_divergence = tf.equal(ledger.status, Status.DIVERGED) | tf.equal(ledger.status, Status.NON_FINITE)
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
            status=ledger.status,
            has_divergence=has_divergence,
            solver_iterations=ledger.iterations,
            solver_residual=ledger.residual,
            num_metric_evaluations=ledger.metric_evaluations,
        )
        next_state = tf.nest.pack_sequence_as(current_state, next_parts) if is_list_like(current_state) else next_parts[0]
        return next_state, results


class CalibratedKernel(_FixedLengthKernel):
    """`MetropolisHastings` around an uncalibrated kernel, with that kernel's arguments.

    A subclass names its `uncalibrated_class` and takes its signature by `with_signature_of`.
    """

    uncalibrated_class: ClassVar[type[UncalibratedRiemannianHMC]]

    def __init__(self, *args: Any, **kwargs: Any):
        uncalibrated = self.uncalibrated_class(*args, **kwargs)
        self._parameters = dict(uncalibrated.parameters)
        self._metric, self._integrator = uncalibrated.metric, uncalibrated.integrator
        # Not `inner_kernel`, by which wrappers would descend past the arguments of this kernel.
        self._impl = tfp.mcmc.MetropolisHastings(uncalibrated, name=self.name)

    @property
    def is_calibrated(self) -> bool:
        """Whether the accept step is exact, which depends on the integrator."""
        return self._integrator.is_exact

    def bootstrap_results(self, init_state: Any) -> Any:
        """Results for the start of a chain, in the shape of `MetropolisHastings`'s."""
        return self._impl.bootstrap_results(init_state)

    def one_step(self, current_state: Any, previous_kernel_results: Any, seed: Any = None) -> tuple[Any, Any]:
        """One trajectory and its accept step."""
        return self._impl.one_step(current_state, previous_kernel_results, seed=plain_seed(seed))


def with_signature_of(original: type, **renamed: str) -> Callable[[type], type]:
    """A class decorator: `help` and `inspect` show the signature of `original`'s constructor, with some names changed."""

    def decorate(cls: type) -> type:
        signature = inspect.signature(original)
        parameters = [p.replace(name=renamed.get(p.name, p.name)) for p in signature.parameters.values()]
        cls.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return cls

    return decorate


@with_signature_of(UncalibratedRiemannianHMC)
class RiemannianHMC(CalibratedKernel):
    """Riemannian manifold HMC: Hamiltonian Monte Carlo whose mass matrix G(q) depends on the position.

    Each transition draws a momentum from N(0, G(q)), follows the dynamics of
    `H(q, p) = -l(q) + 1/2 log det G(q) + 1/2 p' G(q)^-1 p` for some steps, and accepts or rejects the end so that the
    target stays invariant. Reference: Girolami and Calderhead 2011, "Riemann manifold Langevin and Hamiltonian Monte Carlo
    methods".

    Use it like `tfp.mcmc.HamiltonianMonteCarlo`, and in its place in every wrapper:

        kernel = tfp_rmhmc.RiemannianHMC(target_log_prob_fn, step_size=0.14, num_leapfrog_steps=25)
        draws = tfp.mcmc.sample_chain(1000, current_state, kernel=kernel, trace_fn=None, seed=(1, 2))

    A chain whose trajectory diverges, or whose equations cannot be solved, keeps its state, says why in
    `proposed_results.status`, and touches no other chain.

    Args:
      target_log_prob_fn: takes the state parts and returns the log density, `[batch...]`. Chains must be independent of
        each other. Most metrics differentiate it three times. (TensorFlow's third derivative of `x**2` at `x = 0` is NaN;
        write `tf.square(x)`.)
      step_size: a scalar, or a tensor that broadcasts with the state, or a list with one per state part. With a metric that
        follows the curvature, steps are in units of local standard deviations: 0.1 to 0.3 is usual.
      num_leapfrog_steps: the number of steps of a trajectory, a positive integer.
      metric: a `tfp_rmhmc.Metric`; by default `SoftAbsMetric()`.
      integrator: a `tfp_rmhmc.Integrator`; by default `SeparableLeapfrog()` where the metric is separable, else
        `MetricCoupling()`.
      state_gradients_are_stopped: whether to stop gradients through the state.
      store_parameters_in_results: whether step size and number of steps live in the kernel results, where adaptation
        wrappers find them.
      compiled_groups: if given, XLA compiles the trajectory inside a plain `tf.function`, for the chains in at most so many
        equal groups, which run on as many cores of a CPU as there are. 4 is a good number for hundreds of chains. The
        target must accept any number of chains. It has no effect in eager code, nor where XLA compiles the whole.
      experimental_shard_axis_names: must be None.
      name: for scopes in graphs.
    """

    uncalibrated_class = UncalibratedRiemannianHMC


def _check_num_leapfrog_steps(num_leapfrog_steps: Any) -> None:
    static = static_real('num_leapfrog_steps', num_leapfrog_steps, 'a positive integer')
    if static is None:
        return
    if static.ndim > 0 or not np.isfinite(static) or int(static) != static or static < 1:
        raise ValueError(f'`num_leapfrog_steps` must be a positive integer, got {shown(num_leapfrog_steps)}.')
    if static > _MAX_STEPS:
        raise ValueError(f'`num_leapfrog_steps` must be at most {_MAX_STEPS}, got {shown(num_leapfrog_steps)}.')
