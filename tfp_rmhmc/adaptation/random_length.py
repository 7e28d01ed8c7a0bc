"""Trajectories of random length, so that no period of the target can resonate with them."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.argument import check_instance, check_integer, check_positive, shown
from tfp_rmhmc.diagnostic import find_result, replace_result
from tfp_rmhmc.noise import checked_seed, split_seed

__all__ = ['LengthKernel', 'RandomTrajectoryLength', 'RandomTrajectoryLengthResults']


class RandomTrajectoryLengthResults(NamedTuple):
    """What `RandomTrajectoryLength` knows of a transition, all scalars.

    Attributes:
      inner_results: of the inner kernel.
      mean_length: the mean integration time.
      is_capped: whether the transition would have made more than `max_steps` steps.
    """

    inner_results: Any
    mean_length: tf.Tensor
    is_capped: tf.Tensor


class LengthKernel(tfp.mcmc.TransitionKernel):
    """What the kernels that set the number of steps of an inner kernel share."""

    def __init__(self, parameters: dict[str, Any]):
        check_instance('inner_kernel', parameters['inner_kernel'], tfp.mcmc.TransitionKernel, 'a TransitionKernel')
        check_integer('max_steps', parameters['max_steps'], least=1)
        self._parameters = parameters

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return self._parameters

    @property
    def inner_kernel(self) -> tfp.mcmc.TransitionKernel:
        """The kernel whose number of steps is set."""
        return self._parameters['inner_kernel']

    @property
    def is_calibrated(self) -> bool:
        return self.inner_kernel.is_calibrated

    def _inner_start(self, init_state: Any) -> tuple[Any, tf.DType]:
        """The inner kernel's first results, and the dtype of its step size."""
        inner = self.inner_kernel.bootstrap_results(init_state)
        step_size = find_result(inner, 'step_size')
        if not tf.nest.flatten(step_size) or not tf.is_tensor(find_result(inner, 'num_leapfrog_steps')):
            raise ValueError(
                '`inner_kernel` must have step size and number of steps in its results, by '
                f'`store_parameters_in_results=True`; got {shown(self.inner_kernel)}.'
            )
        return inner, tf.nest.flatten(step_size)[0].dtype

    def _transition(
        self, current_state: Any, inner_results: Any, length: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Any, Any, tf.Tensor]:
        """One inner transition whose length is random around `length`: state, inner results, and whether it was capped."""
        length_seed, inner_seed = split_seed(seed)
        step_size = step_size_of(inner_results)
        bits = tf.random.stateless_uniform([], length_seed, maxval=2**20, dtype=tf.int32)
        fraction = (tf.cast(bits, step_size.dtype) + 0.5) / 2**20
        steps = tf.math.ceil((0.5 + fraction) * tf.cast(length, step_size.dtype) / step_size)
        most = tf.cast(self._parameters['max_steps'], steps.dtype)
        num_steps = tf.cast(tf.clip_by_value(steps, tf.ones_like(steps), most), tf.int32)
        inner_results = replace_result(inner_results, 'num_leapfrog_steps', num_steps)
        state, inner_results = self.inner_kernel.one_step(current_state, inner_results, seed=inner_seed)
        return state, inner_results, steps > most


def step_size_of(inner_results: Any) -> tf.Tensor:
    """One number: the step size, or the mean of its entries where it differs between coordinates, chains or parts."""
    steps = tf.nest.flatten(find_result(inner_results, 'step_size'))
    return (
        steps[0]
        if len(steps) == 1 and steps[0].shape.rank == 0
        else tf.add_n([tf.reduce_mean(step) for step in steps]) / len(steps)
    )


class RandomTrajectoryLength(LengthKernel):
    """Draws each transition's number of steps: `ceil(u * mean_length / step_size)` with u uniform on (1/2, 3/2).

    The draw is independent of the state and the same for all chains, so it leaves any target invariant. On a Gaussian in
    its own metric a trajectory of length t correlates by cos(t). Over this range that averages to zero for a `mean_length`
    of 2 pi, so that consecutive draws are uncorrelated.

    Args:
      inner_kernel: a kernel with `num_leapfrog_steps` and `step_size` in its results (`store_parameters_in_results=True`):
        ours, or `tfp.mcmc.HamiltonianMonteCarlo`, also inside other wrappers.
      mean_length: the mean integration time, in the units of the step size.
      max_steps: the largest number of steps. Where it binds, `results.is_capped` says so.
    """

    def __init__(self, inner_kernel: tfp.mcmc.TransitionKernel, mean_length: Any, max_steps: int = 200):
        check_positive('mean_length', mean_length)
        super().__init__({'inner_kernel': inner_kernel, 'mean_length': mean_length, 'max_steps': max_steps})

    def bootstrap_results(self, init_state: Any) -> RandomTrajectoryLengthResults:
        """Results for the start of a chain."""
        inner, dtype = self._inner_start(init_state)
        return RandomTrajectoryLengthResults(inner, tf.cast(self._parameters['mean_length'], dtype), tf.constant(False))

    def one_step(
        self, current_state: Any, previous_kernel_results: RandomTrajectoryLengthResults, seed: Any = None
    ) -> tuple[Any, RandomTrajectoryLengthResults]:
        """One inner transition with a fresh number of steps."""
        seed = checked_seed(seed)
        mean_length = previous_kernel_results.mean_length
        state, inner, is_capped = self._transition(current_state, previous_kernel_results.inner_results, mean_length, seed)
        return state, RandomTrajectoryLengthResults(inner, mean_length, is_capped)
