"""How the acceptance of the explicit kernel depends on the angle and the slack of its coupling.

    python -m benchmarks.coupling

prints, for each target and step size, the mean acceptance probability over a grid of angles and slacks, from exact draws
(for the logistic regression, from a Laplace approximation moved by one transition). This is the experiment behind the
defaults of `MetricCoupling`.
"""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow as tf

import tfp_rmhmc as rm
from benchmarks import targets

CASES = [  # target, alpha of SoftAbs, step size, steps
    (targets.banana(2), 1.0, 0.2, 10),
    (targets.funnel(11), 1e6, 0.14, 25),
    (targets.funnel(11), 1e6, 0.2, 18),
    (targets.logistic(200, 10), 1e6, 0.3, 6),
    (targets.logistic(1000, 25), 1e6, 0.3, 6),
    (targets.funnel(51), 1e6, 0.14, 10),
    (targets.gaussian(100), 1e6, 0.3, 4),
]
ANGLES = [1.0, 1.1, 1.2, 1.3, 1.4, np.pi / 2, 1.8]
SLACKS = [0.03, 0.1, 0.2, 0.3, 0.5]


def acceptance_grid(target, alpha, step_size, num_steps, num_chains):
    @tf.function(autograph=False)
    def acceptance(position, angle, slack, seed):
        kernel = rm.ExplicitRiemannianHMC(
            target.log_prob,
            np.float64(step_size),
            num_steps,
            metric=rm.SoftAbsMetric(alpha),
            coupling=rm.MetricCoupling(angle, slack),
        )
        state, results = kernel.one_step(position, kernel.bootstrap_results(position), seed=seed)
        return state, tf.reduce_mean(tf.exp(tf.minimum(results.log_accept_ratio, 0.0)))

    position = tf.constant(target.draws(num_chains, 3))
    position, _ = acceptance(position, tf.constant(1.2, tf.float64), tf.constant(0.3, tf.float64), tf.constant([1, 1]))
    seed = tf.constant([1, 2])
    return np.array(
        [
            [acceptance(position, tf.constant(a, tf.float64), tf.constant(s, tf.float64), seed)[1] for s in SLACKS]
            for a in ANGLES
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--chains', type=int, default=256)
    arguments = parser.parse_args()
    grids = []
    for target, alpha, step_size, num_steps in CASES:
        grid = acceptance_grid(target, alpha, step_size, num_steps, arguments.chains)
        grids.append(grid)
        print(f'\n{target.name}, step size {step_size}, {num_steps} steps: acceptance by angle (rows) and slack (columns)')
        print('angle ' + ''.join(f'{slack:7.2f}' for slack in SLACKS))
        for angle, row in zip(ANGLES, grid, strict=True):
            print(f'{angle:5.2f} ' + ''.join(f'{value:7.2f}' for value in row), flush=True)
    worst = np.min(np.array(grids) / np.max(grids, axis=(1, 2), keepdims=True), axis=0)
    i, j = np.unravel_index(np.argmax(worst), worst.shape)
    print(
        f'\nbest in the worst case: angle {ANGLES[i]:.2f}, slack {SLACKS[j]:.2f}, '
        f'at least {worst[i, j]:.2f} of the best acceptance on every target'
    )


if __name__ == '__main__':
    main()
