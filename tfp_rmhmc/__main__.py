"""`python -m tfp_rmhmc`: Neal's funnel with HMC and with explicit and implicit Riemannian manifold HMC, as a table."""

from __future__ import annotations

import argparse
import time

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc

__all__ = ['main']


def funnel_log_prob(q: tf.Tensor) -> tf.Tensor:
    """v ~ N(0, 9) and x_i ~ N(0, exp(-v)), with v the first coordinate; unnormalised."""
    v, x = q[..., 0], q[..., 1:]
    return -tf.square(v) / 18.0 + 0.5 * x.shape[-1] * v - 0.5 * tf.exp(v) * tf.reduce_sum(tf.square(x), axis=-1)


def kl_of_v(v: np.ndarray) -> float:
    """KL(N(0, 9) || N(mean, variance)) with the moments of the draws, the paper's figure of merit."""
    mean, variance = np.mean(v), np.var(v)
    return float(0.5 * (9.0 / variance + mean**2 / variance - 1.0 + np.log(variance / 9.0)))


def sample(kernel: tfp.mcmc.TransitionKernel, start: np.ndarray, num_draws: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws `[num_draws, chains, D]` and log accept ratios."""

    @tf.function(autograph=False)
    def run() -> tuple[tf.Tensor, tf.Tensor]:
        return tfp.mcmc.sample_chain(
            num_draws,
            tf.constant(start),
            kernel=kernel,
            num_burnin_steps=20,
            trace_fn=lambda _, results: results.log_accept_ratio,
            seed=(seed, 0),
        )

    return run()


def main() -> None:
    """Runs the samplers on the same funnel and prints a line for each."""
    parser = argparse.ArgumentParser(prog='tfp_rmhmc', description=__doc__.split(':', 1)[1])
    parser.add_argument('--draws', type=int, default=100, help='draws of each chain')
    parser.add_argument('--chains', type=int, default=16)
    parser.add_argument('--seed', type=int, default=1)
    arguments = parser.parse_args()
    step = np.float64
    kernels = {
        'HMC': tfp.mcmc.HamiltonianMonteCarlo(funnel_log_prob, step(0.2), 25),
        'implicit RMHMC': tfp_rmhmc.ImplicitRiemannianHMC(funnel_log_prob, step(0.25), 28),
        'explicit RMHMC': tfp_rmhmc.ExplicitRiemannianHMC(funnel_log_prob, step(0.2), 36),
    }
    print(f'10 + 1 dimensional funnel, {arguments.chains} chains of {arguments.draws} draws')
    print(f'{"scheme":16}{"KL of v":>9}{"acceptance":>12}{"R-hat of v":>12}{"ESS of v":>10}{"seconds":>9}')
    start = np.random.default_rng(arguments.seed).normal(size=(arguments.chains, 11))
    for name, kernel in kernels.items():
        begin = time.perf_counter()
        draws, log_accept_ratio = sample(kernel, start, arguments.draws, arguments.seed)
        seconds = time.perf_counter() - begin
        v = draws[..., 0]
        acceptance = np.exp(np.minimum(log_accept_ratio, 0.0)).mean()
        r_hat = tfp.mcmc.potential_scale_reduction(v).numpy()
        ess = tfp.mcmc.effective_sample_size(v, cross_chain_dims=1).numpy()
        print(f'{name:16}{kl_of_v(v.numpy()):9.4f}{acceptance:12.2f}{r_hat:12.3f}{ess:10.0f}{seconds:9.1f}', flush=True)


if __name__ == '__main__':
    main()
