"""Runs of kernels with progress, timing, and a result that survives an interruption."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.diagnostic import trace
from tfp_rmhmc.sampling.runner import Checkpoint, progress_bar, run_chunks

__all__ = ['Run', 'run_kernel']


@dataclasses.dataclass
class Run:
    """What a kernel did.

    Attributes:
      name: of the scheme.
      draws: `[num_draws, chains, D]`, without the warm-up.
      trace: arrays `[num_draws, chains]`.
      seconds: wall time of everything.
      sampling_seconds: the same without tracing and compilation, estimated from all chunks but the first.
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
    states: list[np.ndarray] = []
    traces: list[dict[str, np.ndarray]] = []
    begin = time.perf_counter()
    after_first = begin
    is_complete = True
    try:
        for chunk, chunk_trace, _ in run_chunks(
            kernel,
            trace,
            [tf.constant(start)],
            total,
            chunk_size=max(1, -(-total // 20)),
            seed=tf.constant([0, seed]),
            jit_compile=jit_compile,
            may_fall_back=True,
            prefix=name,
            saved={},
            checkpoint=Checkpoint(None, ''),
        ):
            states.append(chunk[0])
            traces.append(chunk_trace)
            if len(states) == 1:
                after_first = time.perf_counter()
            bar.update(len(chunk[0]))
            bar.set_postfix(accept=f'{chunk_trace["acceptance_rate"].mean():.2f}')
    except KeyboardInterrupt:
        is_complete = False
    bar.close()
    end = time.perf_counter()
    if not states:
        return Run(name, np.zeros([0, *start.shape]), {}, end - begin, float('nan'), False)
    draws = np.concatenate(states)
    rest = len(draws) - len(states[0])
    rate = (end - after_first) / rest if rest else float('nan')
    return Run(
        name,
        draws[num_warmup:],
        {key: np.concatenate([t[key] for t in traces])[num_warmup:] for key in traces[0]},
        end - begin,
        rate * len(draws),
        is_complete,
    )
