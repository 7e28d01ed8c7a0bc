"""`sample_posterior`: burn-in, adaptation, sampling."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow_probability as tfp

from tfp_rmhmc.argument import check_integer, check_positive
from tfp_rmhmc.metric import Metric
from tfp_rmhmc.noise import split_seed
from tfp_rmhmc.sampling.automatic import AutomaticRun
from tfp_rmhmc.sampling.by_name import NamedRun
from tfp_rmhmc.sampling.checkpoint import Checkpoint
from tfp_rmhmc.sampling.compilation import Compiler
from tfp_rmhmc.sampling.continuation import drawn
from tfp_rmhmc.sampling.identity import identity_of
from tfp_rmhmc.sampling.problem import problem_of
from tfp_rmhmc.sampling.progress import progress_bar, shown_by
from tfp_rmhmc.sampling.result import PosteriorDraws
from tfp_rmhmc.sampling.run import Run
from tfp_rmhmc.sampling.scheme import KERNELS

__all__ = ['sample_posterior']

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
    bijector: Any = None,
    names: Sequence[str] | None = None,
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
      bijector: for a log density of constrained values with flat priors: a `tfb.Bijector`, or one for each part of
        `initial_state` in the same structure, None where there is no constraint. `model` and `initial_state` then are in
        the constrained space, as the draws are; the log Jacobian is added. A `metric` is in the unconstrained one.
      names: of a log density's state parts.
      num_burnin: transitions in the beginning, with short trajectories; may be 0. By default 100, and 200 for kernels other
        than `'auto'`.
      num_adaptation: transitions in which metric, step size and length are found; may be 0. By default 800, and 200 for
        kernels other than `'auto'`, which find the step size alone.
      step_size: the initial step size, or with `num_adaptation=0` the only one.
      target_accept_prob: the acceptance probability that adaptation aims at; by default 0.85, 0.9 for the implicit kernel,
        and 0.8 for the others.
      trajectory_length: mean integration time; by default it is found, and 2 pi for kernels other than `'auto'`.
      target_ess: if given, drawing ends when the least bulk effective sample size reaches it.
      seed: an int or int32[2]; None for a different one each time, or that of the checkpoint if there is one.
      jit_compile: whether XLA compiles the run. By default it does where that is expected to be faster, if XLA is able to.
        The result says whether it did.
      chunk_size: draws between updates of the progress bar and between checkpoints.
      progress: whether to show a bar; by default in terminals and notebooks, if tqdm is installed.
      checkpoint_dir: if given, the run is saved there after each chunk, and a run that was killed, or shall have more
        draws, goes on from there to the draws of one run. One process at a time may use it.
      **pins: observed values of the model's variables.

    Returns:
      `PosteriorDraws`. A warning says what looks wrong, if anything does.
    """
    begin = time.perf_counter()
    if kernel not in ('auto', *KERNELS):
        raise ValueError(f'`kernel` must be one of {sorted(["auto", *KERNELS])}, got {kernel!r}.')
    if metric is not None and kernel in ('hmc', 'nuts'):
        raise ValueError(f'`metric` is for the explicit and implicit kernels; kernel {kernel!r} takes none.')
    if kernel == 'auto' and metric is not None:
        kernel = 'explicit'
    is_automatic = kernel == 'auto'
    if target_ess is not None:
        check_positive('target_ess', target_ess)
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
    checkpoint = Checkpoint(checkpoint_dir)
    bar = progress_bar(num_burnin + num_adaptation + num_draws, progress)
    with contextlib.closing(bar), checkpoint.held():
        saved = checkpoint.load()
        seed = _seed_of(seed, saved)
        start_seed, run_seed = split_seed(seed)
        problem = problem_of(model, num_chains, initial_state, start_seed, pins, bijector, names)
        if checkpoint.is_wanted:
            settings = {
                'kernel': kernel,
                'burn-in': num_burnin,
                'adaptation': num_adaptation,
                'step size': step_size,
                'target acceptance': target_accept_prob,
                'trajectory length': trajectory_length,
            }
            checkpoint.claim(identity_of(problem, settings, seed, metric), seed, saved)
        common = (problem, run_seed, Compiler(jit_compile), checkpoint)
        run: Run
        if is_automatic:
            accept = _ACCEPTANCE if target_accept_prob is None else target_accept_prob
            run = AutomaticRun(*common, num_burnin, num_adaptation, step_size, accept, trajectory_length)
        else:
            numbers = (num_burnin, num_adaptation, chunk_size)
            run = NamedRun(*common, kernel, *numbers, metric, step_size, target_accept_prob, trajectory_length)
        run.seconds['setup'] = time.perf_counter() - begin
        run.warm_up(saved, shown_by(bar))
        result = drawn(run, num_draws, chunk_size, target_ess, bar)
    for sentence in result.problems():
        warnings.warn(sentence, stacklevel=2)
    return result


def _seed_of(seed: Any, saved: dict[str, np.ndarray]) -> np.ndarray:
    """int32[2]: what the user gave; or, if None, that of the run that goes on, or a new one."""
    if seed is None and saved:
        return saved['seed']
    if isinstance(seed, (int, np.integer)):
        if isinstance(seed, bool) or not -(2**31) <= seed < 2**31:
            raise ValueError(f'`seed` must be an integer of 32 bits, an int32[2] or None, got {seed!r}.')
        # The seed that TFP makes of an int depends on what was drawn before. A run should not depend on that.
        return np.array([0, seed], np.int32)
    return np.asarray(tfp.random.sanitize_seed(seed))
