"""A graph against XLA on many targets and sizes, and which of the two `prefers_xla` chooses."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import tfp_rmhmc as rm
from benchmarks import targets
from benchmarks.measure import microseconds_of_step

# Target, metric, numbers of chains. The constants of `prefers_xla` come from the first list.
_SOFTABS, _HESSIAN = rm.SoftAbsMetric(), rm.HessianMetric()
LOGISTIC = targets.logistic(1000, 25)
FITTED = [
    (targets.eight_schools(), _SOFTABS, (1, 64, 512, 2048, 20_000)),
    (targets.logistic(50, 11), _SOFTABS, (64, 512, 2048)),
    (targets.logistic(1000, 11), _SOFTABS, (64, 512, 2048)),
    (targets.logistic(50, 18), _SOFTABS, (1, 16, 128)),
    (targets.logistic(1000, 18), _SOFTABS, (1, 16, 128)),
    (targets.logistic(50, 25), _SOFTABS, (1, 8, 64)),
    (LOGISTIC, _SOFTABS, (1, 8, 64)),
    (targets.logistic(50, 51), _SOFTABS, (1, 8)),
    (targets.logistic(1000, 51), _SOFTABS, (1, 8)),
    (targets.logistic(10000, 51), _SOFTABS, (1, 8)),
    (targets.logistic(50, 11), _HESSIAN, (64, 512, 2048)),
    (targets.logistic(50, 25), _HESSIAN, (8, 64, 512)),
    (LOGISTIC, _HESSIAN, (8, 64, 512)),
    (targets.logistic(50, 51), _HESSIAN, (1, 8, 64)),
    (targets.logistic(1000, 51), _HESSIAN, (1, 8, 64)),
    (targets.logistic(100, 100), _HESSIAN, (1, 8, 64)),
]
OTHERS = [
    (targets.funnel(5), _SOFTABS, (20_000,)),
    (targets.funnel(11), _SOFTABS, (1, 64, 512, 4096)),
    (targets.funnel(51), _SOFTABS, (1, 8)),
    (targets.banana(5), _SOFTABS, (20_000,)),
    (targets.banana(10), _SOFTABS, (1, 64, 512, 2048)),
    (targets.banana(20), _SOFTABS, (1, 64)),
    (targets.logistic(50, 5), _SOFTABS, (20_000,)),
    (targets.logistic(50, 5), _HESSIAN, (20_000,)),
    (LOGISTIC, rm.GaussNewtonMetric.of_design(LOGISTIC.inputs, 'bernoulli'), (1, 16, 64, 256)),
    (targets.stochastic_volatility(40), _SOFTABS, (1, 8)),
    (targets.log_gaussian_cox(5), _HESSIAN, (1, 64, 512)),
    (targets.log_gaussian_cox(10), _HESSIAN, (1, 8)),
]
NUM_STEPS = 3


def run(quick: bool = False) -> dict:
    """Microseconds for each chain and step, in trajectories of three steps."""
    found: dict = {}
    for title, cases in (('targets of the fit', FITTED), ('other targets', OTHERS)):
        print(f'\n{title}: us for each chain and step, the choice, and by how much it is slower than the faster')
        print(f'{"target":28}{"metric":12}{"chains":>7}{"graph":>10}{"XLA":>10}{"XLA / graph":>13}   choice')
        for target, metric, sizes in cases[:3] if quick else cases:
            for num_chains in sizes[:2] if quick else sizes:
                start = tf.constant(target.draws(num_chains, 3))
                kernel = rm.ExplicitRiemannianHMC(target.log_prob, np.float64(0.1), NUM_STEPS, metric=metric)
                graph, xla = (microseconds_of_step(kernel, start, NUM_STEPS, jit, 0.6) for jit in (False, True))
                chooses_xla = rm.prefers_xla(target.log_prob, start, metric)
                regret = (xla if chooses_xla else graph) / min(graph, xla)
                kind = type(metric).__name__.removesuffix('Metric')
                found[f'{target.name} {kind} {num_chains}'] = {'graph': graph, 'xla': xla, 'regret': regret}
                print(
                    f'{target.name:28}{kind:12}{num_chains:7d}{graph:10.1f}{xla:10.1f}{xla / graph:13.2f}   '
                    f'{"XLA" if chooses_xla else "graph":6}{regret:5.2f}',
                    flush=True,
                )
    return found
