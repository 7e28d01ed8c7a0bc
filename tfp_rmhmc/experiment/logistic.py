"""The paper's figure 1: three schemes on a 1-D logistic regression with bias, all from (w, b) = (10, 0)."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tfp_rmhmc.experiment import regression
from tfp_rmhmc.experiment.plot import COLORS, save_figure
from tfp_rmhmc.experiment.run import Run, run_kernel

__all__ = ['run']

MEANS = np.array([2.0, 0.0])
BETA = 0.01


def run(arguments: argparse.Namespace) -> int:
    """Time and end point of each scheme, and a picture of the paths."""
    dtype = np.dtype(arguments.dtype).type
    num_draws = arguments.draws or (20 if arguments.quick else 200)
    x, y = regression.make_data(100, MEANS, 0.3, arguments.seed)
    log_prob, metric = regression.log_density(x, y, BETA), regression.metric(x, BETA)
    kernels = {
        'HMC': tfp.mcmc.HamiltonianMonteCarlo(log_prob, dtype(0.1), 10),
        'implicit RMHMC': rm.ImplicitRiemannianHMC(log_prob, dtype(0.1), 10, metric=metric),
        'explicit RMHMC': rm.ExplicitRiemannianHMC(log_prob, dtype(0.1), 10, metric=metric),
    }
    start = np.array([[10.0, 0.0]], dtype)
    mode = _mode(log_prob, dtype)
    print(f'1-D logistic regression with bias, {num_draws} draws from (10, 0), mode of the posterior {np.round(mode, 2)}')
    print(f'{"scheme":16}{"wall time":>11}{"sampling":>11}{"acceptance":>12}{"draws until near mode":>23}{"mean of w":>11}')
    results: dict[str, Run] = {}
    for name, kernel in kernels.items():
        result = run_kernel(name, kernel, start, num_draws, 0, arguments.seed, arguments.jit)
        if not len(result.draws):
            return 130
        w = result.draws[:, 0, 0]
        near = np.flatnonzero(np.abs(w - mode[0]) < 1.0)
        arrival = str(near[0] + 1) if near.size else f'more than {len(w)}'
        print(
            f'{name:16}{result.seconds:9.1f} s{result.sampling_seconds:9.2f} s'
            f'{result.trace["acceptance_rate"].mean():12.2f}{arrival:>23}{w[len(w) // 2 :].mean():11.2f}',
            flush=True,
        )
        results[name] = result
        if not result.is_complete:
            return 130
    path = save_figure(pathlib.Path(arguments.out) / 'logistic_paths.png', _paths(results, log_prob, dtype, start), 3)
    print(f'figure: {path}')
    return 0


def _mode(log_prob: Any, dtype: Any) -> np.ndarray:
    minimum = tfp.optimizer.bfgs_minimize(
        lambda w: tfp.math.value_and_gradient(lambda w: -log_prob(w), w), tf.zeros([2], dtype)
    )
    return minimum.position.numpy()


def _paths(results: dict[str, Run], log_prob: Any, dtype: Any, start: np.ndarray) -> Any:
    w, b = np.meshgrid(np.linspace(-1.0, 11.0, 80), np.linspace(-3.0, 3.0, 60))
    heights = log_prob(tf.constant(np.stack([w, b], axis=-1), dtype)).numpy()

    def draw(axes: Any) -> None:
        for axis, color, (name, result) in zip(axes, COLORS, results.items(), strict=False):
            axis.contour(
                w, b, heights, levels=heights.max() - np.array([60, 30, 15, 7, 3, 1]), colors='gray', linewidths=0.6
            )
            path = np.concatenate([start, result.draws[:, 0]])
            axis.plot(path[:, 0], path[:, 1], '.-', ms=3, lw=0.6, color=color)
            axis.plot(*MEANS, 'x', color='red', ms=9, mew=2)
            axis.set(title=f'{name}, {result.sampling_seconds:.2f} s', xlabel='w', xlim=(-1, 11), ylim=(-3, 3))
        axes[0].set_ylabel('b')

    return draw
