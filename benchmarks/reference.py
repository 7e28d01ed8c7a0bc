"""`python -m benchmarks.reference [NAME...]`: moments of targets that have no closed form, by long runs of NumPyro's NUTS.

The runs are in coordinates in which NUTS has no trouble (`Target.easy`), so that they share nothing with what they are used
to judge. Moments, their Monte Carlo errors, R-hat and the least effective sample size go to `reference.json`.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from benchmarks import score, targets

# Draws of each of four chains, and warm-up.
CASES = {
    'schools-centred': (targets.half_cauchy_schools, 10_000, 1000),
    'schools-non-centred': (lambda: targets.half_cauchy_schools(centred=False), 10_000, 1000),
    'logistic-1000x25': (targets.logistic, 2_000, 500),
    'horseshoe-42': (targets.horseshoe, 5_000, 1000),
    'hierarchical-logistic-44': (targets.hierarchical_logistic, 4_000, 1000),
    'hierarchical-normal-15': (targets.hierarchical_normal, 10_000, 1000),
    'gaussian-process-3': (targets.gaussian_process, 3_000, 500),
    'robust-regression-10': (targets.robust_regression, 5_000, 500),
    'item-response-56': (targets.item_response, 4_000, 500),
    'log-gaussian-cox-100': (targets.log_gaussian_cox, 4_000, 500),
    'stochastic-volatility-103': (lambda: targets.stochastic_volatility(100), 6_000, 1000),
    'stochastic-volatility-1003': (lambda: targets.stochastic_volatility(1000), 1_500, 500),
}


def moments_of(target: targets.Target, num_draws: int, num_warmup: int) -> tuple[dict, dict]:
    """Coordinate -> mean, deviation and their errors, and how the run went."""
    import jax
    import numpyro
    from numpyro.infer import MCMC, NUTS

    from benchmarks.arrays import in_jax

    arrays = in_jax()

    def mapped(z):
        return (z, 0.0) if target.easy is None else target.easy(arrays, z)

    def potential(z):
        q, log_det = mapped(z)
        return -target.log_prob_in_jax(q) - log_det

    numpyro.set_host_device_count(4)
    kernel = NUTS(potential_fn=potential, dense_mass=target.dimension <= 60, target_accept_prob=0.9)
    mcmc = MCMC(
        kernel, num_warmup=num_warmup, num_samples=num_draws, num_chains=4, chain_method='vectorized', progress_bar=False
    )
    start = 0.1 * np.random.default_rng(1).standard_normal((4, target.dimension))
    mcmc.run(jax.random.PRNGKey(1), init_params=jax.numpy.asarray(start), extra_fields=('diverging',))
    draws = np.asarray(jax.vmap(jax.vmap(lambda z: mapped(z)[0]))(mcmc.get_samples(group_by_chain=True)))
    draws = np.swapaxes(draws, 0, 1)
    watched = range(target.dimension) if target.dimension <= 60 else [*range(4), *range(4, target.dimension, 20)]
    found = {i: score.moments(draws[..., i]) for i in watched}
    return found, {
        'least bulk ESS': round(score.least_bulk_ess(draws[..., list(watched)])),
        'largest R-hat': round(score.worst_r_hat(draws[..., list(watched)]), 4),
        'divergences': int(np.sum(mcmc.get_extra_fields()['diverging'])),
        'draws': draws.shape[0] * draws.shape[1],
    }


def main() -> None:
    stored = json.loads(targets.REFERENCE.read_text()) if targets.REFERENCE.exists() else {'moments': {}, 'runs': {}}
    for name in sys.argv[1:] or CASES:
        make, num_draws, num_warmup = CASES[name]
        begin = time.perf_counter()
        moments, told = moments_of(make(), num_draws, num_warmup)
        print(name, told, f'{time.perf_counter() - begin:.0f} s', flush=True)
        stored['moments'][name] = {str(i): [float(f'{x:.6g}') for x in row] for i, row in moments.items()}
        stored['runs'][name] = told
        targets.REFERENCE.write_text(json.dumps(stored, indent=1))


if __name__ == '__main__':
    main()
