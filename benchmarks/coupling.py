"""How the acceptance of the explicit kernel depends on the angle, stiffness and slack of its coupling.

    python -m benchmarks coupling

prints, for each target, metric and step size, the mean acceptance probability over a grid of angles and stiffnesses, and
then over slacks, from exact draws (for the logistic regression, from a Laplace approximation). This is the experiment
behind the defaults of `MetricCoupling`.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import tfp_rmhmc as rm
from benchmarks import targets

CASES = [  # target, metric, step size, steps
    (targets.banana(2), rm.SoftAbsMetric(1.0), 0.2, 10),
    (targets.funnel(11), rm.SoftAbsMetric(), 0.14, 25),
    (targets.funnel(11), rm.SoftAbsMetric(), 0.2, 18),
    (targets.logistic(200, 10), rm.SoftAbsMetric(), 0.3, 6),
    (targets.logistic(200, 10), rm.SoftAbsMetric(), 0.6, 3),
    (targets.funnel(51), rm.SoftAbsMetric(), 0.14, 10),
    (targets.gaussian(100), rm.SoftAbsMetric(), 0.3, 4),
    (targets.logistic(200, 10), rm.MongeMetric(0.1), 0.03, 10),
    (targets.logistic(200, 10), rm.EuclideanMetric(), 0.1, 10),
    (targets.gaussian(100), rm.EuclideanMetric(), 0.05, 10),
]
ANGLES = [1.2, 1.3, 1.4, 1.5, 1.6]
STIFFNESSES = [0.2, 0.3, 0.4, 0.5, 0.6]
SLACKS = [0.15, 0.25, 0.3, 0.4, 0.6]
LONG_CASES = [  # target, metric, step sizes; trajectories of 6.3 units of time
    (targets.banana(2), rm.SoftAbsMetric(1.0), (0.14, 0.07)),
    (targets.funnel(11), rm.SoftAbsMetric(), (0.15, 0.08)),
    (targets.funnel(51), rm.SoftAbsMetric(), (0.14, 0.07)),
    (targets.logistic(200, 10), rm.SoftAbsMetric(), (0.4, 0.2)),
    (targets.gaussian(100), rm.SoftAbsMetric(), (0.3, 0.15)),
]
RATES = [1.0, 1.5, 2.0, 3.0, float('inf')]  # the largest ratio k of gaps of momenta and positions
DEFAULTS = {'angle': 1.4, 'stiffness': 0.45, 'slack': 0.3}


def run(quick: bool = False) -> dict:
    """The acceptances by case; prints each as it comes."""
    num_chains = 32 if quick else 128
    by_case = {}
    grids = []
    for target, metric, step_size, num_steps in CASES:

        @tf.function(autograph=False)
        def acceptance(position, angle, stiffness, slack, target=target, metric=metric, step=step_size, steps=num_steps):
            kernel = rm.ExplicitRiemannianHMC(
                target.log_prob,
                np.float64(step),
                steps,
                metric=metric,
                coupling=rm.MetricCoupling(angle, slack, stiffness),
            )
            _, results = kernel.one_step(position, kernel.bootstrap_results(position), seed=(1, 2))
            return tf.reduce_mean(tf.exp(tf.minimum(results.log_accept_ratio, 0.0)))

        position = tf.constant(target.draws(num_chains, 3))

        def at(acceptance=acceptance, position=position, **changes):
            setting = {name: tf.constant(value, tf.float64) for name, value in (DEFAULTS | changes).items()}
            return float(acceptance(position, **setting))

        grid = np.array([[at(angle=angle, stiffness=stiffness) for stiffness in STIFFNESSES] for angle in ANGLES])
        slacks = [at(slack=slack) for slack in SLACKS]
        grids.append(grid)
        name = f'{target.name} {type(metric).__name__} step {step_size}'
        by_case[name] = {'angle_by_stiffness': grid.tolist(), 'slack': slacks}
        print(f'\n{name}: acceptance by angle (rows) and stiffness (columns)')
        print('angle ' + ''.join(f'{stiffness:7.2f}' for stiffness in STIFFNESSES))
        for angle, row in zip(ANGLES, grid, strict=True):
            print(f'{angle:5.2f} ' + ''.join(f'{value:7.2f}' for value in row))
        print('slack ' + ''.join(f'{slack:7.2f}' for slack in SLACKS))
        print('      ' + ''.join(f'{value:7.2f}' for value in slacks), flush=True)
    worst = np.min(np.array(grids) / np.max(grids, axis=(1, 2), keepdims=True), axis=0)
    i, j = np.unravel_index(np.argmax(worst), worst.shape)
    print(
        f'\nbest in the worst case: angle {ANGLES[i]:.2f}, stiffness {STIFFNESSES[j]:.2f}, '
        f'at least {worst[i, j]:.2f} of the best acceptance in every case'
    )
    by_case['long'] = _long_trajectories(num_chains)
    return by_case


def _long_trajectories(num_chains: int) -> dict:
    """Acceptance of long trajectories by step size and the bound of k, for metrics that follow the curvature."""
    found = {}
    print('\nlong trajectories: acceptance by the bound of k')
    print(f'{"":28}' + ''.join(f'{rate:7.1f}' for rate in RATES))
    for target, metric, step_sizes in LONG_CASES:
        position = tf.constant(target.draws(num_chains, 3))
        for step_size in step_sizes:
            row = []
            for rate in RATES:

                @tf.function(autograph=False)
                def acceptance(position, target=target, metric=metric, step=step_size, rate=rate):
                    coupling = rm.MetricCoupling(max_rate=rate)
                    kernel = rm.ExplicitRiemannianHMC(
                        target.log_prob, np.float64(step), round(6.3 / step), metric=metric, coupling=coupling
                    )
                    _, results = kernel.one_step(position, kernel.bootstrap_results(position), seed=(1, 2))
                    return tf.reduce_mean(tf.exp(tf.minimum(results.log_accept_ratio, 0.0)))

                row.append(float(acceptance(position)))
            name = f'{target.name} step {step_size}'
            found[name] = row
            print(f'{name:28}' + ''.join(f'{value:7.2f}' for value in row), flush=True)
    return found
