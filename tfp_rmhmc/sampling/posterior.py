"""`sample_posterior`: burn-in, adaptation, sampling."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.argument import check_choice, check_flag, check_instance, check_integer, check_positive, shown
from tfp_rmhmc.data_sum import SumOverData
from tfp_rmhmc.metric import MAX_LEARNED, Metric
from tfp_rmhmc.noise import seed_words, split_seed
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
from tfp_rmhmc.state import check_parts

__all__ = ['sample_posterior']


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
    kept, so that the draws are exact. Chains share what is learned and move on their own. A second run in one process of
    the same model and number of chains compiles little or nothing.

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
        kernel explicit. So it is where a model that knows its `separable_metric()`, such as a Keras posterior with a
        hierarchical prior, has more than 2,000 coordinates, beyond which scales are not learned. By default
        `SoftAbsMetric(4.0)`, and above 200 dimensions `MongeMetric(D**-0.5)`, in coordinates that are scaled to unit
        standard deviation, as seen in the burn-in. HMC and NUTS use the same scaling.
      initial_state: `[num_chains, ...]`, in the model's structure and space; by default uniform on (-2, 2) in the
        unconstrained space. That is the one of the model's default bijectors, but for positive variables: they are there by
        their logarithms, also where TFP would have a softplus.
      bijector: for a log density of constrained values with flat priors: a `tfb.Bijector`, or one for each part of
        `initial_state` in the same structure, None where there is no constraint. `model` and `initial_state` then are in
        the constrained space, as the draws are; the log Jacobian is added. A `metric` is in the unconstrained one.
      names: of a log density's state parts.
      num_burnin: transitions in the beginning, with short trajectories; may be 0. By default 100, and 200 for kernels other
        than `'auto'`.
      num_adaptation: transitions in which metric, step size and length are found; may be 0. By default 800, and 200 for
        kernels other than `'auto'`, which find the step size alone.
      step_size: the initial step size, or with `num_adaptation=0` the only one.
      target_accept_prob: the acceptance probability that adaptation aims at; by default 0.85, or 0.98
        where curvature varies as a separable metric cannot follow; 0.9 for the implicit kernel, and 0.8 for the others.
      trajectory_length: mean integration time; by default it is found, and 2 pi for kernels other than `'auto'`.
      target_ess: if given, drawing ends when the least bulk effective sample size reaches it.
      seed: an int (of at most 62 bits; each is another seed) or int32[2]; None for a different one each time, or that of
        the checkpoint if there is one.
      jit_compile: whether XLA compiles the run. By default it does where that is expected to be faster, if XLA is able to,
        and where a graph stops because a matrix of the target is singular in one of the chains. The result says whether it
        did.
      chunk_size: draws between updates of the progress bar and between checkpoints.
      progress: whether to show a bar; by default in terminals and notebooks, if tqdm is installed.
      checkpoint_dir: if given, the run is saved there after each chunk, and a run that was killed, or shall have more
        draws, goes on from there to the draws of one run. One process at a time may use it.
      **pins: observed values of the model's variables.

    Returns:
      `PosteriorDraws`. A warning says what looks wrong, if anything does.
    """
    begin = time.perf_counter()
    check_choice('kernel', kernel, ['auto', *KERNELS])
    if metric is not None:
        check_instance('metric', metric, Metric, 'None or a `tfp_rmhmc.Metric`')
    if metric is not None and kernel in ('hmc', 'nuts'):
        raise ValueError(f'`metric` must be None for kernel {kernel!r}, which takes none, got {shown(metric)}.')
    if kernel == 'auto' and metric is None and _knows_its_metric(model):
        metric = model.separable_metric()
    if kernel == 'auto' and metric is not None:
        kernel = 'explicit'
    is_automatic = kernel == 'auto'
    for name, given in [
        ('target_ess', target_ess),
        ('trajectory_length', trajectory_length),
        ('step_size', step_size),
        ('target_accept_prob', target_accept_prob),
    ]:
        if given is not None:
            check_positive(name, given)
    if target_accept_prob is not None and not target_accept_prob < 1:
        raise ValueError(f'`target_accept_prob` must be below 1, got {target_accept_prob!r}.')
    step_size, target_accept_prob = _float(step_size), _float(target_accept_prob)
    trajectory_length, target_ess = _float(trajectory_length), _float(target_ess)
    is_joint = isinstance(model, tfp.distributions.JointDistribution)
    is_model = is_joint or callable(model) or (hasattr(model, 'target_log_prob_fn') and hasattr(model, 'initial_state'))
    if not is_model:
        raise TypeError(f'`model` must be a joint distribution, a log density or a posterior, got {shown(model)}.')
    if initial_state is not None:
        check_parts('initial_state', initial_state, None if is_joint else (tf.float32, tf.float64))
    for name, given in [('jit_compile', jit_compile), ('progress', progress)]:
        if given is not None:
            check_flag(name, given)
    if checkpoint_dir is not None:
        check_instance('checkpoint_dir', checkpoint_dir, (str, os.PathLike), 'None or a path')
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
    checkpoint = Checkpoint(checkpoint_dir, is_writer=_writes_files(model))
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
            run = AutomaticRun(*common, num_burnin, num_adaptation, step_size, target_accept_prob, trajectory_length)
        else:
            numbers = (num_burnin, num_adaptation, chunk_size)
            run = NamedRun(*common, kernel, *numbers, metric, step_size, target_accept_prob, trajectory_length)
        run.seconds['setup'] = time.perf_counter() - begin
        run.warm_up(saved, shown_by(bar))
        result = drawn(run, num_draws, chunk_size, target_ess, bar)
    for sentence in result.problems():
        warnings.warn(sentence, stacklevel=2)
    return result


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _writes_files(model: Any) -> bool:
    """Whether this process does. Of several that sample one model together, the first one does."""
    target = getattr(model, 'target_log_prob_fn', model)
    return target.is_chief if isinstance(target, SumOverData) else True


def _knows_its_metric(model: Any) -> bool:
    """Whether a model has too many coordinates for scales to be learned, and says itself who sets whose."""
    return getattr(model, 'has_separable_metric', False) and model.dimension > MAX_LEARNED


def _seed_of(seed: Any, saved: dict[str, np.ndarray]) -> np.ndarray:
    """int32[2]: what the user gave; or, if None, that of the run that goes on, or a new one."""
    return saved['seed'] if seed is None and saved else np.asarray(seed_words('seed', seed))
