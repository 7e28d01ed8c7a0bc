"""The paper's appendix on the prior: 10-D logistic regression under a weak and a strong prior, HMC and explicit RMHMC."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import numpy as np
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tfp_rmhmc.experiment import regression
from tfp_rmhmc.experiment.plot import COLORS, save_figure
from tfp_rmhmc.experiment.run import run_kernel

__all__ = ['run']

BETAS = (0.2, 10.0)


def run(arguments: argparse.Namespace) -> int:
    """Posterior means, accuracy and effective samples under each prior, and a picture of five weights."""
    dtype = np.dtype(arguments.dtype).type
    num_draws = arguments.draws or (50 if arguments.quick else 400)
    rng = np.random.default_rng(arguments.seed)
    means = np.append(rng.normal(size=10), 0.0)
    x, y = regression.make_data(100, means, 0.3, arguments.seed)
    x_test, y_test = regression.make_data(1000, means, 0.3, arguments.seed + 1)
    draws: dict[tuple[float, str], np.ndarray] = {}
    print(f'10-D logistic regression with bias, {arguments.chains} chains of {num_draws} draws')
    print(
        f'{"beta":>5}  {"scheme":16}{"wall time":>10}{"acceptance":>12}{"|mean|":>9}{"accuracy":>10}{"ESS":>7}{"ESS/s":>8}'
    )
    for beta in BETAS:
        log_prob, metric = regression.log_density(x, y, beta), regression.metric(x, beta)
        kernels = {
            'HMC': tfp.mcmc.HamiltonianMonteCarlo(log_prob, dtype(0.12), 5),
            'explicit RMHMC': rm.ExplicitRiemannianHMC(log_prob, dtype(0.35), 5, metric=metric),
        }
        for name, kernel in kernels.items():
            start = np.zeros([arguments.chains, 11], dtype)
            result = run_kernel(name, kernel, start, num_draws, 50, arguments.seed, arguments.jit)
            if not len(result.draws):
                return 130
            flat = np.reshape(result.draws, [-1, 11])
            accuracy = np.mean((np.mean(1.0 / (1.0 + np.exp(-flat @ x_test.T)), axis=0) > 0.5) == (y_test > 0.5))
            ess = min(result.effective_sample_size(i) for i in range(11))
            print(
                f'{beta:5.1f}  {name:16}{result.seconds:8.1f} s{result.trace["acceptance_rate"].mean():12.2f}'
                f'{np.linalg.norm(flat.mean(0)):9.2f}{accuracy:10.3f}{ess:7.0f}{ess / result.sampling_seconds:8.0f}',
                flush=True,
            )
            draws[beta, name] = flat
            if not result.is_complete:
                return 130
    print(f'the data come from weights of norm {np.linalg.norm(means):.2f}; a strong prior pulls them to zero')

    def boxes(axes: Any) -> None:
        for axis, beta in zip(axes, BETAS, strict=True):
            for shift, name, color in ((-0.17, 'HMC', COLORS[0]), (0.17, 'explicit RMHMC', COLORS[1])):
                parts = axis.violinplot(
                    draws[beta, name][:, :5], positions=np.arange(5) + shift, widths=0.3, showextrema=False
                )
                for body in parts['bodies']:
                    body.set(facecolor=color, alpha=0.8)
                axis.plot([], [], color=color, lw=6, label=name)
            axis.plot(np.arange(5), means[:5], 'x', color='red', ms=8, mew=2, label='generating mean')
            axis.set(title=f'beta = {beta}', xlabel='weight', ylim=(-4, 4))
        axes[0].set_ylabel('posterior')
        axes[0].legend(frameon=False, fontsize=8)

    print(f'figure: {save_figure(pathlib.Path(arguments.out) / "prior.png", boxes, 2)}')
    return 0
