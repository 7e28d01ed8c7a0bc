"""The integrators of the related work, each beside the one that it is to improve on."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from benchmarks import targets


def run(quick: bool = False) -> dict:
    """Split HMC for each gradient, and Lagrangian steps on a Monge patch beside steps of HMC."""
    return {'split': _split(quick), 'monge': _monge(quick)}


def _split(quick: bool) -> dict:
    """Logistic regression 1,000 x 25: trajectories of pi/2 in 1, 2, 3, ... steps, until nine in ten are accepted."""
    target = targets.logistic(1000, 25)
    split = rm.GaussianSplit.laplace(target.log_prob, np.zeros(25))
    num_draws, num_chains, found = (100 if quick else 500), 8, {}
    start = tf.constant(target.draws(num_chains, 5))
    print(
        f'{"logistic 1,000 x 25":34}{"steps":>6}{"step size":>11}{"acceptance":>12}{"least ESS":>11}{"per 1,000 grad.":>17}'
    )
    for name, integrator in {'split': split, 'leapfrog, the same mass': rm.SeparableLeapfrog()}.items():

        @tf.function(autograph=False, jit_compile=True)
        def chain(step_size, num_steps, integrator=integrator):
            kernel = rm.RiemannianHMC(target.log_prob, step_size, num_steps, metric=split.metric, integrator=integrator)
            return tfp.mcmc.sample_chain(
                num_draws,
                start,
                kernel=kernel,
                num_burnin_steps=20,
                trace_fn=lambda _, results: results.log_accept_ratio,
                seed=(1, 2),
            )

        for num_steps in range(1, 13):
            step_size = 0.5 * np.pi / num_steps
            draws, ratio = chain(tf.constant(step_size, tf.float64), tf.constant(num_steps))
            acceptance = float(np.exp(np.minimum(ratio, 0.0)).mean())
            centred = draws - tf.reduce_mean(draws, axis=[0, 1])
            both = tf.concat([centred, tf.square(centred)], axis=-1)
            ess = float(np.min(tfp.mcmc.effective_sample_size(both, cross_chain_dims=1, filter_beyond_positive_pairs=True)))
            rate = 1000.0 * ess / (num_draws * num_chains * num_steps)
            found[f'{name} {num_steps}'] = {'acceptance': acceptance, 'ess': ess, 'ess_per_1000_gradients': rate}
            print(f'{name:34}{num_steps:6}{step_size:11.3f}{acceptance:12.3f}{ess:11.0f}{rate:17.0f}', flush=True)
            if acceptance > 0.9:
                break
    return found


def _monge(quick: bool) -> dict:
    """Milliseconds of a step, the least of rounds in which all take turns: other work on the machine hits all alike."""
    target, found = targets.logistic(1000, 25), {}
    num_steps, num_rounds = 30, 5 if quick else 20
    print(
        f'\n{"Monge, logistic 1,000 x 25":34}{"HMC":>8}{"Lagrangian":>12}{"ratio":>7}{"coupling":>10}{"ratio":>7}  ms/step'
    )
    for num_chains in (8,) if quick else (8, 64):
        start = tf.constant(target.draws(num_chains, 5))
        metric = rm.MongeMetric(0.1)
        kernels = [
            tfp.mcmc.HamiltonianMonteCarlo(target.log_prob, np.float64(0.01), num_steps),
            rm.RiemannianHMC(target.log_prob, np.float64(0.01), num_steps, metric=metric, integrator=rm.Lagrangian()),
            rm.RiemannianHMC(target.log_prob, np.float64(0.01), num_steps, metric=metric),
        ]
        for jit in (True, False):
            transitions = [
                tf.function(
                    lambda q, kernel=kernel: kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))[0],
                    autograph=False,
                    jit_compile=jit,
                )
                for kernel in kernels
            ]
            seconds = np.array([[_seconds(transition, start) for transition in transitions] for _ in range(num_rounds + 1)])
            hmc, lagrangian, coupling = 1000.0 * seconds[1:].min(axis=0) / num_steps
            mode = 'XLA' if jit else 'graph'
            name = f'{num_chains} chains, {mode}'
            found[name] = {'hmc': hmc, 'lagrangian': lagrangian, 'coupling': coupling}
            print(
                f'{name:34}{hmc:8.3f}{lagrangian:12.3f}{lagrangian / hmc:7.2f}{coupling:10.3f}{coupling / hmc:7.2f}',
                flush=True,
            )
    return found


def _seconds(transition, start: tf.Tensor) -> float:
    begin = time.perf_counter()
    transition(start).numpy()
    return time.perf_counter() - begin
