"""How often the default is right: seeds 1 to 20 of the targets that NUTS gets wrong, against the truth."""

from __future__ import annotations

import warnings

import numpy as np

import tfp_rmhmc as rm
from benchmarks import targets
from benchmarks.comparison import BIASED, largest_z

TARGETS = {'funnel 11': targets.funnel, 'schools, centred': targets.half_cauchy_schools}
NUM_DRAWS, NUM_CHAINS, WORST_R_HAT = 1000, 4, 1.01


def run(quick: bool = False) -> dict:
    """A line for each target and seed; then how many seeds converged without bias."""
    found: dict = {}
    print(f'{"target":20}{"seed":>5}{"R-hat":>8}{"|z|":>6}{"ESS":>7}{"/1000 g, + warm-up":>20}{"diverged":>10}')
    for name, make in TARGETS.items():
        target = make()
        rows = [_row(name, target, seed) for seed in range(1, 4 if quick else 21)]
        found[name] = rows
        print(
            f'{name:20}{sum(row["is_right"] for row in rows)} of {len(rows)}: R-hat below 1.01 and |z| below 4', flush=True
        )
    print('|z|: the largest of means, standard deviations and (funnel) quantiles, in Monte Carlo standard errors.')
    return found


def _row(name: str, target: targets.Target, seed: int) -> dict:
    start = np.random.default_rng(seed).uniform(-2.0, 2.0, size=(NUM_CHAINS, target.dimension))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        result = rm.sample_posterior(NUM_DRAWS, target.log_prob, initial_state=start, num_chains=NUM_CHAINS, seed=seed)
    z, r_hat = largest_z(target, result.variables()['x']), float(np.max(result.r_hat()['x']))
    least, gradients = float(np.min(result.ess()['x'])), sum(result.gradients.values())
    row = {
        'r_hat': r_hat,
        'z': z,
        'ess': least,
        'per_1000_with_warmup': 1e3 * least / gradients,
        'diverged': float(np.mean(result.trace['diverging'])),
        'is_right': bool(r_hat < WORST_R_HAT and z < BIASED),
    }
    print(
        f'{name:20}{seed:5d}{r_hat:8.4f}{z:6.2f}{least:7.0f}{row["per_1000_with_warmup"]:20.1f}{row["diverged"]:10.4f}',
        flush=True,
    )
    return row
