"""Effective samples for each second and each metric evaluation, at step sizes that each sampler tuned for itself."""

from __future__ import annotations

import time
import warnings

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from benchmarks import peers, targets

LOGISTIC = targets.logistic(1000, 25)
CASES = {  # target, metric of the Riemannian kernels, transitions of adaptation, draws
    'funnel 11': (targets.funnel(11), rm.SoftAbsMetric(), 100, 200),
    'funnel 51': (targets.funnel(51), rm.SoftAbsMetric(), 100, 60),
    # Its Hessian too, at a lower price.
    'logistic 1000 x 25': (LOGISTIC, rm.GaussNewtonMetric.of_design(LOGISTIC.inputs, 'bernoulli'), 100, 200),
    'eight schools, centred': (targets.eight_schools(), None, 100, 300),
    'log-Gaussian Cox 100': (targets.log_gaussian_cox(10), rm.HessianMetric(), 100, 200),
}


def run(quick: bool = False) -> dict:
    """A line for each target and sampler: the least effective sample size of any coordinate."""
    found: dict = {}
    print(
        f'{"target":26}{"sampler":10}{"step":>8}{"accept":>8}{"least ESS":>11}{"ESS/s":>9}{"ESS/1000 G":>12}{"R-hat":>7}'
        f'{"seconds":>9}'
    )
    for name, (target, metric, num_adaptation, num_draws) in CASES.items():
        if quick and target.dimension > 60:
            continue
        for kernel in ('explicit', 'implicit', 'hmc', 'nuts'):
            is_baseline = kernel in ('hmc', 'nuts')
            draws = (num_draws // 4 if quick else num_draws) * (5 if is_baseline else 1)
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')
                result = rm.sample_posterior(
                    draws,
                    target.log_prob,
                    initial_state=target.draws(8, 5),
                    num_chains=8,
                    kernel=kernel,
                    metric=None if is_baseline else metric,
                    num_burnin=100,
                    num_adaptation=num_adaptation * (2 if is_baseline else 1),
                    seed=1,
                )
            seconds = time.perf_counter() - begin
            found[f'{name} {kernel}'] = _row(
                name,
                kernel,
                result.draws.numpy(),
                float(result.trace['step_size'][-1, 0]),
                float(result.trace['acceptance_rate'].mean()),
                seconds,
                float(result.trace['metric_evaluations'].sum()),
            )
        if name in peers.BLACKJAX_CASES and peers.has('blackjax'):
            draws = num_draws // 4 if quick else num_draws
            for step_size, x, acceptance, seconds in peers.blackjax_draws(name, target.draws(8, 5), draws):
                found[f'{name} blackjax {step_size}'] = _row(name, 'blackjax', x, step_size, acceptance, seconds, 0.0)
    found['no-U-turn'] = _no_u_turn(quick)
    print('ESS/s counts everything: tracing, compilation, burn-in and adaptation. G: metric evaluations.')
    print('BlackJAX has no burn-in and no adaptation here: it starts where the others do, with step sizes found by hand.')
    return found


def _no_u_turn(quick: bool) -> dict:
    """The tuned length beside no-U-turn trajectories, with the same metric and acceptance: per 1,000 gradients."""
    cases = {
        'funnel 11, separable': (
            targets.funnel(11),
            rm.SeparableMetric(lambda v, x: [-0.8, -0.5 * v], blocks=[[0], list(range(1, 11))]),
        ),
        'logistic 1,000 x 25, constant': (LOGISTIC, rm.EuclideanMetric(60.0)),
        'stochastic volatility 103': (
            targets.stochastic_volatility(100),
            rm.SeparableMetric(lambda s, path: [-1.5, s[..., 1:]], blocks=[[1, 2], [0, *range(3, 103)]]),
        ),
        'Gaussian 100, scales 0.1 to 10': (targets.gaussian(100), rm.EuclideanMetric()),
    }
    num_draws, found = 200 if quick else 1000, {}
    print(f'\n{"target":34}{"tuned length":>14}{"no-U-turn":>12}   least ESS per 1,000 gradients, 4 chains')
    for name, (target, metric) in cases.items():
        start = tf.constant(target.draws(4, 5))
        inner = rm.RiemannianHMC(target.log_prob, np.float64(0.1), 1, metric=metric, store_parameters_in_results=True)
        kernels = {
            'tuned': rm.WorstCoordinateLengthAdaptation(inner, 600),
            'no-U-turn': rm.RiemannianNUTS(target.log_prob, np.float64(0.1), metric=metric),
        }
        rates = {}
        for kind, kernel in kernels.items():
            adaptive = tfp.mcmc.DualAveragingStepSizeAdaptation(
                kernel, 480, target_accept_prob=np.float64(0.85), reduce_fn=tfp.math.reduce_logmeanexp
            )
            chain = tf.function(
                lambda adaptive=adaptive, start=start: tfp.mcmc.sample_chain(
                    num_draws,
                    start,
                    kernel=adaptive,
                    num_burnin_steps=600,
                    trace_fn=lambda state, results: rm.default_trace_fn(state, results)['n_steps'],
                    seed=(1, 2),
                ),
                autograph=False,
                jit_compile=True,
            )
            draws, steps = chain()
            ess = tfp.mcmc.effective_sample_size(draws, cross_chain_dims=1, filter_beyond_positive_pairs=True)
            rates[kind] = 1000.0 * float(np.min(ess)) / float(np.sum(steps))
        found[name] = rates
        print(f'{name:34}{rates["tuned"]:14.2f}{rates["no-U-turn"]:12.2f}', flush=True)
    return found


def _row(
    name: str, sampler: str, draws: np.ndarray, step_size: float, acceptance: float, seconds: float, evaluations: float
) -> dict:
    """Prints a line and returns its figures; `draws: [num_draws, chains, D]`."""
    ess = tfp.mcmc.effective_sample_size(tf.constant(draws), cross_chain_dims=1, filter_beyond_positive_pairs=True)
    least = float(np.min(ess))
    r_hat = rm.PosteriorDraws(draws, {'lp': draws[..., 0]}, {}, ['x'], {}).r_hat()['x'].max()
    row = {
        'step_size': step_size,
        'acceptance': acceptance,
        'least_ess': least,
        'ess_per_second': least / seconds,
        'ess_per_1000_evaluations': 1000.0 * least / evaluations if evaluations else float('nan'),
        'r_hat': float(r_hat),
        'seconds': seconds,
    }
    print(
        f'{name:26}{sampler:10}{step_size:8.3f}{acceptance:8.2f}{least:11.0f}'
        f'{row["ess_per_second"]:9.2f}{row["ess_per_1000_evaluations"]:12.2f}{r_hat:7.2f}{seconds:9.0f}',
        flush=True,
    )
    return row
