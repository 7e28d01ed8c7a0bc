"""`python -m benchmarks.reference [NAME...]`: moments of targets that have no closed form, by long runs of other samplers.

NumPyro's NUTS, in coordinates in which it has no trouble (`Target.easy`). For the horseshoe there are none (3 % of the
transitions diverge, and the local scales come out 6 % too narrow), so there a Gibbs sampler. Moments, their Monte Carlo
errors, R-hat and the least effective sample size go to `reference.json`.
"""

from __future__ import annotations

import json
import re
import sys
import time

import numpy as np

from benchmarks import score, targets

# Draws of each of four chains, and warm-up.
CASES = {
    'schools-centred': (targets.half_cauchy_schools, 10_000, 1000),
    'schools-non-centred': (lambda: targets.half_cauchy_schools(centred=False), 10_000, 1000),
    'logistic-1000x25': (targets.logistic, 2_000, 500),
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
    return found, _told(draws[..., list(watched)]) | {'divergences': int(np.sum(mcmc.get_extra_fields()['diverging']))}


def horseshoe_moments(num_draws: int = 2000, num_warmup: int = 500, thinning: int = 5) -> tuple[dict, dict]:
    """Of `targets.horseshoe`, by Gibbs sampling with auxiliary scales (Makalic and Schmidt 2016); Metropolis for sigma."""
    target, num_chains = targets.horseshoe(), 32
    x, y = target.inputs, target.labels
    num, dimension = x.shape
    rng = np.random.default_rng(1)
    gram, product = x.T @ x, x.T @ y
    local, local_aux = np.ones((2, num_chains, dimension))
    tau, tau_aux, log_sigma = np.full(num_chains, 0.2), np.ones(num_chains), np.zeros(num_chains)
    kept = []

    def inverse_gamma(shape: float, scale: np.ndarray) -> np.ndarray:
        return scale / rng.gamma(shape, size=scale.shape)

    for step in range(num_warmup + num_draws * thinning):
        weight = np.exp(-2.0 * log_sigma)[:, None, None]
        prior = np.eye(dimension) / np.square(tau[:, None] * local)[..., None]
        root = np.linalg.cholesky(weight * gram + prior)
        noise = rng.standard_normal((num_chains, dimension, 1))
        scores = np.linalg.solve(root, weight * product[:, None]) + noise
        beta = np.linalg.solve(np.swapaxes(root, 1, 2), scores)[..., 0]
        local = np.sqrt(inverse_gamma(1.0, 1.0 / local_aux + 0.5 * np.square(beta / tau[:, None])))
        local_aux = inverse_gamma(1.0, 1.0 + np.square(1.0 / local))
        squares = np.sum(np.square(beta / local), axis=1)
        tau = np.sqrt(inverse_gamma(0.5 * (dimension + 1.0), 1.0 / tau_aux + 0.5 * squares))
        tau_aux = inverse_gamma(1.0, 1.0 / 0.2**2 + np.square(1.0 / tau))
        residuals = np.sum(np.square(y - beta @ x.T), axis=1)
        for _ in range(2):
            proposed = log_sigma + 0.2 * rng.standard_normal(num_chains)
            levels = [-num * s - 0.5 * residuals * np.exp(-2.0 * s) - 0.5 * s * s for s in (proposed, log_sigma)]
            log_sigma = np.where(np.log(rng.uniform(size=num_chains)) < levels[0] - levels[1], proposed, log_sigma)
        if step >= num_warmup and step % thinning == 0:
            kept.append(np.concatenate([log_sigma[:, None], np.log(tau)[:, None], np.log(local), beta], axis=1))
    draws = np.array(kept)
    return {i: score.moments(draws[..., i]) for i in range(draws.shape[-1])}, _told(draws)


def _told(draws: np.ndarray) -> dict:
    """How a run went, of draws `[draws, chains, D]`."""
    return {
        'least bulk ESS': round(score.least_bulk_ess(draws)),
        'largest R-hat': round(score.worst_r_hat(draws), 4),
        'draws': draws.shape[0] * draws.shape[1],
    }


def main() -> None:
    stored = json.loads(targets.REFERENCE.read_text())
    for name in sys.argv[1:] or ['horseshoe-42', *CASES]:
        begin = time.perf_counter()
        if name == 'horseshoe-42':
            moments, told = horseshoe_moments()
        else:
            make, num_draws, num_warmup = CASES[name]
            moments, told = moments_of(make(), num_draws, num_warmup)
        print(name, told, f'{time.perf_counter() - begin:.0f} s', flush=True)
        stored['moments'][name] = {str(i): [float(f'{x:.6g}') for x in row] for i, row in moments.items()}
        stored['runs'][name] = told
        text = json.dumps(stored, indent=1)
        targets.REFERENCE.write_text(re.sub(r'\[[^\[\]]*\]', lambda row: ' '.join(row[0].split()), text) + '\n')


if __name__ == '__main__':
    main()
