"""Runs of kernels with progress, timing, and a result that survives an interruption."""

from __future__ import annotations

import dataclasses
import time
import warnings

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.sampling.compilation import Compiler
from tfp_rmhmc.sampling.progress import progress_bar
from tfp_rmhmc.sampling.runner import Chunk, Window, joined

__all__ = ['Run', 'run_kernel']


@dataclasses.dataclass
class Run:
    """What a kernel did.

    Attributes:
      name: of the scheme.
      draws: `[num_draws, chains, D]`, without the warm-up.
      trace: arrays `[num_draws, chains]`.
      seconds: wall time of everything.
      sampling_seconds: the same without tracing and compilation.
      is_complete: whether the run reached its end without an interruption.
    """

    name: str
    draws: np.ndarray
    trace: dict[str, np.ndarray]
    seconds: float
    sampling_seconds: float
    is_complete: bool

    def effective_sample_size(self, index: int = 0) -> float:
        """The effective sample size of one coordinate, over all chains."""
        draws = self.draws[..., index]
        if len(draws) < 4:
            return float('nan')
        ess = tfp.mcmc.effective_sample_size(tf.constant(draws), cross_chain_dims=1, filter_beyond_positive_pairs=True)
        return float(ess)


def run_kernel(
    name: str,
    kernel: tfp.mcmc.TransitionKernel,
    start: np.ndarray,
    num_draws: int,
    num_warmup: int,
    seed: int,
    jit_compile: bool,
) -> Run:
    """Draws from every chain of `start: [chains, D]`; Ctrl-C ends it early, with the draws made so far."""
    total = num_draws + num_warmup
    bar = progress_bar(total, None)
    bar.set_description(name)
    compiler = Compiler(None)
    compiler.prefer(jit_compile)
    window = Window(kernel, [tf.constant(start)], tf.constant([0, seed]), compiler)
    size = max(1, -(-total // 20))
    chunks: list[Chunk] = []
    begin = time.perf_counter()
    is_complete = True
    try:
        for done in range(0, total, size):
            chunk = window.run(min(size, total - done), size)
            chunks.append(chunk)
            bar.update(len(chunk.states[0]))
            bar.set_postfix(accept=f'{chunk.trace["acceptance_rate"].mean():.2f}')
    except KeyboardInterrupt:
        is_complete = False
    bar.close()
    seconds = time.perf_counter() - begin
    if compiler.failure is not None:
        warnings.warn(compiler.failure, stacklevel=2)
    if not chunks:
        return Run(name, np.zeros([0, *start.shape]), {}, seconds, float('nan'), False)
    (draws,), traced = joined(chunks)
    return Run(
        name,
        draws[num_warmup:],
        {key: value[num_warmup:] for key, value in traced.items()},
        seconds,
        seconds - sum(compiler.seconds.values()),
        is_complete,
    )
