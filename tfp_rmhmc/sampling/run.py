"""A run: a warm-up, then draws for as long as one likes. What the runs of all kernels share."""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.data_sum import SumOverData
from tfp_rmhmc.sampling.checkpoint import Checkpoint
from tfp_rmhmc.sampling.compilation import Compiler
from tfp_rmhmc.sampling.problem import Problem
from tfp_rmhmc.sampling.runner import Chunk, joined
from tfp_rmhmc.sampling.scales import LearnedScales

__all__ = ['Run', 'Show', 'under']

Show = Callable[[str, dict[str, np.ndarray]], None]


class Run(abc.ABC):
    """A run that has been warmed up, or will be, and goes on as long as one likes.

    The random numbers of draw n depend on the seed and on n alone, so that draws do not depend on how often a run was
    interrupted, continued or extended. A kind of run says how it warms up, how it makes some draws, and what of both goes
    into a checkpoint beside the draws.

    Args:
      problem: the target and a start.
      seed: int32[2].
      compiler: of its programs.
      checkpoint: where it is saved.

    Attributes:
      kernel: its name.
      problem: in the coordinates in which draws are made.
      chunks: draws so far.
      compiler: of its programs.
      seconds: wall time by phase, compilation counted.
    """

    kernel: str

    def __init__(self, problem: Problem, seed: tf.Tensor, compiler: Compiler, checkpoint: Checkpoint):
        self.problem, self._seed = problem, seed
        self.compiler, self.checkpoint = compiler, checkpoint
        self.chunks: list[Chunk] = []
        self.seconds = {'setup': 0.0, 'warmup': 0.0, 'sampling': 0.0}

    @property
    def num_draws(self) -> int:
        """So far, of each chain."""
        return sum(len(chunk.states[0]) for chunk in self.chunks)

    def joined(self) -> Chunk:
        """All draws and their trace."""
        return joined(self.chunks)

    def warm_up(self, saved: dict[str, np.ndarray], show: Show) -> None:
        """Gets ready to draw, from what a checkpoint holds of an earlier run."""
        begin = time.perf_counter()
        self.compiler.phase = 'warmup'
        if saved:
            self.compiler.restore(saved)
            states = under(saved, 'state.')
            if states:
                self.chunks = [Chunk([states[str(i)] for i in range(len(states))], under(saved, 'trace.'))]
        with self._naming_lost_processes():
            self._warm_up(saved, self._with_failure(show))
        self.seconds['warmup'] += time.perf_counter() - begin

    def draw(self, num_draws: int, chunk_size: int, show: Show, is_enough: Callable[[], bool]) -> bool:
        """Goes on until there are `num_draws` of each chain, or enough; returns False if it was interrupted."""
        begin = time.perf_counter()
        self.compiler.phase = 'sampling'
        show = self._with_failure(show)
        try:
            while self.num_draws < num_draws and not (self.chunks and is_enough()):
                with self._naming_lost_processes():
                    chunk = self._stretch(min(chunk_size, num_draws - self.num_draws), chunk_size)
                self.chunks.append(chunk)
                self.save()
                show('sampling', chunk.trace)
        except KeyboardInterrupt:
            if not self.chunks:
                raise
            return False
        finally:
            self.seconds['sampling'] += time.perf_counter() - begin
        return True

    def save(self) -> None:
        """Writes the run to its checkpoint, if it has one."""
        if not self.checkpoint.is_wanted:
            return
        saved = self._saved() | self.compiler.saved()
        if self.chunks:
            saved |= as_arrays('', self.joined())
        self.checkpoint.save(saved)

    def times(self) -> dict[str, float]:
        """Seconds of tracing and compiling, of warm-up and of sampling without these, and of everything."""
        compiling = self._compiling()
        return {
            'compiling': sum(compiling.values()),
            'warmup': self.seconds['warmup'] - compiling['warmup'],
            'sampling': self.seconds['sampling'] - compiling['sampling'],
            'total': sum(self.seconds.values()),
        }

    def remarks(self) -> list[str]:
        """What the user should know, one sentence each."""
        return [sentence for sentence in (self.compiler.failure, self.checkpoint.error) if sentence is not None]

    @abc.abstractmethod
    def _warm_up(self, saved: dict[str, np.ndarray], show: Show) -> None:
        """Does what is not in `saved`."""

    @abc.abstractmethod
    def _stretch(self, count: int, chunk_size: int) -> Chunk:
        """The next draws, `count` or fewer, by a program for `chunk_size`."""

    @abc.abstractmethod
    def _saved(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds beside the draws."""

    @abc.abstractmethod
    def choice(self) -> str:
        """What makes the draws, in words."""

    @abc.abstractmethod
    def warmup_trace(self) -> dict[str, np.ndarray]:
        """The trace of the adaptation."""

    @abc.abstractmethod
    def warmup_gradients(self) -> int:
        """Number of gradients of the warm-up, all chains together."""

    def scales(self) -> LearnedScales | None:
        """What was learned, if anything was."""
        return None

    @contextlib.contextmanager
    def _naming_lost_processes(self) -> Iterator[None]:
        """Says in a sentence that another process is gone, which TensorFlow tells by an error of its network's."""
        target = self.problem.target_log_prob_fn
        try:
            yield
        except tf.errors.OpError as error:
            if not (isinstance(target, SumOverData) and target.spans_processes):
                raise
            kept = (
                'go on from the checkpoint' if self.checkpoint.is_wanted else 'begin again (go on, with `checkpoint_dir`)'
            )
            raise RuntimeError(
                f'Another process of this run does not answer, so that the sum over all data cannot be had: start all '
                f'processes again to {kept}.'
            ) from error

    def _compiling(self) -> dict[str, float]:
        """Seconds of tracing and compiling, by phase."""
        return self.compiler.seconds

    def _with_failure(self, show: Show) -> Show:
        """Says with the phase which program it is, and why it is not XLA's where that has failed."""

        def shown(phase: str, trace: dict[str, np.ndarray]) -> None:
            program = 'XLA' if self.compiler.is_xla else self.compiler.failure or 'graph'
            show(f'{phase} ({program[:100]})', trace)

        return shown


def under(saved: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The entries whose keys begin with a prefix, by the rest of their keys."""
    return {key.removeprefix(prefix): value for key, value in saved.items() if key.startswith(prefix)}


def as_arrays(prefix: str, chunk: Chunk) -> dict[str, np.ndarray]:
    """A chunk as entries of a checkpoint."""
    saved = {f'{prefix}state.{i}': part for i, part in enumerate(chunk.states)}
    return saved | {f'{prefix}trace.{key}': value for key, value in chunk.trace.items()}
