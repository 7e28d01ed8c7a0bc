"""`sample_posterior`: burn-in, adaptation, sampling."""

from __future__ import annotations

import math
import os
import time
import warnings
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.argument import check_integer
from tfp_rmhmc.diagnostic import trace
from tfp_rmhmc.metric import Metric, MongeMetric, SoftAbsMetric
from tfp_rmhmc.noise import split_seed
from tfp_rmhmc.sampling.compilation import prefers_xla
from tfp_rmhmc.sampling.problem import Problem, problem_of
from tfp_rmhmc.sampling.result import PosteriorDraws
from tfp_rmhmc.sampling.runner import Checkpoint, Chunk, progress_bar, run_chunks
from tfp_rmhmc.sampling.scheme import KERNELS, adaptive_kernel

__all__ = ['sample_posterior']

# In coordinates scaled to unit deviation, eigenvalues below 1/4 are lifted to it: no step is much longer than the
# posterior is wide, and the metric is smooth where the Hessian changes sign. Measured: on centred eight schools, a
# value of 20 needs a step size 20 times smaller than a value of 1 does. On the funnel, a value of 1 explores the mouth
# three times more slowly than a value of 8 does.
_SCALED_ALPHA = 4.0
# Above this dimension the default metric is not made of the Hessian, which would cost too much.
_MAX_DENSE = 200


def sample_posterior(
    num_draws: int,
    model: Any,
    *,
    num_chains: int = 4,
    kernel: str = 'explicit',
    metric: Metric | None = None,
    initial_state: Any = None,
    num_burnin: int = 200,
    num_adaptation: int = 200,
    step_size: float | None = None,
    target_accept_prob: float | None = None,
    trajectory_length: float | None = None,
    seed: Any = None,
    jit_compile: bool | None = None,
    chunk_size: int = 50,
    progress: bool | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    **pins: Any,
) -> PosteriorDraws:
    """Draws from a posterior: warm-up, adaptation, sampling.

    The run has three phases. First comes HMC with an adapted step size, which is cheap and safe far from the mode (the
    paper's advice, appendix D). It has two windows; the second uses coordinates scaled by the standard deviations seen
    in the first. Then the chosen kernel runs while dual averaging finds its step size. Then the step size is fixed and
    draws are kept. Each chain moves on its own, but all share one step size. Trajectories have random lengths, from
    half to one and a half times `trajectory_length`.

    Args:
      num_draws: number of draws of each chain, positive.
      model: a `tfd.JointDistribution*`, with observed values as `**pins`, in the manner of
        `tfp.experimental.mcmc.windowed_adaptive_nuts`; or a function that gives the log density of its state parts, with
        `initial_state`; or an object with `target_log_prob_fn` and `initial_state(num_chains, seed)`.
      num_chains: number of chains, which run together, vectorised.
      kernel: `'explicit'`, `'implicit'`, or TFP's `'hmc'` or `'nuts'` as baselines.
      metric: for the explicit and implicit kernels, in the unconstrained space. By default `SoftAbsMetric(4.0)`, and
        above 200 dimensions `MongeMetric(D**-0.5)`, in coordinates that are scaled to unit standard deviation, as seen
        in the burn-in. HMC and NUTS use the same scaling.
      initial_state: `[num_chains, ...]`, in the model's structure and space; by default uniform on (-2, 2) in the
        unconstrained space.
      num_burnin: HMC transitions in the beginning; may be 0.
      num_adaptation: transitions in which the step size is adapted; may be 0.
      step_size: the initial step size, or with `num_adaptation=0` the only one.
      target_accept_prob: the acceptance probability that adaptation aims at; by default 0.8, and 0.9 for the implicit
        kernel.
      trajectory_length: mean integration time; by default 2 pi.
      seed: an int or int32[2]; None for a different one each time.
      jit_compile: whether XLA compiles the run. By default it does where that is expected to be faster (`prefers_xla`),
        if XLA is able to. The result says whether it did.
      chunk_size: draws between updates of the progress bar and between checkpoints.
      progress: whether to show a bar; by default in terminals and notebooks, if tqdm is installed.
      checkpoint_dir: if given, the run is saved there after each chunk, and a run that was killed goes on from there to the
        same draws.
      **pins: observed values of the model's variables.

    Returns:
      `PosteriorDraws`. A warning says what looks wrong, if anything does.
    """
    for name, value, least in [
        ('num_draws', num_draws, 1),
        ('num_chains', num_chains, 1),
        ('num_burnin', num_burnin, 0),
        ('num_adaptation', num_adaptation, 0),
        ('chunk_size', chunk_size, 1),
    ]:
        check_integer(name, value, least)
    if kernel not in KERNELS:
        raise ValueError(f'`kernel` must be one of {sorted(KERNELS)}, got {kernel!r}.')
    if metric is not None and kernel in ('hmc', 'nuts'):
        raise ValueError(f'`metric` is for the explicit and implicit kernels; kernel {kernel!r} takes none.')
    # The seed that TFP makes of an int depends on what was drawn before. A run should not depend on that.
    seed = tf.constant([0, seed], tf.int32) if isinstance(seed, int) else tfp.random.sanitize_seed(seed)
    start_seed, run_seed = split_seed(seed)
    problem = problem_of(model, num_chains, initial_state, start_seed, pins)
    dtype = problem.start[0].dtype
    settings = (num_chains, kernel, metric, num_burnin, num_adaptation, step_size, target_accept_prob, trajectory_length)
    checkpoint = Checkpoint(checkpoint_dir, _fingerprint(problem, settings, num_draws, chunk_size, seed))
    saved = checkpoint.load()
    bar = progress_bar(num_burnin + num_adaptation + num_draws, progress)
    common: dict[str, Any] = {
        'chunk_size': chunk_size,
        'may_fall_back': jit_compile is None,
        'saved': saved,
        'checkpoint': checkpoint,
    }

    def run(kernel: Any, start: list[tf.Tensor], num: int, prefix: str, index: int, jit: bool) -> Chunk:
        """Runs all chunks of a phase and joins them."""
        phase_seed = tf.constant([index, 0]) + run_seed
        parts, traces = [], []
        for states, chunk_trace, is_compiled in run_chunks(
            kernel, trace, start, num, seed=phase_seed, jit_compile=jit, prefix=prefix, **common
        ):
            parts.append(states)
            traces.append(chunk_trace)
            bar.update(len(states[0]))
            bar.set_description(f'{prefix} ({"XLA" if is_compiled else "graph"})')
            bar.set_postfix(
                step=f'{chunk_trace["step_size"][-1].mean():.3g}',
                accept=f'{chunk_trace["acceptance_rate"].mean():.2f}',
                diverged=int(sum(t['diverging'].sum() for t in traces)),
            )
        joined = {key: np.concatenate([t[key] for t in traces]) for key in traces[0]}
        return Chunk([np.concatenate([p[i] for p in parts]) for i in range(len(start))], joined, is_compiled)

    begin = time.perf_counter()
    # Two windows: the first finds some of the scales, and with these the second can find the rest.
    for index, num in enumerate((num_burnin // 2, num_burnin - num_burnin // 2)):
        if num:
            burnin = adaptive_kernel('hmc', problem.target_log_prob_fn, dtype, num, mean_length=1.0 + index)
            states = run(burnin, problem.start, num, f'burn-in {index + 1}', index, bool(jit_compile)).states
            problem = problem.scaled(_scale_of(states, metric), [tf.constant(part[-1]) for part in states])
    dimension = sum(math.prod(part.shape[1:]) for part in problem.start)
    if metric is None and kernel in ('explicit', 'implicit'):
        metric = SoftAbsMetric(_SCALED_ALPHA) if dimension <= _MAX_DENSE else MongeMetric(dimension**-0.5)
    main = adaptive_kernel(
        kernel,
        problem.target_log_prob_fn,
        dtype,
        num_adaptation,
        metric,
        step_size,
        target_accept_prob,
        trajectory_length,
    )
    jit = prefers_xla(problem.target_log_prob_fn, problem.start, metric) if jit_compile is None else jit_compile
    states, traced, is_compiled = run(main, problem.start, num_adaptation + num_draws, 'sampling', 2, jit)
    bar.close()
    seconds = time.perf_counter() - begin
    result = PosteriorDraws(
        draws=problem.constrain([tf.constant(part[num_adaptation:]) for part in states]),
        trace={key: value[num_adaptation:] for key, value in traced.items()},
        warmup={key: value[:num_adaptation] for key, value in traced.items()},
        names=problem.names,
        seconds={'total': seconds},
        is_compiled=is_compiled,
    )
    for sentence in result.problems():
        warnings.warn(sentence, stacklevel=2)
    return result


def _scale_of(states: list[np.ndarray], metric: Metric | None) -> list[np.ndarray]:
    """Standard deviations of the burn-in's second half; ones if the user gave a metric (for unscaled states)."""
    if metric is not None:
        return [np.ones(part.shape[2:]) for part in states]
    deviations = [part[len(part) // 2 :].std(axis=(0, 1)) for part in states]
    return [np.where((d > 0) & np.isfinite(d), d, 1.0) for d in deviations]


def _fingerprint(problem: Problem, settings: tuple[Any, ...], num_draws: int, chunk_size: int, seed: tf.Tensor) -> str:
    """Everything that the draws depend on, one item a line: if any of it changes, a checkpoint is useless.

    A model is identified by its log density at the start, to the last digit.
    """
    log_prob = np.asarray(problem.target_log_prob_fn(*problem.start))
    names = ('chains', 'kernel', 'metric', 'burn-in', 'adaptation', 'step size', 'target acceptance', 'trajectory length')
    lines = [f'{name}: {value!r}' for name, value in zip(names, settings, strict=True)]
    lines += [f'draws: {num_draws}', f'chunk size: {chunk_size}', f'seed: {np.asarray(seed).tolist()}']
    lines += [f'variables: {problem.names}', f'dtype: {log_prob.dtype}', f'log density at the start: {log_prob.tolist()}']
    return '\n'.join(line.replace('\n', ' ') for line in lines)
