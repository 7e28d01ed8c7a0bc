"""Transitions of a kernel in compiled chunks; how a run is cut into chunks does not change its draws."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.diagnostic import find_result, trace
from tfp_rmhmc.noise import split_seed
from tfp_rmhmc.sampling.compilation import Compiler

__all__ = ['Chunk', 'Window', 'joined']


class Chunk(NamedTuple):
    """Some transitions: states, each part `[n, chains, ...]`, and traces `[n, chains]`."""

    states: list[np.ndarray]
    trace: dict[str, np.ndarray]


def joined(chunks: list[Chunk]) -> Chunk:
    """All of some chunks, at least one, in one."""
    return Chunk(
        [np.concatenate(parts) for parts in zip(*[chunk.states for chunk in chunks], strict=True)],
        {key: np.concatenate([chunk.trace[key] for chunk in chunks]) for key in chunks[0].trace},
    )


class Window:
    """Transitions of one kernel from one state.

    The random numbers of a transition depend on the seed and the transition's number alone, and its kernel results are
    handed on, so that draws depend neither on the chunks nor on interruptions between them.

    Args:
      kernel: the kernel that makes the transitions.
      start: state parts that the first transition starts from.
      seed: int32[2].
      compiler: of its programs.
    """

    def __init__(self, kernel: tfp.mcmc.TransitionKernel, start: list[tf.Tensor], seed: tf.Tensor, compiler: Compiler):
        self._kernel, self._seed, self._compiler = kernel, seed, compiler
        self._state, self._results, self._done = start, None, 0
        self._programs: dict[tuple[int, bool], Callable[..., Any]] = {}

    def run(self, count: int, size: int) -> Chunk:
        """The next `count` transitions, at most `size`, by a program that is compiled once for each `size`."""
        if self._results is None:
            self._results = self._first_results()
        number = tf.constant([self._done, count])
        arguments = (self._state, self._results, number, self._seed)
        (states, traced), state, results = self._compiler.call(
            lambda is_xla: self._program(size, is_xla, arguments)(*arguments)
        )
        chunk = Chunk(
            [part.numpy()[:count] for part in states], {key: value.numpy()[:count] for key, value in traced.items()}
        )
        # At the very end: an interruption before leaves everything as it was.
        self._state, self._results, self._done = state, results, self._done + count
        return chunk

    def saved(self) -> dict[str, np.ndarray]:
        """The kernel results, which the next transition needs, as arrays."""
        return {f'results.{i}': np.asarray(part) for i, part in enumerate(tf.nest.flatten(self._results))}

    def restore(self, done: Chunk, saved: dict[str, np.ndarray]) -> None:
        """Goes on after transitions that were made before, with the arrays that `saved` gave then."""
        self._state, self._done = [tf.constant(part[-1]) for part in done.states], len(done.trace['lp'])
        template = self._first_results()
        flat = [tf.constant(saved[f'results.{i}']) for i in range(len(tf.nest.flatten(template)))]
        self._results = tf.nest.pack_sequence_as(template, flat)

    def _first_results(self) -> Any:
        begin = time.perf_counter()
        # A concrete function, because it is traced anew in every run, and TensorFlow would warn of that.
        bootstrap = tf.function(self._kernel.bootstrap_results, autograph=False).get_concrete_function(self._state)
        results = bootstrap(self._state)
        self._compiler.seconds[self._compiler.phase] += time.perf_counter() - begin
        return results

    def _program(self, size: int, is_xla: bool, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        if (size, is_xla) not in self._programs:
            begin = time.perf_counter()

            def transitions(state: Any, results: Any, number: tf.Tensor, seed: tf.Tensor) -> Any:
                return _transitions(self._kernel, size, state, results, number, seed)

            traced = tf.function(transitions, autograph=False, jit_compile=is_xla)
            program = traced.get_concrete_function(*arguments)
            state, results, number, seed = arguments
            program(state, results, number * [1, 0], seed)  # is compiled here, and makes no transition
            self._programs[size, is_xla] = program
            self._compiler.seconds[self._compiler.phase] += time.perf_counter() - begin
        return self._programs[size, is_xla]


def _transitions(
    kernel: tfp.mcmc.TransitionKernel, size: int, state: Any, results: Any, number: tf.Tensor, seed: tf.Tensor
) -> Any:
    """States and traces of up to `size` transitions, then the last state and results.

    Args:
      kernel: makes the transitions.
      size: for how many there is room.
      state: state parts.
      results: kernel results.
      number: of transitions before, and of those to make, int32[2].
      seed: int32[2].
    """
    first, count = number[0], number[1]

    def kept(state: Any, results: Any) -> Any:
        traced = trace(state, results)
        is_capped = find_result(results, 'is_capped')
        if is_capped is not None:
            traced['is_capped'] = tf.broadcast_to(is_capped, tf.shape(traced['lp']))
        return list(state), traced

    arrays = tf.nest.map_structure(lambda x: tf.TensorArray(x.dtype, size, element_shape=x.shape), kept(state, results))

    def transition(i: tf.Tensor, words: tf.Tensor, state: Any, results: Any, arrays: Any) -> Any:
        _, transition_seed = split_seed(words)
        state, results = kernel.one_step(state, results, seed=transition_seed)
        arrays = tf.nest.map_structure(lambda array, x: array.write(i, x), arrays, kept(state, results))
        return i + 1, words + [0, 1], state, results, arrays

    # The seed changes with each round. Of a seed that does not, XLA believes that it must know its value where third
    # derivatives are taken (`noise`), and compiles the whole program anew for each chunk.
    words = seed + tf.stack([0, first])
    _, _, state, results, arrays = tf.while_loop(
        lambda i, *_: i < count, transition, (tf.constant(0), words, state, results, arrays), parallel_iterations=1
    )
    return tf.nest.map_structure(lambda array: array.stack(), arrays), state, results
