"""The paper's appendix on Omega: for each value, explicit trajectories of L = 40 steps of size 0.012 and 0.12."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

import tfp_rmhmc as rm
from tfp_rmhmc.experiment import regression
from tfp_rmhmc.experiment.plot import COLORS, save_figure
from tfp_rmhmc.noise import split_seed

__all__ = ['run', 'trajectory']

OMEGAS = (0.0, 1.0, 10.0, 100.0, 472.0)
NUM_STEPS = 40
# The paper's step size, and one ten times as long. In units of the metric, all steps of the paper's size together are
# as long as half a standard deviation.
STEP_SIZES = (0.012, 0.12)
BETA = 0.01


def trajectory(kernel_of: Any, start: np.ndarray, num_steps: int, seed: int) -> np.ndarray:
    """Positions `[num_steps + 1, D]` along the trajectory of an uncalibrated kernel.

    `kernel_of` returns the kernel for a given number of steps. The momentum depends on the seed only: it is the same
    for every kernel.
    """
    explicit_seed = tf.constant([0, seed])
    # An explicit kernel draws the momentum with one half of its seed and the copies' differences with the other.
    is_explicit = isinstance(kernel_of(tf.constant(1)), rm.UncalibratedExplicitRiemannianHMC)
    kernel_seed = explicit_seed if is_explicit else split_seed(explicit_seed)[0]

    @tf.function(autograph=False)
    def end(num: tf.Tensor) -> tf.Tensor:
        kernel = kernel_of(num)
        return kernel.one_step(tf.constant(start), kernel.bootstrap_results(tf.constant(start)), seed=kernel_seed)[0]

    return np.stack([start] + [end(tf.constant(num)).numpy() for num in range(1, num_steps + 1)])


def run(arguments: argparse.Namespace) -> int:
    """How far each trajectory gets from the implicit one, at the paper's step size and at ten times it, and a picture."""
    dtype = np.dtype(arguments.dtype).type
    x, y = regression.make_data(100, np.array([2.0, 0.0]), 0.3, arguments.seed)
    log_prob, metric = regression.log_density(x, y, BETA), regression.metric(x, BETA)
    start = np.zeros([2], dtype)
    couplings: dict[str, Any] = {f'Omega = {omega:g}': rm.TaoBinding(omega) for omega in OMEGAS}
    couplings['MetricCoupling'] = rm.MetricCoupling(slack=1e-6)
    paths: dict[tuple[str, float], np.ndarray] = {}
    for step in STEP_SIZES:

        def implicit(num: tf.Tensor, step: float = step) -> Any:
            return rm.UncalibratedImplicitRiemannianHMC(log_prob, dtype(step), num, metric=metric)

        paths['implicit', step] = trajectory(implicit, start, NUM_STEPS, arguments.seed)
        for name, coupling in couplings.items():

            def explicit(num: tf.Tensor, step: float = step, coupling: Any = coupling) -> Any:
                return rm.UncalibratedExplicitRiemannianHMC(log_prob, dtype(step), num, metric=metric, coupling=coupling)

            paths[name, step] = trajectory(explicit, start, NUM_STEPS, arguments.seed)

    def distance(name: str, step: float) -> np.ndarray:
        reference = paths['implicit', step]
        gaps = np.linalg.norm(paths[name, step] - reference, axis=1)
        return gaps / np.sqrt(np.sum(np.var(reference, axis=0)))

    print(f'one trajectory, L = {NUM_STEPS}: largest distance from the implicit one, relative to its spread')
    print(f'{"":16}' + ''.join(f'{f"step {step}":>12}' for step in STEP_SIZES))
    for name in couplings:
        print(f'{name:16}' + ''.join(f'{np.max(distance(name, step)):12.3g}' for step in STEP_SIZES))

    def draw(axes: Any) -> None:
        for axis, step in zip(axes, STEP_SIZES, strict=False):
            reference = paths['implicit', step]
            for color, name in zip(COLORS, couplings, strict=False):
                axis.plot(*paths[name, step].T, color=color, lw=1.5, label=name)
                if step == STEP_SIZES[-1]:
                    axes[2].semilogy(np.clip(distance(name, step), 1e-7, 1e6), color=color, lw=1.5)
            axis.plot(*reference.T, 'r--', lw=2, label='implicit')
            center, width = reference.mean(0), np.ptp(reference, axis=0)
            axis.set(title=f'step size {step}', xlabel='w', xlim=center[0] + width[0] * np.array([-1, 1]))
            axis.set_ylim(center[1] + width[1] * np.array([-1, 1]))
        axes[0].set_ylabel('b')
        axes[0].legend(frameon=False, fontsize=8)
        axes[2].set(xlabel='step', ylabel=f'distance, step size {STEP_SIZES[-1]}')

    print(f'figure: {save_figure(pathlib.Path(arguments.out) / "omega.png", draw, 3, 3.8)}')
    return 0
