"""The 10 + 1 dimensional funnel: the paper's Table 1 and its figures 2 to 4."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tfp_rmhmc.experiment.plot import COLORS, save_figure
from tfp_rmhmc.experiment.run import Run, run_kernel

__all__ = ['funnel_log_prob', 'kl_of_v', 'run']

DIMENSION = 11
NAMES = {'nuts': 'NUTS', 'hmc': 'HMC, hand-tuned', 'implicit': 'implicit RMHMC', 'explicit': 'explicit RMHMC'}
# Step size and number of steps. HMC's are the paper's. RMHMC does better with trajectories longer than the paper's 3.5.
SETTINGS = {'hmc': (0.2, 25), 'implicit': (0.4, 18), 'explicit': (0.15, 50)}
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


def make_kernel(kind: str, dtype: Any, metric: str, num_adaptation: int) -> tfp.mcmc.TransitionKernel:
    """The kernel `kind` with its step size; NUTS finds its own."""
    if kind == 'nuts':
        return tfp.mcmc.DualAveragingStepSizeAdaptation(
            tfp.mcmc.NoUTurnSampler(funnel_log_prob, dtype(0.3)),
            num_adaptation_steps=num_adaptation,
            target_accept_prob=dtype(0.75),
        )
    step_size, num_steps = SETTINGS[kind]
    if kind == 'hmc':
        return tfp.mcmc.HamiltonianMonteCarlo(funnel_log_prob, dtype(step_size), num_steps)
    if kind == 'explicit':
        return rm.ExplicitRiemannianHMC(funnel_log_prob, dtype(step_size), num_steps, metric=METRICS[metric]())
    return rm.ImplicitRiemannianHMC(
        funnel_log_prob, dtype(step_size), num_steps, metric=METRICS[metric](), integrator=rm.ImplicitMidpoint()
    )


HEADER = (
    f'{"scheme":16}{"KL of v":>9}{"wall time":>11}{"acceptance":>12}{"N":>8}{"L":>7}{"step size":>11}'
    f'{"ESS of v":>10}{"ESS/s":>8}{"G/draw":>8}'
)


def row(kind: str, result: Run) -> str:
    """A line of the table."""
    v = result.draws[..., 0]
    if not len(v):
        return f'{result.name:16}  interrupted before the first draws'
    step_size, num_steps = SETTINGS.get(kind, (float('nan'), float('nan')))
    if kind == 'nuts':
        step_size, num_steps = result.trace['step_size'][-1, 0], result.trace['n_steps'].mean()
    ess = result.effective_sample_size()
    evaluations = result.trace['metric_evaluations'].mean()
    return (
        f'{result.name:16}{kl_of_v(v):9.4f}{result.seconds:9.1f} s{result.trace["acceptance_rate"].mean():12.2f}'
        f'{v.size:8d}{num_steps:7.0f}{step_size:11.3f}{ess:10.0f}{ess / result.sampling_seconds:8.1f}{evaluations:8.0f}'
        + ('' if result.is_complete else '  (interrupted)')
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
        is_baseline = kind in ('nuts', 'hmc')
        draws, warmup = (
            (num_baseline, max(10, num_baseline // 20)) if is_baseline else (num_draws, max(10, num_draws // 20))
        )
        kernel = make_kernel(kind, dtype, arguments.metric, warmup)
        results[kind] = run_kernel(NAMES[kind], kernel, start, draws, warmup, arguments.seed, arguments.jit)
        print(row(kind, results[kind]), flush=True)
        if not results[kind].is_complete:
            break
    done = {kind: result for kind, result in results.items() if len(result.draws) > 3}
    print('N counts draws of all chains; ESS/s leaves compilation out; G/draw: evaluations of the metric.')
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
    for ours in ('implicit', 'explicit'):
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
    return found


def figures(done: dict[str, Run], out: pathlib.Path) -> list[str]:
    """The paper's figures: marginal of v, draws, KL against draws, autocorrelation."""
    grid = np.linspace(-10.0, 10.0, 200)
    exact = np.exp(-(grid**2) / 18.0) / np.sqrt(18.0 * np.pi)

    def histogram(axes: Any) -> None:
        for axis, (kind, result) in zip(axes, done.items(), strict=True):
            v = np.ravel(result.draws[..., 0])
            axis.hist(v, bins=np.linspace(-10, 10, 41), density=True, color=COLORS[list(NAMES).index(kind)], alpha=0.7)
            axis.plot(grid, exact, color='black', lw=2, label='N(0, 9)')
            axis.set(title=f'{result.name}\nKL {kl_of_v(v):.4f}', xlabel='v', ylim=(0, 0.25))
        axes[0].set_ylabel('density')
        axes[0].legend(frameon=False)

    def scatter(axes: Any) -> None:
        for axis, (kind, result) in zip(axes, done.items(), strict=True):
            flat = np.reshape(result.draws, [-1, DIMENSION])
            flat = flat[:: max(1, len(flat) // 4000)]
            axis.plot(flat[:, 1], flat[:, 0], '.', ms=2, color=COLORS[list(NAMES).index(kind)], alpha=0.5)
            axis.plot(3.0 * np.exp(-grid / 2), grid, 'k:', lw=0.8)
            axis.plot(-3.0 * np.exp(-grid / 2), grid, 'k:', lw=0.8)
            axis.set(title=result.name, xlabel='$x_1$', xlim=(-30, 30), ylim=(-10, 10))
        axes[0].set_ylabel('v')

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
        save_figure(out / 'funnel_marginal.png', histogram, len(done)),
        save_figure(out / 'funnel_draws.png', scatter, len(done)),
        save_figure(out / 'funnel_diagnostics.png', diagnostics, 2),
    ]
    return [path for path in paths if path is not None]
