"""Trajectories of groups of chains, compiled once and run beside each other."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian
from tfp_rmhmc.integrator import Integrator, Proposal, propose
from tfp_rmhmc.noise import split_seed

__all__ = ['largest_division', 'propose_in_groups']


def largest_division(num_chains: int, most_groups: int) -> int:
    """The largest number of equal groups, up to `most_groups`, that `num_chains` can be divided into."""
    return max(groups for groups in range(1, most_groups + 1) if num_chains % groups == 0)


def propose_in_groups(most_groups: int, integrator: Integrator, hamiltonian: Hamiltonian, *arguments: Any) -> Proposal:
    """`propose` with the chains, the first dimension of the position, divided into equal groups.

    A program of XLA's runs on one core of a CPU. The groups are calls of one program, and a graph runs these calls on as
    many cores as there are. Each group has a seed of its own.

    Args:
      most_groups: there are as many groups as divide the chains equally, at most these.
      integrator, hamiltonian: as in `propose`.
      *arguments: position, step size, number of steps, seed and what is known of the position, as in `propose`.
    """
    position, step_size, num_steps, seed, known = arguments
    compiled = tf.function(
        lambda *arguments: propose(integrator, hamiltonian, *arguments), autograph=False, jit_compile=True
    )
    num_chains = (position.shape[0] if position.shape.rank > 1 else None) or 1  # unknown, or one chain: one group
    num_groups = largest_division(num_chains, most_groups)
    if num_groups == 1:
        return compiled(position, step_size, num_steps, seed, known)

    def grouped(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, tf.concat([[num_groups, -1], tf.shape(x)[1:]], axis=0))

    positions = tf.ensure_shape(grouped(position), [num_groups, num_chains // num_groups, *position.shape[1:]])
    steps = grouped(step_size) if step_size.shape.rank > 0 else tf.fill([num_groups], step_size)
    seeds = []
    for _ in range(num_groups):
        group_seed, seed = split_seed(seed)
        seeds.append(group_seed)
    known = tf.nest.map_structure(grouped, known)
    first_known = tf.nest.map_structure(lambda x: x[0], known)
    outputs = compiled.get_concrete_function(positions[0], steps[0], num_steps, seeds[0], first_known).structured_outputs
    # A loop with one call in it, not a call for each group: TensorFlow would compile each.
    proposals = tf.map_fn(
        lambda group: compiled(group[0], group[1], num_steps, group[2], group[3]),
        (positions, steps, tf.stack(seeds), known),
        fn_output_signature=tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), outputs),
        parallel_iterations=num_groups,
    )
    return tf.nest.map_structure(lambda x: tf.reshape(x, [num_chains, *x.shape[2:]]), proposals)
