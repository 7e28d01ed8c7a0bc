"""Predictions of two small Keras networks from as many draws of HMC and of explicit RMHMC.

Both samplers converge to the same predictive log likelihood, and from finitely many draws either may be ahead by chance.
So there are several seeds, and RMHMC counts as at least as good if the mean difference is above minus one standard error.
"""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm

NUM_DRAWS, NUM_CHAINS = 200, 4
SEEDS = (11, 12, 13, 14, 15, 16)


class Case(NamedTuple):
    """A posterior, the metric of its RMHMC, and trajectory lengths by kernel, in units of the metric or of scales."""

    posterior: rm.keras.KerasPosterior
    metric: rm.Metric
    lengths: dict[str, float]
    x_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def regression() -> Case:
    """1-10-1, tanh, on 40 noisy observations of a sine."""
    import keras

    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2.0, 2.0, size=(80, 1)), axis=0)
    y = np.sin(2.0 * x[:, 0]) + 0.2 * rng.normal(size=80)
    train = np.arange(80) % 2 == 0
    model = keras.Sequential(
        [
            keras.layers.Input((1,)),
            keras.layers.Dense(10, activation='tanh', dtype='float64'),
            keras.layers.Dense(1, dtype='float64'),
        ]
    )
    posterior = rm.keras.make_posterior(model, x[train], y[train], noise_scale=0.2, prior=1.0)
    # Flat directions of a network are flat by far: eigenvalues below 10 are lifted to it.
    return Case(posterior, rm.SoftAbsMetric(0.1), {'hmc': 2.0, 'explicit': 2.0}, x[train], x[~train], y[~train])


def iris() -> Case:
    """4-5-3, tanh, on half of scikit-learn's iris data."""
    import keras
    import sklearn.datasets

    keras.utils.set_random_seed(0)
    x, y = sklearn.datasets.load_iris(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    train = np.random.default_rng(0).permutation(150) < 75
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(5, activation='tanh', dtype='float64'),
            keras.layers.Dense(3, dtype='float64'),
        ]
    )
    posterior = rm.keras.make_posterior(model, x[train], y[train], likelihood='categorical')
    metric = posterior.gauss_newton_metric()
    return Case(posterior, metric, {'hmc': 3.0, 'explicit': 3.0}, x[train], x[~train], y[~train])


CASES = {'regression 1-10-1': regression, 'iris 4-5-3': iris}


def sample(
    case: Case, kernel: str, seed: int, num_draws: int = NUM_DRAWS, length: float | None = None
) -> rm.PosteriorDraws:
    """Draws of `NUM_CHAINS` chains, the step size adapted."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return rm.sample_posterior(
            num_draws,
            case.posterior,
            kernel=kernel,
            metric=case.metric if kernel == 'explicit' else None,
            seed=seed,
            num_chains=NUM_CHAINS,
            num_adaptation=60,
            trajectory_length=case.lengths[kernel] if length is None else length,
            jit_compile=kernel == 'hmc',  # the other would take longer to compile than it saves
        )


def score(case: Case, draws: list[tf.Tensor]) -> float:
    """Mean predictive log likelihood of the test data."""
    return float(np.mean(case.posterior.predict(draws, case.x_test).log_prob(case.y_test)))


def predictions(case: Case, draws: list[tf.Tensor]) -> np.ndarray:
    """Outputs of the network for 40 of its inputs, by draw and chain: `[draws, chains, N * K]`."""
    outputs = case.posterior.predict(draws, case.x_train[:40]).outputs()
    return np.reshape(outputs, [*draws[0].shape[:2], -1])


def r_hat(outputs: np.ndarray) -> float:
    """The largest of any output."""
    return float(rm.PosteriorDraws(outputs, {'lp': outputs[..., 0]}, {}, ['f'], {}).r_hat()['f'].max())


def run(quick: bool = False) -> dict:
    """A line for each network, sampler and seed, and the mean difference with its standard error."""
    found: dict = {}
    num_draws, seeds = (100, SEEDS[:2]) if quick else (NUM_DRAWS, SEEDS)
    for name, make in CASES.items():
        case = make()
        scores: dict[str, list[float]] = {}
        print(f'\n{name}: {num_draws} draws of {NUM_CHAINS} chains')
        print(f'{"sampler":10}{"seed":>5}{"log likelihood":>16}{"R-hat":>8}{"median ESS":>12}{"step":>9}{"seconds":>9}')
        for seed in seeds:
            for kernel in case.lengths:
                begin = time.perf_counter()
                result = sample(case, kernel, seed, num_draws)
                seconds = time.perf_counter() - begin
                outputs = predictions(case, result.draws)
                ess = tfp.mcmc.effective_sample_size(
                    tf.constant(outputs), cross_chain_dims=1, filter_beyond_positive_pairs=True
                )
                row = {
                    'log_likelihood': score(case, result.draws),
                    'r_hat': r_hat(outputs),
                    'median_ess': float(np.median(ess)),
                    'step_size': float(result.trace['step_size'][-1, 0]),
                    'seconds': seconds,
                }
                scores.setdefault(kernel, []).append(row['log_likelihood'])
                found[f'{name} {kernel} {seed}'] = row
                print(
                    f'{kernel:10}{seed:5d}{row["log_likelihood"]:16.4f}{row["r_hat"]:8.3f}{row["median_ess"]:12.0f}'
                    f'{row["step_size"]:9.3f}{seconds:9.0f}',
                    flush=True,
                )
        difference = np.subtract(scores['explicit'], scores['hmc'])
        error = float(np.std(difference, ddof=1) / np.sqrt(len(difference)))
        found[f'{name} difference'] = (float(difference.mean()), error)
        print(
            f'explicit {np.mean(scores["explicit"]):.4f}, HMC {np.mean(scores["hmc"]):.4f}: '
            f'difference {difference.mean():+.4f} with a standard error of {error:.4f}'
        )
    return found
