"""What a transition tells about itself."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ['UncalibratedRiemannianHMCResults']


class UncalibratedRiemannianHMCResults(NamedTuple):
    """The fields of TFP's `UncalibratedHamiltonianMonteCarloKernelResults`, and what a curved space adds.

    The next transition reads two of the fields that depend on the position, `target_log_prob` and `grads_target_log_prob`,
    and no others: `ReplicaExchangeMC` swaps states and refreshes only those two. The calibrated kernels keep this tuple
    twice, in `accepted_results` and in `proposed_results`; look for the status of a rejected proposal in the latter.
    Momenta, velocities and gradients have the shapes of the state parts, all other fields `[batch...]`.

    Attributes:
      log_acceptance_correction: what the accept step adds to the change of `target_log_prob`; -inf for a failed chain.
      target_log_prob: log density of the state.
      grads_target_log_prob: its gradient, a list of state parts.
      initial_momentum: p at the trajectory's start.
      final_momentum: p at its end.
      step_size: as given, if `store_parameters_in_results`, else `[]`.
      num_leapfrog_steps: likewise.
      seed: of the transition.
      initial_velocity: `G^-1 p` at the start, which `GradientBasedTrajectoryLengthAdaptation` needs.
      final_velocity: likewise at the end.
      energy: H at the trajectory's start: minus the log density of state and momentum.
      status: a `tfp_rmhmc.Status`, int32.
      has_divergence: whether the trajectory diverged or left the finite numbers; solver failures are not divergences.
      solver_iterations: of the whole trajectory, int32; 0 for an explicit one.
      solver_residual: the largest that a solve was left with, in units of the metric.
      num_metric_evaluations: factorisations of the metric, int32.
    """

    log_acceptance_correction: Any
    target_log_prob: Any
    grads_target_log_prob: Any
    initial_momentum: Any
    final_momentum: Any
    step_size: Any
    num_leapfrog_steps: Any
    seed: Any
    initial_velocity: Any
    final_velocity: Any
    energy: Any
    status: Any
    has_divergence: Any
    solver_iterations: Any
    solver_residual: Any
    num_metric_evaluations: Any
