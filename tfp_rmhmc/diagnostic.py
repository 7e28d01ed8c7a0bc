"""Reading kernel results through any stack of wrappers: trace functions and velocity getters."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfp_rmhmc.argument import shown

__all__ = [
    'default_trace_fn',
    'find_result',
    'initial_velocity_getter_fn',
    'proposed_velocity_getter_fn',
    'replace_result',
    'trace',
]

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


def replace_result(kernel_results: Any, name: str, value: Any) -> Any:
    """The results with the field `name` of the innermost results that have it replaced; raises if none has it."""
    for nest in _NESTS:
        inner = getattr(kernel_results, nest, None)
        if inner is not None and find_result(inner, name) is not None:
            return kernel_results._replace(**{nest: replace_result(inner, name, value)})
    return kernel_results._replace(**{name: value})


def trace(state: Any, kernel_results: Any) -> dict[str, tf.Tensor]:
    """What one usually wants to know of each transition, under ArviZ's names where ArviZ has one.

    Works for our kernels and for TFP's `HamiltonianMonteCarlo` and `NoUTurnSampler`, inside any wrappers.
    `sample_posterior` and the experiments keep these keys.

    Returns:
      A dict of `[batch...]` tensors: `lp` (log density), `acceptance_rate`, `log_accept_ratio`, `is_accepted`, `diverging`,
      `energy` (at the trajectory's start), `status` (of the proposal, whether accepted or not), `metric_evaluations`,
      `solver_iterations`; `n_steps` and `step_size` where the results hold them.
    """
    del state
    log_prob = find_result(kernel_results, 'target_log_prob')
    log_accept_ratio = find_result(kernel_results, 'log_accept_ratio')
    if not tf.is_tensor(log_prob) or not tf.is_tensor(log_accept_ratio):
        raise TypeError(
            f'`kernel_results` must be those of an HMC kernel with an accept step, got {shown(kernel_results)}.'
        )
    none = tf.zeros_like(log_prob, dtype=tf.int32)
    kept = {
        'lp': log_prob,
        'acceptance_rate': tf.exp(tf.minimum(log_accept_ratio, 0.0)),
        'log_accept_ratio': log_accept_ratio,
        'is_accepted': find_result(kernel_results, 'is_accepted'),
    }
    proposed = find_result(kernel_results, 'proposed_results')
    num_steps = find_result(kernel_results, 'leapfrogs_taken')

    def counted(name: str) -> tf.Tensor:
        found = find_result(kernel_results, name)
        return none if found is None else found

    if num_steps is not None:  # RiemannianNUTS and NoUTurnSampler
        kept |= {
            'diverging': find_result(kernel_results, 'has_divergence'),
            'energy': find_result(kernel_results, 'energy'),
            'status': counted('status'),
            'metric_evaluations': counted('num_metric_evaluations'),
            'solver_iterations': counted('solver_iterations'),
        }
    elif hasattr(proposed, 'status'):  # ours
        kept |= {
            'diverging': proposed.has_divergence,
            'energy': proposed.energy,
            'status': proposed.status,
            'metric_evaluations': proposed.num_metric_evaluations,
            'solver_iterations': proposed.solver_iterations,
        }
    else:  # HamiltonianMonteCarlo
        kept |= {
            'diverging': log_accept_ratio < -1000.0,
            'energy': _kinetic_energy(proposed.final_momentum, log_prob.shape.rank) - proposed.target_log_prob,
            'status': none,
            'metric_evaluations': none,
            'solver_iterations': none,
        }
    if num_steps is None:
        num_steps = find_result(kernel_results, 'num_leapfrog_steps')
    step_size = getattr(kernel_results, 'new_step_size', None)
    if step_size is None:
        step_size = find_result(kernel_results, 'step_size')
    for name, value in [('n_steps', num_steps), ('step_size', step_size)]:
        if tf.is_tensor(value):
            kept[name] = tf.broadcast_to(value, tf.shape(log_prob)) if value.shape.rank == 0 else value
        elif value:  # a list with one for each state part; an empty one says that none is stored
            kept[name] = value
    return kept


def default_trace_fn(state: Any, kernel_results: Any) -> dict[str, tf.Tensor]:
    """What one usually wants to know of each draw: use as `sample_chain(..., trace_fn=tfp_rmhmc.default_trace_fn)`.

    Returns:
      A dict of `[batch...]` tensors with ArviZ's names where ArviZ has one: `lp` (log density), `acceptance_rate`,
      `log_accept_ratio`, `is_accepted`, `diverging`, `energy` (at the trajectory's start), `status` (of the proposal,
      whether accepted or not; see `Status`), `metric_evaluations`, `solver_iterations`; `n_steps` and `step_size`, where
      the results hold them; and `target_log_prob`, TFP's name for `lp`.
    """
    kept = trace(state, kernel_results)
    return kept | {'target_log_prob': kept['lp']}


def initial_velocity_getter_fn(kernel_results: Any) -> Any:
    """`G^-1 p` at the proposed trajectory's start, for `GradientBasedTrajectoryLengthAdaptation`.

    Without it that wrapper takes the momentum for the velocity, which is wrong for any metric but the identity.
    """
    return _proposed_velocity(kernel_results, 'initial_velocity')


def proposed_velocity_getter_fn(kernel_results: Any) -> Any:
    """`G^-1 p` at the proposed trajectory's end, for `GradientBasedTrajectoryLengthAdaptation`."""
    return _proposed_velocity(kernel_results, 'final_velocity')


def _proposed_velocity(kernel_results: Any, name: str) -> Any:
    """A velocity of the proposal, in the structure of the state."""
    parts = getattr(find_result(kernel_results, 'proposed_results'), name, None)
    state = find_result(kernel_results, 'proposed_state')
    if parts is None or state is None:
        raise TypeError(f'`kernel_results` must be those of a Riemannian HMC kernel, got {shown(kernel_results)}.')
    return tf.nest.pack_sequence_as(state, parts)


def _kinetic_energy(momentum: list[tf.Tensor], batch_rank: int) -> tf.Tensor:
    """`1/2 p'p: [batch...]` of momentum parts `[batch..., event...]`, under the identity metric."""
    squares = [tf.reduce_sum(tf.square(p), axis=list(range(batch_rank, p.shape.rank))) for p in momentum]
    return 0.5 * tf.add_n(squares)
