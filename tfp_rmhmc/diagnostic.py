"""Reading kernel results through any stack of wrappers: trace functions and velocity getters."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ['default_trace_fn', 'find_result', 'initial_velocity_getter_fn', 'proposed_velocity_getter_fn']

# Where TFP's wrappers keep the results of the kernel that they wrap.
_NESTS = ('inner_results', 'accepted_results')


def find_result(kernel_results: Any, name: str) -> Any:
    """The field `name` of the innermost results that have it, or None: what a trace function of a wrapped kernel needs."""
    for nest in _NESTS:
        if hasattr(kernel_results, nest):
            found = find_result(getattr(kernel_results, nest), name)
            if found is not None:
                return found
    return getattr(kernel_results, name, None)


def default_trace_fn(state: Any, kernel_results: Any) -> dict[str, tf.Tensor]:
    """What one usually wants to know of each draw, under the keys of TFP's `default_hmc_trace_fn` and some more.

    Use as `tfp.mcmc.sample_chain(..., trace_fn=tfp_rmhmc.default_trace_fn)`, below any wrappers.

    Returns:
      A dict of `[batch...]` tensors: `target_log_prob`, `log_accept_ratio`, `is_accepted`, `diverging`, `status` (of the
      proposal, whether accepted or not), `energy` (at the trajectory's start), `num_metric_evaluations`,
      `solver_iterations`; and `step_size`, where it is stored in the results.
    """
    del state
    proposed = find_result(kernel_results, 'proposed_results')
    log_accept_ratio = find_result(kernel_results, 'log_accept_ratio')
    trace = {
        'target_log_prob': find_result(kernel_results, 'target_log_prob'),
        'log_accept_ratio': log_accept_ratio,
        'is_accepted': find_result(kernel_results, 'is_accepted'),
        'diverging': proposed.has_divergence,
        'energy': proposed.energy,
        'status': proposed.status,
        'num_metric_evaluations': proposed.num_metric_evaluations,
        'solver_iterations': proposed.solver_iterations,
    }
    step_size = find_result(kernel_results, 'step_size')
    if tf.is_tensor(step_size) or step_size:
        trace['step_size'] = step_size
    return trace


def initial_velocity_getter_fn(kernel_results: Any) -> Any:
    """`G^-1 p` at the proposed trajectory's start, for `GradientBasedTrajectoryLengthAdaptation`.

    Without it that wrapper takes the momentum for the velocity, which is wrong for any metric but the identity.
    """
    return _like_state(kernel_results, find_result(kernel_results, 'proposed_results').initial_velocity)


def proposed_velocity_getter_fn(kernel_results: Any) -> Any:
    """`G^-1 p` at the proposed trajectory's end, for `GradientBasedTrajectoryLengthAdaptation`."""
    return _like_state(kernel_results, find_result(kernel_results, 'proposed_results').final_velocity)


def _like_state(kernel_results: Any, parts: list[tf.Tensor]) -> Any:
    return tf.nest.pack_sequence_as(find_result(kernel_results, 'proposed_state'), parts)
