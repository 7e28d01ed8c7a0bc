"""The 10 + 1 dimensional funnel: the paper's Table 1 and its figures 2 to 4, and what the package does by default."""

from __future__ import annotations

import argparse
import pathlib
import time
import warnings
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tfp_rmhmc.experiment.plot import COLORS, save_figure
from tfp_rmhmc.experiment.run import Run, run_kernel

__all__ = ['bias_of_v', 'funnel_log_prob', 'kl_of_v', 'run']

DIMENSION = 11
NAMES = {
    'nuts': 'NUTS',
    'hmc': 'HMC, hand-tuned',
    'implicit': 'implicit RMHMC',
    'explicit': 'explicit RMHMC',
    'rnuts': 'no-U-turn RMHMC',
    'default': 'default',
}
# Step size and number of steps. HMC's are the paper's. RMHMC does better with trajectories longer than the paper's 3.5.
SETTINGS = {'hmc': (0.2, 25), 'implicit': (0.4, 18), 'explicit': (0.15, 50)}
# Of v, at which the draws are held against N(0, 9). Beyond 5 and 95 % even exact chains of this length say little.
PROBABILITIES = np.linspace(0.05, 0.95, 19)
# Largest |z| from which on a row is called biased. Of the 19, which are far from independent, an exact sampler's largest is
# 1 to 3.
BIASED = 4.0
METRICS = {
    'softabs': lambda: rm.SoftAbsMetric(structure='arrowhead'),  # v scales all others alike
    'softabs-1': lambda: rm.SoftAbsMetric(1.0, structure='arrowhead'),
    'diagonal': lambda: rm.DiagonalMetric(),
    'monge': lambda: rm.MongeMetric(),
    'euclidean': lambda: rm.EuclideanMetric(),
}


def funnel_log_prob(q: tf.Tensor) -> tf.Tensor:
    """v ~ N(0, 9) and x_i ~ N(0, exp(-v)), with v the first coordinate; unnormalised."""
    v, x = q[..., 0], q[..., 1:]
    return -tf.square(v) / 18.0 + 0.5 * x.shape[-1] * v - 0.5 * tf.exp(v) * tf.reduce_sum(tf.square(x), axis=-1)


def kl_of_v(v: np.ndarray) -> float:
    """KL(N(0, 9) || N(mean, variance)) with the moments of the draws, the paper's figure of merit."""
    mean, variance = np.mean(v), np.var(v)
    return float(0.5 * (9.0 / variance + mean**2 / variance - 1.0 + np.log(variance / 9.0)))


def bias_of_v(v: np.ndarray, ess: float) -> float:
    """The largest |z| of v's quantiles: how many standard errors the shares of draws below them are off, by N(0, 9).

    Mean and variance alone, as in the KL divergence, hide a neck that was never entered. The standard error is that of
    `ess` independent draws.

    Args:
      v: draws, of any shape.
      ess: the effective sample size of v.
    """
    normal = tfp.distributions.Normal(np.float64(0.0), 3.0)
    shares = np.mean(np.ravel(v)[:, None] < np.asarray(normal.quantile(PROBABILITIES)), axis=0)
    errors = np.sqrt(PROBABILITIES * (1.0 - PROBABILITIES) / ess)
    return float(np.max(np.abs(shares - PROBABILITIES) / errors))


def make_kernel(kind: str, dtype: Any, metric: str, num_adaptation: int) -> tfp.mcmc.TransitionKernel:
    """The kernel `kind` with its step size; those without a U-turn find their own."""
    if kind in ('nuts', 'rnuts'):
        # v sets the scale of all others; -0.8 is the logarithm of its own, given them.
        separable = rm.SeparableMetric(lambda v, x: [-0.8, -0.5 * v], blocks=[[0], list(range(1, DIMENSION))])
        return tfp.mcmc.DualAveragingStepSizeAdaptation(
            tfp.mcmc.NoUTurnSampler(funnel_log_prob, dtype(0.3))
            if kind == 'nuts'
            else rm.RiemannianNUTS(funnel_log_prob, dtype(0.3), metric=separable),
            num_adaptation_steps=num_adaptation,
            target_accept_prob=dtype(0.75 if kind == 'nuts' else 0.85),
        )
    step_size, num_steps = SETTINGS[kind]
    if kind == 'hmc':
        return tfp.mcmc.HamiltonianMonteCarlo(funnel_log_prob, dtype(step_size), num_steps)
    if kind == 'explicit':
        return rm.ExplicitRiemannianHMC(funnel_log_prob, dtype(step_size), num_steps, metric=METRICS[metric]())
    return rm.ImplicitRiemannianHMC(
        funnel_log_prob, dtype(step_size), num_steps, metric=METRICS[metric](), integrator=rm.ImplicitMidpoint()
    )


def run_default(start: np.ndarray, num_draws: int, seed: int, jit_compile: bool | None) -> Run:
    """`sample_posterior` as it comes, from the same start; it warms up for its usual 900 transitions."""
    warmup: dict[str, Any] = {}
    if num_draws < 100:  # a trial
        warmup = {'num_burnin': num_draws, 'num_adaptation': num_draws}
    begin = time.perf_counter()
    # As for the other kernels the first twentieth, in which programs are made, does not count as sampling.
    first = -(-num_draws // 20)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # of R-hat, which so few draws cannot know
            result = rm.sample_posterior(
                first,
                funnel_log_prob,
                initial_state=start,
                num_chains=len(start),
                seed=seed,
                jit_compile=jit_compile,
                chunk_size=first,
                **warmup,
            )
        middle = time.perf_counter()
        if num_draws > first and not result.is_partial:
            result = result.extend(num_draws - first)
    except KeyboardInterrupt:
        return Run(NAMES['default'], np.zeros([0, *start.shape]), {}, time.perf_counter() - begin, float('nan'), False)
    end = time.perf_counter()
    draws = np.asarray(result.draws)
    rate = (end - middle) / (len(draws) - first) if len(draws) > first else float('nan')
    return Run(NAMES['default'], draws, result.trace, end - begin, rate * len(draws), not result.is_partial)


HEADER = (
    f'{"scheme":16}{"KL of v":>9}{"wall time":>11}{"acceptance":>12}{"N":>8}{"L":>7}{"step size":>11}'
    f'{"ESS of v":>10}{"ESS/s":>8}{"G/draw":>8}{"max |z|":>9}'
)


NOTE = f"""\
N counts draws of all chains; ESS/s leaves compilation and warm-up out; G/draw: evaluations of the metric, each of them a
Hessian and its factorisation for implicit and explicit RMHMC, and a few multiplications for the last two rows.
max |z|: by how many standard errors the quantiles of v, from 5 to 95 %, are off, at most. A row above {BIASED:.0f} is
biased, and the ESS of a biased sampler means nothing: it counts draws of another distribution. NUTS and HMC do not enter
the funnel's neck, which mean and variance, and so the KL of v, hide. They make 25 times as many draws."""


def row(kind: str, result: Run) -> str:
    """A line of the table."""
    v = result.draws[..., 0]
    if not len(v):
        return f'{result.name:16}  interrupted before the first draws'
    step_size, num_steps = SETTINGS.get(kind, (0.0, 0.0))
    if kind not in SETTINGS:
        step_size, num_steps = result.trace['step_size'][-1, 0], result.trace['n_steps'].mean()
    ess = result.effective_sample_size()
    bias = bias_of_v(v, ess)
    evaluations = result.trace['metric_evaluations'].mean()
    return (
        f'{result.name:16}{kl_of_v(v):9.4f}{result.seconds:9.1f} s{result.trace["acceptance_rate"].mean():12.2f}'
        f'{v.size:8d}{num_steps:7.0f}{step_size:11.3f}{ess:10.0f}{ess / result.sampling_seconds:8.1f}{evaluations:8.0f}'
        f'{bias:9.1f}' + ('  biased' if bias > BIASED else '') + ('' if result.is_complete else '  (interrupted)')
    )


def run(arguments: argparse.Namespace) -> int:
    """The table and the figures."""
    dtype = np.dtype(arguments.dtype).type
    kinds = list(NAMES) if arguments.kernel == 'all' else [arguments.kernel]
    num_draws = arguments.draws or (100 if arguments.quick else 1000)
    # The baselines make 10^5 draws, as in the paper: each of their draws is a hundred times cheaper.
    num_baseline = 25 * num_draws
    start = np.random.default_rng(arguments.seed).normal(size=(arguments.chains, DIMENSION)).astype(dtype)
    print(f'10 + 1 dimensional funnel, {arguments.chains} chains, {arguments.dtype}, seed {arguments.seed}')
    print(HEADER, flush=True)
    results: dict[str, Run] = {}
    for kind in kinds:
        if kind == 'default':  # which decides by itself what XLA compiles, unless it must not
            results[kind] = run_default(start, num_draws, arguments.seed, None if arguments.jit else False)
        else:
            draws = num_baseline if kind in ('nuts', 'hmc') else num_draws
            warmup = max(10, draws // (5 if kind == 'rnuts' else 20))
            kernel = make_kernel(kind, dtype, arguments.metric, warmup)
            results[kind] = run_kernel(NAMES[kind], kernel, start, draws, warmup, arguments.seed, arguments.jit)
        print(row(kind, results[kind]), flush=True)
        if not results[kind].is_complete:
            break
    done = {kind: result for kind, result in results.items() if len(result.draws) > 3}
    print(NOTE)
    for sentence in verdicts(done):
        print(sentence)
    if done:
        paths = figures(done, pathlib.Path(arguments.out))
        print('figures: ' + (', '.join(paths) if paths else 'none, for want of matplotlib (pip install matplotlib)'))
    return 0 if all(result.is_complete for result in results.values()) else 130


def verdicts(done: dict[str, Run]) -> list[str]:
    """What the table shows, whichever way it went."""
    found = []
    kl = {kind: kl_of_v(result.draws[..., 0]) for kind, result in done.items()}
    for ours in ('implicit', 'explicit', 'rnuts', 'default'):
        for baseline in ('nuts', 'hmc'):
            if ours in kl and baseline in kl and kl[ours] >= kl[baseline]:
                found.append(
                    f'{NAMES[baseline]} has the smaller KL here, {kl[baseline]:.4f}, than {NAMES[ours]}, {kl[ours]:.4f}.'
                )
    if 'explicit' in done and 'implicit' in done:
        rates = {
            kind: done[kind].effective_sample_size() / done[kind].sampling_seconds for kind in ('explicit', 'implicit')
        }
        ratio = rates['explicit'] / rates['implicit']
        comparison = f'{ratio:.2f} times faster' if ratio >= 1 else f'{1 / ratio:.2f} times slower'
        found.append(f'For each effective sample, explicit RMHMC was {comparison} than implicit RMHMC.')
    if 'default' in done:
        rates = {kind: result.effective_sample_size() / result.seconds for kind, result in done.items()}
        told = ', '.join(f'{NAMES[kind]} {rates[kind]:.0f}' for kind in ('implicit', 'explicit', 'rnuts') if kind in rates)
        found.append(
            f'Compilation and warm-up counted, the default made {rates["default"]:.0f} effective samples of v a second'
            + (f'; {told}.' if told else '.')
        )
    return found


def figures(done: dict[str, Run], out: pathlib.Path) -> list[str]:
    """The paper's figures: marginal of v, draws, KL against draws, autocorrelation."""
    grid = np.linspace(-10.0, 10.0, 200)
    exact = np.exp(-(grid**2) / 18.0) / np.sqrt(18.0 * np.pi)
    columns = min(3, len(done))
    rows = -(-len(done) // columns)

    def histogram(axes: Any) -> None:
        for axis, (kind, result) in _pairs(axes, done):
            v = np.ravel(result.draws[..., 0])
            axis.hist(v, bins=np.linspace(-10, 10, 41), density=True, color=COLORS[list(NAMES).index(kind)], alpha=0.7)
            axis.plot(grid, exact, color='black', lw=2, label='N(0, 9)')
            bias = bias_of_v(v, result.effective_sample_size())
            axis.set(title=f'{result.name}\nKL {kl_of_v(v):.4f}, largest |z| {bias:.1f}', xlabel='v', ylim=(0, 0.25))
            axis.set_ylabel('density')
        axes[0].legend(frameon=False)

    def scatter(axes: Any) -> None:
        for axis, (kind, result) in _pairs(axes, done):
            flat = np.reshape(result.draws, [-1, DIMENSION])
            flat = flat[:: max(1, len(flat) // 4000)]
            axis.plot(flat[:, 1], flat[:, 0], '.', ms=2, color=COLORS[list(NAMES).index(kind)], alpha=0.5)
            axis.plot(3.0 * np.exp(-grid / 2), grid, 'k:', lw=0.8)
            axis.plot(-3.0 * np.exp(-grid / 2), grid, 'k:', lw=0.8)
            axis.set(title=result.name, xlabel='$x_1$', ylabel='v', xlim=(-30, 30), ylim=(-10, 10))

    def diagnostics(axes: Any) -> None:
        for kind, result in done.items():
            color = COLORS[list(NAMES).index(kind)]
            v = result.draws[..., 0]
            ends = np.unique(np.geomspace(5, len(v), 60).astype(int))
            axes[0].loglog(ends * v.shape[1], [max(kl_of_v(v[:end]), 1e-6) for end in ends], color=color)
            lags = min(60, len(v) // 2)
            correlation = tfp.stats.auto_correlation(tf.constant(v), axis=0, max_lags=lags, normalize=True)
            axes[1].plot(np.mean(correlation, axis=1), color=color, label=result.name)
        axes[0].set(xlabel='draws, all chains', ylabel='KL of v')
        axes[1].axhline(0.0, color='black', lw=0.5)
        axes[1].set(xlabel='lag', ylabel='autocorrelation of v')
        axes[1].legend(frameon=False, fontsize=8, loc='upper right')  # free of lines, unlike the left panel

    paths = [
        save_figure(out / 'funnel_marginal.png', histogram, columns, rows=rows),
        save_figure(out / 'funnel_draws.png', scatter, columns, rows=rows),
        save_figure(out / 'funnel_diagnostics.png', diagnostics, 2),
    ]
    return [path for path in paths if path is not None]


def _pairs(axes: Any, done: dict[str, Run]) -> Any:
    """An axis for each run; those that are left over are hidden."""
    for axis in axes[len(done) :]:
        axis.set_visible(False)
    return zip(axes, done.items(), strict=False)
