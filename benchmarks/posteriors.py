"""Six posteriors that nobody here wrote: the default of `sample_posterior` and NUTS against reference moments.

Data and moments are posteriordb's (`posteriordb/README.md`). Every run is a process of its own, so that its seconds count
all the tracing and compiling that a user waits for; importing TensorFlow is not counted, and is the same for both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from benchmarks import score, targets

tfd = tfp.distributions
Root = tfd.JointDistributionCoroutineAutoBatched.Root
NUM_DRAWS, NUM_CHAINS = 500, 4
KERNELS = ('auto', 'nuts')
_LIMIT = 1800.0  # seconds, after which a run is given up

# What `sample_posterior` takes after the number of draws, and the scalars of its result by posteriordb's names.
Case = tuple[Any, dict[str, Any], Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]]


def run(quick: bool = False) -> dict:
    """A line for each posterior, kernel and seed; then the default by NUTS, medians over seeds, and what failed."""
    found: dict = {}
    failures = []
    columns = ['R-hat', '|z|', 'ESS', '/1000 g', '+warm-up', '/s', 'diverged', 's', 'core s']
    print(f'{"posterior":26}{"kernel":8}{"seed":>5}' + ''.join(f'{column:>10}' for column in columns))
    for name in CASES:
        ratios = []
        for seed in (1,) if quick else (1, 2, 3):
            rows = [_row(name, kernel, seed) for kernel in KERNELS]
            found[f'{name} {seed}'] = rows
            default, baseline = rows
            if 'error' in default or not (default['r_hat'] < 1.01 and default['z'] < 4.0):
                failures.append(f'{name}, seed {seed}')
            if 'error' not in default and 'error' not in baseline:
                keys = ('per_1000', 'per_1000_with_warmup', 'per_second', 'per_core_second')
                ratios.append([default[key] / baseline[key] for key in keys])
        if ratios:
            told = np.median(ratios, axis=0)
            found[name] = told.tolist()
            print(
                f'{name:26}default by NUTS: per gradient {told[0]:.2f}, warm-up counted {told[1]:.2f}, '
                f'per second {told[2]:.2f}, per core second {told[3]:.2f}'
            )
    print('|z|: the largest of any mean or standard deviation against the reference, both Monte Carlo errors counted.')
    print('ESS: the least bulk effective sample size. Seconds: a fresh process, import not counted, compilation counted.')
    print('Core seconds are the time that cores worked: on a busy machine they say more than seconds do.')
    print(
        'The default has R-hat < 1.01 and |z| < 4 ' + (f'except for: {"; ".join(failures)}' if failures else 'everywhere.')
    )
    found['failures'] = failures
    return found


def _row(name: str, kernel: str, seed: int) -> dict:
    """The figures of a run in a process of its own."""
    command = [sys.executable, '-m', 'benchmarks.posteriors', name, kernel, str(seed)]
    environment = os.environ | {'TF_CPP_MIN_LOG_LEVEL': '3'}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_LIMIT, check=True)
        row = json.loads(ran.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        row = {'error': f'did not end within {_LIMIT:.0f} s'}
    except subprocess.CalledProcessError as error:
        row = {'error': (error.stderr.strip() or 'no message').splitlines()[-1]}
    if 'error' in row:
        print(f'{name:26}{kernel:8}{seed:5d}  {row["error"]}', flush=True)
    else:
        print(
            f'{name:26}{kernel:8}{seed:5d}{row["r_hat"]:10.4f}{row["z"]:10.2f}{row["ess"]:10.0f}{row["per_1000"]:10.2f}'
            f'{row["per_1000_with_warmup"]:10.2f}{row["per_second"]:10.1f}{row["diverged"]:10.4f}{row["seconds"]:10.1f}'
            f'{row["core_seconds"]:10.1f}',
            flush=True,
        )
    return row


def sampled(name: str, kernel: str, seed: int) -> rm.PosteriorDraws:
    """Samples one posterior in this process."""
    model, arguments, _ = CASES[name]()
    if 'shapes' in arguments:  # a log density
        rng = np.random.default_rng(seed)
        arguments = {'initial_state': [rng.uniform(-2.0, 2.0, (NUM_CHAINS, *shape)) for shape in arguments['shapes']]}
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return rm.sample_posterior(NUM_DRAWS, model, num_chains=NUM_CHAINS, kernel=kernel, seed=seed, **arguments)


def measured(name: str, kernel: str, seed: int) -> dict:
    """Samples one posterior in this process and returns its figures."""
    begin, begin_of_work = time.perf_counter(), time.process_time()
    result = sampled(name, kernel, seed)
    seconds, core_seconds = time.perf_counter() - begin, time.process_time() - begin_of_work
    scalars_of = CASES[name]()[2]
    columns = scalars_of({key: value.astype(np.float64) for key, value in result.variables().items()})
    draws = np.stack(list(columns.values()), axis=-1)
    least = score.least_bulk_ess(draws)
    sampling, warmup = result.gradients['sampling'], result.gradients['warmup']
    return {
        'r_hat': score.worst_r_hat(draws),
        'z': score.worst_z(columns, _reference(name)),
        'ess': least,
        'per_1000': 1e3 * least / sampling,
        'per_1000_with_warmup': 1e3 * least / (sampling + warmup),
        'per_second': least / seconds,
        'per_core_second': least / core_seconds,
        'diverged': float(np.mean(result.trace['diverging'])),
        'seconds': seconds,
        'core_seconds': core_seconds,
        'gradients': result.gradients,
        'is_compiled': result.is_compiled,
        'choice': result.choice,
    }


def _file(name: str) -> dict:
    """posteriordb's file of a case: its name up to the comma."""
    return targets.posteriordb_file(name.split(',')[0])


def _reference(name: str) -> score.Truth:
    moments = _file(name)['reference']
    return {key: (m['mean'], m['sd'], m['mcse_mean'], m['mcse_sd']) for key, m in moments.items()}


def _numbered(name: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """The scalars of a vector, by posteriordb's names, which count from 1."""
    return {f'{name}[{i + 1}]': x[..., i] for i in range(x.shape[-1])}


def eight_schools(centred: bool) -> Case:
    """The effects themselves, or their standard scores."""
    data = _file('eight_schools')['data']
    sigma = np.array(data['sigma'], np.float64)

    @tfd.JointDistributionCoroutineAutoBatched
    def model():
        mu = yield Root(tfd.Normal(np.float64(0.0), 5.0, name='mu'))
        tau = yield Root(tfd.HalfCauchy(np.float64(0.0), 5.0, name='tau'))
        if centred:
            theta = yield tfd.Sample(tfd.Normal(mu, tau), 8, name='theta')
        else:
            theta = mu + tau * (yield Root(tfd.Sample(tfd.Normal(np.float64(0.0), 1.0), 8, name='theta_trans')))
        yield tfd.Normal(theta, sigma, name='y')

    def scalars(x):
        theta = x['theta'] if centred else x['mu'][..., None] + x['tau'][..., None] * x['theta_trans']
        return {'mu': x['mu'], 'tau': x['tau'], **_numbered('theta', theta)}

    return model, {'y': np.array(data['y'], np.float64)}, scalars


def autoregression() -> Case:
    """arK."""
    data = _file('arK')['data']
    y, order = np.array(data['y']), data['K']
    lagged = np.stack([y[order - k - 1 : -k - 1] for k in range(order)], axis=-1)

    @tfd.JointDistributionCoroutineAutoBatched
    def model():
        alpha = yield Root(tfd.Normal(np.float64(0.0), 10.0, name='alpha'))
        beta = yield Root(tfd.Sample(tfd.Normal(np.float64(0.0), 10.0), order, name='beta'))
        sigma = yield Root(tfd.HalfCauchy(np.float64(0.0), 2.5, name='sigma'))
        yield tfd.Normal(alpha + tf.linalg.matvec(lagged, beta), sigma, name='y')

    return model, {'y': y[order:]}, lambda x: {'alpha': x['alpha'], 'sigma': x['sigma'], **_numbered('beta', x['beta'])}


def garch() -> Case:
    """garch11: the variance as a recursion, by `tf.scan`."""
    data = _file('garch11')['data']
    y = np.array(data['y'])

    def variances(mu, alpha0, alpha1, beta1):  # [T, chains]
        first = data['sigma1'] ** 2 * tf.ones_like(mu)

        def following(variance, observed):
            return alpha0 + alpha1 * tf.square(observed - mu) + beta1 * variance

        return tf.concat([first[tf.newaxis], tf.scan(following, tf.constant(y[:-1]), first)], axis=0)

    def log_prob(mu, log_alpha0, logit_alpha1, logit_share):
        alpha1, share = tf.sigmoid(logit_alpha1), tf.sigmoid(logit_share)
        variance = variances(mu, tf.exp(log_alpha0), alpha1, share * (1.0 - alpha1))
        likelihood = tfd.Normal(mu, tf.sqrt(variance)).log_prob(y[:, np.newaxis])
        # Flat in the constrained space: log Jacobians of alpha0, alpha1 and beta1 = share (1 - alpha1).
        jacobian = log_alpha0 + tf.math.log(alpha1) + 2.0 * tf.math.log1p(-alpha1) + tf.math.log(share * (1.0 - share))
        return tf.reduce_sum(likelihood, axis=0) + jacobian

    def scalars(x):
        mu, log_alpha0, logit_alpha1, logit_share = x.values()
        alpha1 = 1.0 / (1.0 + np.exp(-logit_alpha1))
        beta1 = (1.0 - alpha1) / (1.0 + np.exp(-logit_share))
        return {'mu': mu, 'alpha0': np.exp(log_alpha0), 'alpha1': alpha1, 'beta1': beta1}

    return log_prob, {'shapes': [(), (), (), ()]}, scalars


def kidscore() -> Case:
    """kidscore_momiq: flat coefficients, so a log density; as they come, neither scaled nor centred."""
    data = _file('kidscore_momiq')['data']
    iq, y = np.array(data['mom_iq'], np.float64), np.array(data['kid_score'], np.float64)

    def log_prob(beta, log_sigma):
        sigma = tf.exp(log_sigma)
        mean = beta[..., :1] + beta[..., 1:] * iq
        likelihood = tf.reduce_sum(tfd.Normal(mean, sigma[..., tf.newaxis]).log_prob(y), axis=-1)
        return likelihood + tfd.HalfCauchy(np.float64(0.0), 2.5).log_prob(sigma) + log_sigma

    return log_prob, {'shapes': [(2,), ()]}, _coefficients_and_scale


def logearn() -> Case:
    """logearn_interaction: all flat, sigma too."""
    data = _file('logearn_interaction')['data']
    height, male = np.array(data['height'], np.float64), np.array(data['male'], np.float64)
    design = np.stack([np.ones_like(height), height, male, height * male], axis=-1)
    y = np.log(np.array(data['earn'], np.float64))

    def log_prob(beta, log_sigma):
        mean = tf.linalg.matvec(tf.constant(design), beta)
        return tf.reduce_sum(tfd.Normal(mean, tf.exp(log_sigma)[..., tf.newaxis]).log_prob(y), axis=-1) + log_sigma

    return log_prob, {'shapes': [(4,), ()]}, _coefficients_and_scale


def _coefficients_and_scale(x: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    beta, log_sigma = x.values()
    return {'sigma': np.exp(log_sigma), **_numbered('beta', beta)}


CASES: dict[str, Callable[[], Case]] = {
    'eight_schools, centred': lambda: eight_schools(centred=True),
    'eight_schools, non-centred': lambda: eight_schools(centred=False),
    'arK': autoregression,
    'garch11, tf.scan': garch,
    'kidscore_momiq': kidscore,
    'logearn_interaction': logearn,
}


if __name__ == '__main__':
    print(json.dumps(measured(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
