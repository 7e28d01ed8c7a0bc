"""The default of `sample_posterior` beside NUTS: effective samples per gradient and per second, and what they miss."""

from __future__ import annotations

import time
import warnings

import numpy as np

import tfp_rmhmc as rm
from benchmarks import targets
from benchmarks.comparison import largest_z
from tfp_rmhmc.sampling import reuse

TARGETS = {
    'funnel 11': targets.funnel(11),
    'schools, centred': targets.half_cauchy_schools(),
    'stochastic volatility 103': targets.stochastic_volatility(100),
    'logistic 1,000 x 25': targets.logistic(1000, 25),
    'Gaussian 100, scales 0.1 to 10': targets.gaussian(100),
    'Gaussian 20, condition 10^4': targets.correlated_gaussian(),
    'log-Gaussian Cox 100': targets.log_gaussian_cox(10),
    'schools, non-centred': targets.half_cauchy_schools(centred=False),
    'banana': targets.banana(2),
}
NUM_DRAWS, NUM_CHAINS = 1000, 4


def run(quick: bool = False) -> dict:
    """A line for each target, kernel and seed; then the default by NUTS, medians over seeds."""
    found: dict = {}
    seeds = (1,) if quick else (1, 2, 3)
    columns = ['ESS', '/1000 g', '+warm-up', '/s', 'R-hat', '|z|', 'diverged', 's']
    print(f'{"target":32}{"kernel":8}{"seed":>5}' + ''.join(f'{column:>9}' for column in columns))
    for name, target in TARGETS.items():
        ratios = []
        for seed in seeds:
            rows = [_row(name, target, kernel, seed) for kernel in ('auto', 'nuts')]
            found[f'{name} {seed}'] = rows
            ratios.append([rows[0][key] / rows[1][key] for key in ('per_1000', 'per_1000_with_warmup', 'per_second')])
        told = np.median(ratios, axis=0)
        found[name] = told.tolist()
        print(
            f'{name:32}default by NUTS: per gradient {told[0]:.1f}, warm-up counted {told[1]:.1f}, per second {told[2]:.1f}'
        )
    print('ESS: the least bulk effective sample size of any coordinate. Seconds count tracing, compilation and warm-up.')
    print(
        '|z|: the largest of means, standard deviations and (funnel) quantiles against the truth, NaN where none is known.'
    )
    return found


def _row(name: str, target: targets.Target, kernel: str, seed: int) -> dict:
    start = np.random.default_rng(seed).uniform(-2.0, 2.0, size=(NUM_CHAINS, target.dimension))
    reuse.forget()  # what a user waits for the first time
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        result = rm.sample_posterior(
            NUM_DRAWS, target.log_prob, initial_state=start, num_chains=NUM_CHAINS, kernel=kernel, seed=seed
        )
    seconds = time.perf_counter() - begin
    least = float(np.min(result.ess()['x']))
    sampling, warmup = result.gradients['sampling'], result.gradients['warmup']
    row = {
        'ess': least,
        'per_1000': 1e3 * least / sampling,
        'per_1000_with_warmup': 1e3 * least / (sampling + warmup),
        'per_second': least / seconds,
        'r_hat': float(np.max(result.r_hat()['x'])),
        'z': largest_z(target, result.variables()['x']),
        'diverged': float(np.mean(result.trace['diverging'])),
        'seconds': seconds,
        'choice': result.choice,
    }
    print(
        f'{name:32}{kernel:8}{seed:5d}{least:9.0f}{row["per_1000"]:9.2f}{row["per_1000_with_warmup"]:9.2f}'
        f'{row["per_second"]:9.1f}{row["r_hat"]:9.3f}{row["z"]:9.1f}{row["diverged"]:9.4f}{seconds:9.1f}',
        flush=True,
    )
    return row
