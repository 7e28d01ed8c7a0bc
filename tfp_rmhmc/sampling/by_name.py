"""Runs of the kernels that `sample_posterior` offers by name: two windows of HMC, then the kernel with an adapted step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.metric import Metric, MongeMetric, SoftAbsMetric
from tfp_rmhmc.sampling.checkpoint import Checkpoint
from tfp_rmhmc.sampling.compilation import Compiler, prefers_xla
from tfp_rmhmc.sampling.problem import Problem
from tfp_rmhmc.sampling.run import Run, Show, as_arrays, under
from tfp_rmhmc.sampling.runner import Chunk, Window, joined
from tfp_rmhmc.sampling.scheme import RIEMANNIAN, adaptive_kernel

__all__ = ['NamedRun']

# In coordinates scaled to unit deviation, eigenvalues below 1/4 are lifted to it: no step is much longer than the
# posterior is wide, and the metric is smooth where the Hessian changes sign. Measured: on centred eight schools, a
# value of 20 needs a step size 20 times smaller than a value of 1 does. On the funnel, a value of 1 explores the mouth
# three times more slowly than a value of 8 does.
_SCALED_ALPHA = 4.0
# Above this dimension the default metric is not made of the Hessian, which would cost too much.
_MAX_DENSE = 200


class NamedRun(Run):
    """A run of one of `KERNELS`.

    Args:
      problem, seed, compiler, checkpoint: as any run takes them.
      kernel: by name.
      num_burnin, num_adaptation: transitions of the warm-up.
      chunk_size: its transitions between checkpoints.
      metric, step_size, target_accept_prob, trajectory_length: as `sample_posterior` takes them.
    """

    def __init__(
        self,
        problem: Problem,
        seed: tf.Tensor,
        compiler: Compiler,
        checkpoint: Checkpoint,
        kernel: str,
        num_burnin: int,
        num_adaptation: int,
        chunk_size: int,
        metric: Metric | None,
        step_size: float | None,
        target_accept_prob: float | None,
        trajectory_length: float | None,
    ):
        super().__init__(problem, seed, compiler, checkpoint)
        self.kernel = kernel
        self._metric, self._has_own_metric = metric, metric is not None
        self._options = (step_size, target_accept_prob, trajectory_length)
        # The first window finds some of the scales, and with these the second can find the rest.
        self._sizes = {
            'burn-in 1': num_burnin // 2,
            'burn-in 2': num_burnin - num_burnin // 2,
            'adaptation': num_adaptation,
        }
        self._chunk_size = chunk_size
        self._warmups: dict[str, list[Chunk]] = {}
        self._window: Window | None = None
        self._phase = ''

    def choice(self) -> str:
        return f'kernel {self.kernel!r}' + ('' if self._metric is None else f', {type(self._metric).__name__}')

    def warmup_trace(self) -> dict[str, np.ndarray]:
        chunks = self._warmups.get('adaptation', [])
        return joined(chunks).trace if chunks else {}

    def warmup_gradients(self) -> int:
        return sum(int(chunk.trace['n_steps'].sum()) for chunks in self._warmups.values() for chunk in chunks)

    def _warm_up(self, saved: dict[str, np.ndarray], show: Show) -> None:
        if str(saved.get('phase')) != 'adaptation':
            self.compiler.prefer(False)  # the burn-in is too short for XLA to pay
        for index, phase in enumerate(('burn-in 1', 'burn-in 2')):
            num = self._sizes[phase]
            if num:
                target, dtype = self.problem.target_log_prob_fn, self.problem.start[0].dtype
                kernel = adaptive_kernel('hmc', target, dtype, num, mean_length=1.0 + index)
                self._go_through(phase, index, kernel, saved, show)
                states, _ = joined(self._warmups[phase])
                scale = [np.ones(part.shape[2:]) for part in states] if self._has_own_metric else _scale_of(states)
                self.problem = self.problem.scaled(scale, [tf.constant(part[-1]) for part in states])
        problem = self.problem
        dimension = sum(math.prod(part.shape[1:]) for part in problem.start)
        if self._metric is None and self.kernel in RIEMANNIAN:
            self._metric = SoftAbsMetric(_SCALED_ALPHA) if dimension <= _MAX_DENSE else MongeMetric(dimension**-0.5)
        target, dtype = problem.target_log_prob_fn, problem.start[0].dtype
        main = adaptive_kernel(self.kernel, target, dtype, self._sizes['adaptation'], self._metric, *self._options)
        if str(saved.get('phase')) != 'adaptation' and not self.compiler.is_forced:
            self.compiler.prefer(prefers_xla(target, problem.start, self._metric))
        self._go_through('adaptation', 2, main, saved, show)

    def _go_through(self, phase: str, index: int, kernel: Any, saved: dict[str, np.ndarray], show: Show) -> None:
        """Makes the transitions of a phase that a checkpoint does not have."""
        window = Window(kernel, self.problem.start, self._seed + tf.constant([index, 0]), self.compiler)
        before = under(saved, f'{phase}.')
        if before:
            states = under(before, 'state.')
            self._warmups[phase] = [Chunk([states[str(i)] for i in range(len(states))], under(before, 'trace.'))]
        chunks = self._warmups.setdefault(phase, [])
        if str(saved.get('phase')) == phase:
            done = chunks + self.chunks
            if done:
                window.restore(joined(done), saved)
        self._window, self._phase = window, phase
        while (left := self._sizes[phase] - sum(len(chunk.states[0]) for chunk in chunks)) > 0:
            chunk = window.run(min(left, self._chunk_size), self._chunk_size)
            chunks.append(chunk)
            self.save()
            show(phase, chunk.trace)

    def _stretch(self, count: int, chunk_size: int) -> Chunk:
        assert self._window is not None
        return self._window.run(count, chunk_size)

    def _saved(self) -> dict[str, np.ndarray]:
        assert self._window is not None
        saved = {'phase': np.array(self._phase)} | self._window.saved()
        for phase, chunks in self._warmups.items():
            if chunks:
                saved |= as_arrays(f'{phase}.', joined(chunks))
        return saved


def _scale_of(states: list[np.ndarray]) -> list[np.ndarray]:
    """Standard deviations of the burn-in's second half."""
    deviations = [part[len(part) // 2 :].std(axis=(0, 1)) for part in states]
    return [np.where((d > 0) & np.isfinite(d), d, 1.0) for d in deviations]
