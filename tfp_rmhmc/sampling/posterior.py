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

from tfp_rmhmc.argument import check_integer, check_positive
from tfp_rmhmc.data_sum import SumOverData
from tfp_rmhmc.diagnostic import trace
from tfp_rmhmc.metric import Metric, MongeMetric, SoftAbsMetric
from tfp_rmhmc.noise import split_seed
from tfp_rmhmc.sampling.automatic import AutomaticRun
from tfp_rmhmc.sampling.compilation import prefers_xla
from tfp_rmhmc.sampling.continuation import drawn, show_chunk, shown_by
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
# Of the default kernel. Its best acceptance is higher than HMC's: what a step costs is one gradient, whatever the metric.
_ACCEPTANCE = 0.85


def sample_posterior(
    num_draws: int,
    model: Any,
    *,
    num_chains: int = 4,
    kernel: str = 'auto',
    metric: Metric | None = None,
    initial_state: Any = None,
    num_burnin: int | None = None,
    num_adaptation: int | None = None,
    step_size: float | None = None,
    target_accept_prob: float | None = None,
    trajectory_length: float | None = None,
    target_ess: float | None = None,
    seed: Any = None,
    jit_compile: bool | None = None,
    chunk_size: int = 50,
    progress: bool | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    **pins: Any,
) -> PosteriorDraws:
    """Draws from a posterior: warm-up, adaptation, sampling.

    By default the warm-up learns a separable metric from the gradients that it sees: which coordinates set the scale of
    which others, how, and what is correlated (`result.learned_scales()` shows it). `SeparableLeapfrog` makes the
    trajectories, at one gradient a step, and their length is the one at which the coordinate that mixes worst mixes best
    for its price. Where no scale varies it is HMC with a dense mass matrix. Everything is frozen before the first draw is
    kept, so that the draws are exact. Chains share what is learned and move on their own.

    The other kernels burn in with HMC in coordinates scaled to unit deviation, then adapt their step size. Their
    trajectories have random lengths, from half to one and a half times `trajectory_length`.

    Ctrl-C while draws are kept returns what there is, as a result whose `is_partial` is True.

    Args:
      num_draws: number of draws of each chain, positive.
      model: a `tfd.JointDistribution*`, with observed values as `**pins`, in the manner of
        `tfp.experimental.mcmc.windowed_adaptive_nuts`; or a function that gives the log density of its state parts, with
        `initial_state`; or an object with `target_log_prob_fn` and `initial_state(num_chains, seed)`.
      num_chains: number of chains, which run together, vectorised.
      kernel: `'auto'`; or `'explicit'` or `'implicit'`, with a metric made of Hessians by default; or `'rnuts'`, no-U-turn
        trajectories with the explicit kernel's metric; or TFP's `'hmc'` or `'nuts'` as baselines.
      metric: of the explicit, implicit and `'rnuts'` kernels, in the unconstrained space; given with `'auto'`, it makes the
        kernel explicit. By default `SoftAbsMetric(4.0)`, and above 200 dimensions `MongeMetric(D**-0.5)`, in coordinates
        that are scaled to unit standard deviation, as seen in the burn-in. HMC and NUTS use the same scaling.
      initial_state: `[num_chains, ...]`, in the model's structure and space; by default uniform on (-2, 2) in the
        unconstrained space.
      num_burnin: transitions in the beginning, with short trajectories; may be 0. By default 100, and 200 for kernels other
        than `'auto'`.
      num_adaptation: transitions in which metric, step size and length are found; may be 0. By default 800, and 200 for
        kernels other than `'auto'`, which find the step size alone.
      step_size: the initial step size, or with `num_adaptation=0` the only one.
      target_accept_prob: the acceptance probability that adaptation aims at; by default 0.85, 0.9 for the implicit kernel,
        and 0.8 for the others.
      trajectory_length: mean integration time; by default it is found, and 2 pi for kernels other than `'auto'`.
      target_ess: if given, drawing ends when the least bulk effective sample size reaches it; `'auto'` only.
      seed: an int or int32[2]; None for a different one each time.
      jit_compile: whether XLA compiles the run. By default it does where that is expected to be faster, if XLA is able to.
        The result says whether it did.
      chunk_size: draws between updates of the progress bar and between checkpoints.
      progress: whether to show a bar; by default in terminals and notebooks, if tqdm is installed.
      checkpoint_dir: if given, the run is saved there after each chunk, and a run that was killed goes on from there to the
        same draws.
      **pins: observed values of the model's variables.

    Returns:
      `PosteriorDraws`. A warning says what looks wrong, if anything does.
    """
    if kernel not in ('auto', *KERNELS):
        raise ValueError(f'`kernel` must be one of {sorted(["auto", *KERNELS])}, got {kernel!r}.')
    if metric is not None and kernel in ('hmc', 'nuts'):
        raise ValueError(f'`metric` is for the explicit and implicit kernels; kernel {kernel!r} takes none.')
    if kernel == 'auto' and metric is not None:
        kernel = 'explicit'
    is_automatic = kernel == 'auto'
    if target_ess is not None:
        check_positive('target_ess', target_ess)
        if not is_automatic:
            raise ValueError(f"`target_ess` needs kernel='auto', got kernel {kernel!r}.")
    if trajectory_length is not None:
        check_positive('trajectory_length', trajectory_length)
    num_burnin = (100 if is_automatic else 200) if num_burnin is None else num_burnin
    num_adaptation = (800 if is_automatic else 200) if num_adaptation is None else num_adaptation
    for name, value, least in [
        ('num_draws', num_draws, 1),
        ('num_chains', num_chains, 1),
        ('num_burnin', num_burnin, 0),
        ('num_adaptation', num_adaptation, 0),
        ('chunk_size', chunk_size, 1),
    ]:
        check_integer(name, value, least)
    # The seed that TFP makes of an int depends on what was drawn before. A run should not depend on that.
    seed = tf.constant([0, seed], tf.int32) if isinstance(seed, int) else tfp.random.sanitize_seed(seed)
    start_seed, run_seed = split_seed(seed)
    problem = problem_of(model, num_chains, initial_state, start_seed, pins)
    settings = {
        'chains': num_chains,
        'kernel': kernel,
        'metric': metric,
        'burn-in': num_burnin,
        'adaptation': num_adaptation,
        'step size': step_size,
        'target acceptance': target_accept_prob,
        'trajectory length': trajectory_length,
    }
    bar = progress_bar(num_burnin + num_adaptation + num_draws, progress)
    begin = time.perf_counter()
    target = problem.target_log_prob_fn
    is_writer = target.is_chief if isinstance(target, SumOverData) else True
    if is_automatic:
        checkpoint = Checkpoint(checkpoint_dir, _fingerprint(problem, settings, seed), is_writer)
        accept = _ACCEPTANCE if target_accept_prob is None else target_accept_prob
        run = AutomaticRun(problem, run_seed, accept, jit_compile, checkpoint)
        run.warm_up(num_burnin, num_adaptation, step_size, trajectory_length, shown_by(bar))
        result = drawn(run, problem, num_draws, chunk_size, target_ess, bar, begin)
    else:
        whole = settings | {'draws': num_draws, 'chunk size': chunk_size}
        checkpoint = Checkpoint(checkpoint_dir, _fingerprint(problem, whole, seed), is_writer)
        numbers = (num_draws, num_burnin, num_adaptation, chunk_size)
        options = (metric, step_size, target_accept_prob, trajectory_length)
        result = _by_name(problem, kernel, numbers, options, run_seed, jit_compile, bar, checkpoint)
        result.seconds['total'] = time.perf_counter() - begin
    for sentence in result.problems():
        warnings.warn(sentence, stacklevel=2)
    return result


def _by_name(
    problem: Problem,
    kernel: str,
    numbers: tuple[int, int, int, int],
    options: tuple[Any, ...],
    run_seed: tf.Tensor,
    jit_compile: bool | None,
    bar: Any,
    checkpoint: Checkpoint,
) -> PosteriorDraws:
    """A run of one of `KERNELS`: two windows of HMC, then the kernel with an adapted step size.

    Args:
      problem: the target and a start.
      kernel: by name.
      numbers: of draws, transitions of burn-in and adaptation, and draws of a chunk.
      options: metric, step size, acceptance and length, as `sample_posterior` takes them.
      run_seed: int32[2].
      jit_compile: as `sample_posterior` takes it.
      bar: of progress.
      checkpoint: where the run is saved.
    """
    num_draws, num_burnin, num_adaptation, chunk_size = numbers
    metric, step_size, target_accept_prob, trajectory_length = options
    dtype = problem.start[0].dtype
    common: dict[str, Any] = {
        'chunk_size': chunk_size,
        'may_fall_back': jit_compile is None,
        'saved': checkpoint.load(),
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
            show_chunk(bar, prefix, chunk_trace, sum(int(t['diverging'].sum()) for t in traces), is_compiled)
        joined = {key: np.concatenate([t[key] for t in traces]) for key in traces[0]}
        return Chunk([np.concatenate([p[i] for p in parts]) for i in range(len(start))], joined, is_compiled)

    gradients = 0
    # Two windows: the first finds some of the scales, and with these the second can find the rest.
    for index, num in enumerate((num_burnin // 2, num_burnin - num_burnin // 2)):
        if num:
            burnin = adaptive_kernel('hmc', problem.target_log_prob_fn, dtype, num, mean_length=1.0 + index)
            states, burnt, _ = run(burnin, problem.start, num, f'burn-in {index + 1}', index, bool(jit_compile))
            gradients += int(burnt['n_steps'].sum())
            problem = problem.scaled(_scale_of(states, metric), [tf.constant(part[-1]) for part in states])
    dimension = sum(math.prod(part.shape[1:]) for part in problem.start)
    if metric is None and kernel in ('explicit', 'implicit', 'rnuts'):
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
    warmup = {key: value[:num_adaptation] for key, value in traced.items()}
    kept = {key: value[num_adaptation:] for key, value in traced.items()}
    return PosteriorDraws(
        draws=problem.constrain([tf.constant(part[num_adaptation:]) for part in states]),
        trace=kept,
        warmup=warmup,
        names=problem.names,
        seconds={},
        is_compiled=is_compiled,
        gradients={'warmup': gradients + int(warmup['n_steps'].sum()), 'sampling': int(kept['n_steps'].sum())},
        choice=f'kernel {kernel!r}' + ('' if metric is None else f', {type(metric).__name__}'),
    )


def _scale_of(states: list[np.ndarray], metric: Metric | None) -> list[np.ndarray]:
    """Standard deviations of the burn-in's second half; ones if the user gave a metric (for unscaled states)."""
    if metric is not None:
        return [np.ones(part.shape[2:]) for part in states]
    deviations = [part[len(part) // 2 :].std(axis=(0, 1)) for part in states]
    return [np.where((d > 0) & np.isfinite(d), d, 1.0) for d in deviations]


def _fingerprint(problem: Problem, settings: dict[str, Any], seed: tf.Tensor) -> str:
    """Everything that the draws depend on, one item a line: if any of it changes, a checkpoint is useless.

    A model is identified by its log density at the start, to the last digit.
    """
    log_prob = np.asarray(problem.target_log_prob_fn(*problem.start))
    lines = [f'{name}: {value!r}' for name, value in settings.items()]
    lines += [f'seed: {np.asarray(seed).tolist()}', f'variables: {problem.names}', f'dtype: {log_prob.dtype}']
    lines += [f'log density at the start: {log_prob.tolist()}']
    return '\n'.join(line.replace('\n', ' ') for line in lines)
