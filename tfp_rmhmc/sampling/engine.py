"""Compiled transitions whose metric, step size and lengths are inputs: one program serves a whole warm-up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.diagnostic import trace
from tfp_rmhmc.kernel import RiemannianHMC
from tfp_rmhmc.metric import LearnedMetric, ScaleStructure
from tfp_rmhmc.noise import not_constant, split_seed

__all__ = ['Engine', 'Stretch', 'Tuning']

# Constants of dual averaging, those of Hoffman and Gelman 2014, section 3.2.
_SHRINKAGE, _DELAY, _DECAY = 0.05, 10.0, 0.75


# What the transitions between two draws have in common; of everything else the last one's counts.
_COMBINED: dict[str, Any] = {
    'n_steps': np.sum,
    'metric_evaluations': np.sum,
    'solver_iterations': np.sum,
    'acceptance_rate': np.mean,
    'is_accepted': np.any,
    'diverging': np.any,
    'is_capped': np.any,
    'status': np.max,
}


class Tuning(NamedTuple):
    """The state of a step size's adaptation by dual averaging, all scalars.

    Attributes:
      log_step: that is tried next.
      log_average: of those that were tried, which is what an adaptation ends with.
      error: the sum of what the acceptance lacked.
      count: transitions.
      centre: to which steps are drawn.
      target: the acceptance probability that is aimed at.
    """

    log_step: Any
    log_average: Any
    error: Any
    count: Any
    centre: Any
    target: Any

    @classmethod
    def begin(cls, step_size: float, target: float) -> Tuning:
        """An adaptation that starts from a step size, and tries longer ones first."""
        log_step = math.log(step_size)
        return cls(log_step, log_step, 0.0, 0.0, log_step + math.log(10.0), target)

    @classmethod
    def fixed(cls, step_size: float) -> Tuning:
        """For transitions in which nothing is adapted."""
        log_step = math.log(step_size)
        return cls(log_step, log_step, 0.0, 0.0, 0.0, 0.0)

    @property
    def step_size(self) -> float:
        """What the adaptation ends with."""
        return float(np.exp(self.log_average))

    def updated(self, acceptance: tf.Tensor) -> Tuning:
        """After one transition with a mean acceptance probability."""
        count = self.count + 1.0
        error = self.error + self.target - acceptance
        log_step = self.centre - tf.sqrt(count) / _SHRINKAGE * error / (count + _DELAY)
        weight = count**-_DECAY
        log_average = weight * log_step + (1.0 - weight) * self.log_average
        return self._replace(log_step=log_step, log_average=log_average, error=error, count=count)


class Stretch(NamedTuple):
    """Some transitions.

    Attributes:
      states: parts, each `[n, chains, event...]`.
      scores: gradients of the log density, flat, `[n, chains, D]`.
      trace: dict of arrays, `[n, chains]`.
      tuning: of the step size, after them.
    """

    states: list[np.ndarray]
    scores: np.ndarray
    trace: dict[str, np.ndarray]
    tuning: Tuning

    @property
    def flat(self) -> np.ndarray:
        """States as `[n, chains, D]`."""
        return np.concatenate([np.reshape(part, [*part.shape[:2], -1]) for part in self.states], axis=-1)

    def thinned(self, every: int) -> Stretch:
        """Every so many transitions as one, with what they cost and what went wrong in any of them."""
        if every == 1:
            return self

        def combined(key: str, values: np.ndarray) -> np.ndarray:
            groups = np.reshape(values, [-1, every, *values.shape[1:]])
            return _COMBINED[key](groups, axis=1) if key in _COMBINED else groups[:, -1]

        last = slice(every - 1, None, every)
        traced = {key: combined(key, value) for key, value in self.trace.items()}
        return Stretch([part[last] for part in self.states], self.scores[last], traced, self.tuning)


class _Adapted(NamedTuple):
    inner_results: Any
    tuning: Tuning
    index: tf.Tensor


class _TunedKernel(tfp.mcmc.TransitionKernel):
    """`RiemannianHMC` with random lengths around one that is given for each transition, and a step size that may adapt.

    The random numbers of a transition depend on the run's seed and the transition's number alone, so that the draws do not
    depend on how a run is cut into pieces.
    """

    def __init__(self, kernel: RiemannianHMC, lengths: Any, first: Any, seed: Any, adapts: Any, most: Any):
        self._kernel = kernel
        self._lengths, self._first, self._seed = lengths, first, seed
        self._adapts, self._most = adapts, most
        self.parameters: dict[str, Any] = {}

    @property
    def is_calibrated(self) -> bool:
        return True

    def bootstrap_results(self, init_state: Any) -> Any:
        raise RuntimeError('The results of an earlier stretch are needed.')

    def one_step(self, current_state: Any, previous_kernel_results: _Adapted, seed: Any = None) -> tuple[Any, _Adapted]:
        del seed
        inner, tuning, index = previous_kernel_results
        number = self._first + index
        length_seed, seed = split_seed(self._seed + tf.stack([tf.zeros_like(number), number]))
        step_size = tf.exp(tuning.log_step)
        bits = tf.random.stateless_uniform([], tf.abs(length_seed), maxval=2**20, dtype=tf.int32)
        fraction = (tf.cast(bits, step_size.dtype) + 0.5) / 2**20
        steps = tf.math.ceil((0.5 + fraction) * tf.gather(self._lengths, index) / step_size)
        num_steps = tf.cast(tf.clip_by_value(steps, tf.ones_like(steps), self._most), tf.int32)
        accepted = inner.accepted_results._replace(step_size=step_size, num_leapfrog_steps=num_steps)
        state, inner = self._kernel.one_step(current_state, inner._replace(accepted_results=accepted), seed=seed)
        acceptance = tf.reduce_mean(tf.exp(tf.minimum(inner.log_accept_ratio, 0.0)))
        adapted = tuning.updated(tf.where(tf.math.is_nan(acceptance), tf.zeros_like(acceptance), acceptance))
        tuning = tf.nest.map_structure(lambda new, old: tf.where(self._adapts, new, old), adapted, tuning)
        return state, _Adapted(inner, tuning, index + 1)


class Engine:
    """Makes transitions of `RiemannianHMC` with a learned metric of one structure.

    Args:
      target_log_prob_fn: of the state parts.
      structure: of the metric; its parameters are an input.
      num_transitions: of each stretch.
      jit_compile: whether XLA compiles it.
    """

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        structure: ScaleStructure,
        num_transitions: int,
        jit_compile: bool,
    ):
        self._target_log_prob_fn = target_log_prob_fn
        self._structure = structure
        self._num_transitions = num_transitions
        self._jit_compile = jit_compile
        self._program: Callable[..., Any] | None = None

    @property
    def has_program(self) -> bool:
        """Whether it has been traced."""
        return self._program is not None

    def run(
        self,
        start: list[Any],
        parameters: list[dict[str, np.ndarray]],
        tuning: Tuning,
        lengths: np.ndarray,
        first: int,
        seed: tf.Tensor,
        adapts: bool,
        max_steps: int,
    ) -> Stretch:
        """Transitions from a state, as many as there are lengths.

        Args:
          start: state parts, `[chains, event...]`.
          parameters: of the metric.
          tuning: of the step size.
          lengths: mean integration time of each transition.
          first: number of the first transition, on which the random numbers depend.
          seed: int32[2].
          adapts: whether the step size does.
          max_steps: of a trajectory.
        """
        pieces: list[Stretch] = []
        for begin in range(0, len(lengths), self._num_transitions):
            piece = self._piece(
                start,
                parameters,
                tuning,
                lengths[begin : begin + self._num_transitions],
                first + begin,
                seed,
                adapts,
                max_steps,
            )
            start, tuning = [part[-1] for part in piece.states], piece.tuning
            pieces.append(piece)
        if len(pieces) == 1:
            return pieces[0]
        return Stretch(
            [np.concatenate(parts) for parts in zip(*[piece.states for piece in pieces], strict=True)],
            np.concatenate([piece.scores for piece in pieces]),
            {key: np.concatenate([piece.trace[key] for piece in pieces]) for key in pieces[0].trace},
            tuning,
        )

    def _piece(
        self,
        start: list[Any],
        parameters: list[dict[str, np.ndarray]],
        tuning: Tuning,
        lengths: np.ndarray,
        first: int,
        seed: tf.Tensor,
        adapts: bool,
        max_steps: int,
    ) -> Stretch:
        """At most `num_transitions`: what one call of the program makes."""
        dtype = tf.convert_to_tensor(start[0]).dtype
        kept = len(lengths)
        padded = np.concatenate([lengths, np.full(self._num_transitions - kept, lengths[-1])])
        arguments = (
            [tf.convert_to_tensor(part) for part in start],
            tf.nest.map_structure(lambda x: tf.constant(x, dtype), parameters),
            Tuning(*[tf.constant(x, dtype) for x in tuning]),
            tf.constant(padded, dtype),
            tf.constant(first, tf.int32),
            tf.convert_to_tensor(seed, tf.int32),
            tf.constant(adapts),
            tf.constant(max_steps, dtype),
        )
        if self._program is None:
            # A concrete function: `tf.function` would look at all arguments again in each call.
            self._program = tf.function(
                self._transitions, autograph=False, jit_compile=self._jit_compile
            ).get_concrete_function(*arguments)
        states, scores, traced, tunings = self._program(*arguments)
        return Stretch(
            [part.numpy()[:kept] for part in states],
            scores.numpy()[:kept],
            {key: value.numpy()[:kept] for key, value in traced.items()},
            Tuning(*[float(x[kept - 1]) for x in tunings]),
        )

    def _transitions(
        self, start: Any, parameters: Any, tuning: Tuning, lengths: Any, first: Any, seed: Any, adapts: Any, most: Any
    ) -> Any:
        if self._jit_compile:
            inputs = (start, parameters, tuning, lengths)
            start, parameters, tuning, lengths = tf.nest.pack_sequence_as(inputs, not_constant(*tf.nest.flatten(inputs)))
        kernel = RiemannianHMC(
            self._target_log_prob_fn,
            tf.exp(tuning.log_step),
            1,
            metric=LearnedMetric(self._structure, parameters),
            store_parameters_in_results=True,
        )
        tuned = _TunedKernel(kernel, lengths, first, seed, adapts, most)

        def kept(state: Any, results: _Adapted) -> Any:
            inner = results.inner_results
            gradients = inner.accepted_results.grads_target_log_prob
            flat = tf.concat([tf.reshape(x, [tf.shape(x)[0], -1]) for x in gradients], axis=-1)
            is_capped = tf.cast(inner.accepted_results.num_leapfrog_steps, most.dtype) >= most
            shown = trace(state, inner)
            return flat, shown | {'is_capped': tf.broadcast_to(is_capped, tf.shape(shown['lp']))}, results.tuning

        states, (scores, traced, tunings) = tfp.mcmc.sample_chain(
            self._num_transitions,
            start,
            previous_kernel_results=_Adapted(kernel.bootstrap_results(start), tuning, tf.constant(0)),
            kernel=tuned,
            trace_fn=kept,
            seed=seed,
        )
        return states, scores, traced, tunings
