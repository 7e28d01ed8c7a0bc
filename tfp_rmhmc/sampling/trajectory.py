"""Trajectories of random length, so that no period of the target can resonate with them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.diagnostic import find_result
from tfp_rmhmc.noise import split_seed

__all__ = ['RandomTrajectoryLength']


class RandomTrajectoryLength(tfp.mcmc.TransitionKernel):
    """Draws each transition's number of steps: `ceil(u * mean_length / step_size)` with u uniform on (1/2, 3/2).

    The draw is independent of the state and the same for all chains, so it leaves any target invariant. On a Gaussian in
    its own metric a trajectory of length t correlates by cos(t); over this range that averages to zero for a `mean_length`
    of 2 pi, so consecutive draws are uncorrelated.

    Args:
      inner_kernel: with results of `MetropolisHastings`'s shape and `store_parameters_in_results=True`.
      mean_length: integration time, in units of the step size's.
      max_steps: bound on the number of steps.
    """

    def __init__(self, inner_kernel: tfp.mcmc.TransitionKernel, mean_length: float, max_steps: int = 200):
        self._parameters = {'inner_kernel': inner_kernel, 'mean_length': mean_length, 'max_steps': max_steps}

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return self._parameters

    @property
    def inner_kernel(self) -> tfp.mcmc.TransitionKernel:
        """The kernel whose steps are counted."""
        return self._parameters['inner_kernel']

    @property
    def is_calibrated(self) -> bool:
        return self.inner_kernel.is_calibrated

    def bootstrap_results(self, init_state: Any) -> Any:
        """The inner kernel's."""
        return self.inner_kernel.bootstrap_results(init_state)

    def one_step(self, current_state: Any, previous_kernel_results: Any, seed: Any = None) -> tuple[Any, Any]:
        """One inner transition with a fresh number of steps."""
        length_seed, inner_seed = split_seed(tfp.random.sanitize_seed(seed))
        step_size = find_result(previous_kernel_results, 'step_size')
        bits = tf.random.stateless_uniform([], length_seed, maxval=2**20, dtype=tf.int32)
        fraction = (tf.cast(bits, step_size.dtype) + 0.5) / 2**20
        steps = tf.math.ceil((0.5 + fraction) * self._parameters['mean_length'] / step_size)
        max_steps = tf.cast(self._parameters['max_steps'], steps.dtype)
        num_steps = tf.cast(tf.clip_by_value(steps, tf.ones_like(steps), max_steps), tf.int32)
        accepted = previous_kernel_results.accepted_results._replace(num_leapfrog_steps=num_steps)
        return self.inner_kernel.one_step(
            current_state, previous_kernel_results._replace(accepted_results=accepted), seed=inner_seed
        )
