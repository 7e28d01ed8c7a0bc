"""`peers`: the default beside NUTS of three libraries, WALNUTS and implicit RMHMC, on targets whose truth is known.

One currency: the least bulk effective sample size (ArviZ's) per 1,000 gradients and per second. Beside it the largest |z|
of means, standard deviations and (funnels) quantiles against the truth: who is fast and wrong does not win.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import rivals, score, targets

__all__ = ['plot', 'run']

GENERAL = ('default', 'TFP NUTS', 'NumPyro NUTS', 'nutpie', 'WALNUTS')
RIEMANNIAN = (
    'BlackJAX rmhmc',
    'hamiltorch, explicit',
    'hamiltorch, implicit',
    'MetricCoupling',
    'GeneralizedLeapfrog',
    'ImplicitMidpoint',
    'SymmetricProjection',
    'TaoBinding',
)
TARGETS: dict[str, Callable[[], targets.Target]] = {
    'funnel 11': targets.funnel,
    'funnel 101': lambda: targets.funnel(101),
    'schools, centred': targets.half_cauchy_schools,
    'schools, non-centred': lambda: targets.half_cauchy_schools(centred=False),
    'stochastic volatility 103': lambda: targets.stochastic_volatility(100),
    'stochastic volatility 1,003': lambda: targets.stochastic_volatility(1000),
    'logistic 1,000 x 25': targets.logistic,
    'horseshoe 42': targets.horseshoe,
    'hierarchical logistic 44': targets.hierarchical_logistic,
    'hierarchical normal 15': targets.hierarchical_normal,
    'item response 56': targets.item_response,
    'robust regression 10': targets.robust_regression,
    'Gaussian process 3': targets.gaussian_process,
    'log-Gaussian Cox 100': targets.log_gaussian_cox,
    'banana': targets.banana,
    'Gaussian 20, condition 10^4': targets.correlated_gaussian,
    'arK': lambda: targets.posteriordb('arK'),
    'garch11': lambda: targets.posteriordb('garch11'),
    'kidscore_momiq': lambda: targets.posteriordb('kidscore_momiq'),
    'logearn_interaction': lambda: targets.posteriordb('logearn_interaction'),
}
QUICK = ('funnel 11', 'schools, centred', 'Gaussian 20, condition 10^4')
# The kernels that are made of Hessians are slow to compile: they run where they have something to win.
WITH_HESSIANS = ('funnel 11',)
BIASED = 4.0  # |z|
NOT_CONVERGED = 1.05  # R-hat: above it an effective sample size is a guess
PICTURE = pathlib.Path(__file__).parent / 'peers.png'
_LIMIT = 1800.0  # seconds, after which a run is given up


def run(quick: bool = False) -> dict:
    """A line for each target and sampler; then who made most effective samples for a gradient, and a picture."""
    absent = {name: missing for name in rivals.SAMPLERS if (missing := rivals.missing(name))}
    for name, library in absent.items():
        print(f'{name} is left out: {library} cannot be imported.')
    columns = ['ESS', '/1000 g', '+warm-up', '/s', '/core s', '/s alone', 'R-hat', '|z|', 'diverged', 's']
    print(f'{"target":30}{"sampler":20}' + ''.join(f'{column:>9}' for column in columns))
    found: dict = {}
    for target in QUICK if quick else TARGETS:
        samplers = GENERAL if quick or target not in WITH_HESSIANS else GENERAL + RIEMANNIAN
        found[target] = {name: _row(target, name, 1, quick) for name in samplers if name not in absent}
        right = {name: row for name, row in found[target].items() if 'error' not in row and not row['is_wrong']}
        best = max(right, key=lambda name: right[name]['per_1000_with_warmup'], default='nobody')
        print(f'{target:30}most for a gradient, warm-up counted, of those that are right: {best}', flush=True)
    print('Least bulk ESS of any coordinate. A Hessian counts as D gradients. *: |z| above 4 or R-hat above 1.05.')
    print('/s and /core s count compilation and warm-up (core s: time that cores worked); "alone" counts neither.')
    print('nutpie and WALNUTS call a gradient compiled by JAX from Python, which costs more than most gradients here:')
    print('read their figures per gradient. Kernels with Hessians start from exact draws, with step sizes found by hand.')
    if not quick:
        plot(found, PICTURE)
    return found


def _row(target: str, sampler: str, seed: int, quick: bool) -> dict:
    """The figures of a run in a process of its own."""
    command = [sys.executable, '-m', 'benchmarks.comparison', target, sampler, str(seed), '200' if quick else '1000']
    environment = os.environ | {'TF_CPP_MIN_LOG_LEVEL': '3'}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_LIMIT, check=True)
        row = json.loads(ran.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        row = {'error': f'did not end within {_LIMIT:.0f} s'}
    except subprocess.CalledProcessError as error:
        row = {'error': (error.stderr.strip() or 'no message').splitlines()[-1][:150]}
    if 'error' in row:
        print(f'{target:30}{sampler:20}  {row["error"]}', flush=True)
    else:
        print(
            f'{target:30}{sampler + (" *" if row["is_wrong"] else ""):20}{row["ess"]:9.0f}{row["per_1000"]:9.2f}'
            f'{row["per_1000_with_warmup"]:9.2f}{row["per_second"]:9.1f}{row["per_core_second"]:9.1f}'
            f'{row["per_second_alone"]:9.1f}{row["r_hat"]:9.3f}{row["z"]:9.1f}{row["diverged"]:9.4f}{row["seconds"]:9.1f}',
            flush=True,
        )
    return row


def measured(target_name: str, sampler: str, seed: int, num_draws: int) -> dict:
    """Samples one target in this process and returns its figures."""
    target = TARGETS[target_name]()
    num_draws = num_draws // 5 if sampler in RIEMANNIAN else num_draws
    ran = rivals.SAMPLERS[sampler](target, num_draws, seed)
    least, r_hat = score.least_bulk_ess(ran.draws), score.worst_r_hat(ran.draws)
    z = largest_z(target, ran.draws)
    return {
        'ess': least,
        'per_1000': 1e3 * least / ran.gradients,
        'per_1000_with_warmup': 1e3 * least / (ran.gradients + ran.warmup_gradients),
        'per_second': least / ran.seconds,
        'per_core_second': least / ran.core_seconds,
        'per_second_alone': least / ran.sampling_seconds,
        'r_hat': r_hat,
        'z': z,
        'is_wrong': bool(z >= BIASED or r_hat >= NOT_CONVERGED),
        'diverged': ran.diverged,
        'seconds': ran.seconds,
        'core_seconds': ran.core_seconds,
        'gradients': ran.gradients,
        'warmup_gradients': ran.warmup_gradients,
        'draws': ran.draws.shape[0] * ran.draws.shape[1],
    }


def largest_z(target: targets.Target, draws: np.ndarray) -> float:
    """Of all moments and quantiles that are known; NaN if none is."""
    truth = target.truth()
    if truth is None:
        return float('nan')
    told = draws if target.constrain is None else target.constrain(draws)
    found = [z for i, row in truth.items() for z in score.moment_z(told[..., i], row)]
    for i, value, probability in target.quantiles:
        found.append(score.share_z(told[..., i] < value, probability))
    return float(np.max(found))


def plot(found: dict, path: pathlib.Path) -> None:
    """Effective samples per 1,000 gradients, warm-up counted: a row for each target, a mark for each sampler."""
    import matplotlib

    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    colors = dict(zip(GENERAL, ('#d62728', '#7f7f7f', '#1f77b4', '#2ca02c', '#9467bd'), strict=True))
    figure, axes = plt.subplots(figsize=(8.5, 0.36 * len(found) + 1.4))
    for height, rows in enumerate(reversed(found.values())):
        values: list[Any] = []
        for name, color in colors.items():
            row = rows.get(name)
            if row is None or 'error' in row:
                continue
            value = row['per_1000_with_warmup']
            values.append(value)
            face = 'none' if row['is_wrong'] else color
            size = 70 if name == 'default' else 42
            axes.scatter(value, height, s=size, facecolors=face, edgecolors=color, linewidths=1.4, zorder=3)
        if values:
            axes.plot([min(values), max(values)], [height, height], color='0.85', linewidth=1, zorder=1)
    for name, color in colors.items():
        axes.scatter([], [], s=42, color=color, label='tfp_rmhmc, default' if name == 'default' else name)
    axes.scatter([], [], s=42, facecolors='none', edgecolors='0.3', label='biased or not converged')
    axes.set_yticks(range(len(found)), list(reversed(found)))
    axes.set_xscale('log')
    axes.grid(axis='x', which='major', color='0.92')
    axes.set_xlabel('least effective sample size per 1,000 gradients, warm-up counted')
    axes.legend(loc='lower center', bbox_to_anchor=(0.4, 1.0), ncols=3, frameon=False, fontsize=9)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == '__main__':
    print(json.dumps(measured(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
