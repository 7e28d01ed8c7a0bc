"""Resident memory of one process that runs for long: many transitions, and many calls of `sample_posterior`."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from benchmarks import targets
from benchmarks.measure import resident_megabytes

_CHUNK = 1000  # transitions of a call of the compiled program
_SHORT = {'num_burnin': 20, 'num_adaptation': 60, 'progress': False}


def transitions(num: int) -> list[float]:
    """MB after each chunk of transitions of `ExplicitRiemannianHMC`, one chain and one step each, on a 2-D Gaussian."""
    target = targets.gaussian(2)
    kernel = rm.ExplicitRiemannianHMC(target.log_prob, np.float64(0.3), 1, metric=rm.DiagonalMetric())

    @tf.function(autograph=False, jit_compile=True)
    def chunk(q, results, seed):
        return tfp.mcmc.sample_chain(
            _CHUNK,
            q,
            previous_kernel_results=results,
            kernel=kernel,
            trace_fn=rm.default_trace_fn,
            return_final_kernel_results=True,
            seed=seed,
        )

    q = tf.constant(target.draws(1, 1)[0])
    results = kernel.bootstrap_results(q)
    memory = []
    for i in range(num // _CHUNK):
        drawn = chunk(q, results, tf.constant([i, 0]))
        q, results = drawn.all_states[-1], drawn.final_kernel_results
        memory.append(resident_megabytes())
    return memory


def calls(num: int, **options: object) -> list[float]:
    """MB after each of some calls of `sample_posterior` on the 3-D funnel, each of which traces its programs anew."""
    target = targets.funnel(3)
    memory = []
    for i in range(num):
        start = target.draws(4, i)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # of so short runs
            rm.sample_posterior(50, target.log_prob, initial_state=start, seed=i, **(_SHORT | options))
        memory.append(resident_megabytes())
    return memory


def run(quick: bool = False) -> dict:
    """Memory after a tenth and at the end."""
    num_transitions, num_calls = (100_000, 10) if quick else (1_000_000, 100)
    cases: dict[str, tuple[int, Callable[[], list[float]]]] = {
        'transitions': (num_transitions, lambda: transitions(num_transitions)),
        'calls of sample_posterior': (num_calls, lambda: calls(num_calls)),
        # TensorFlow keeps what XLA has compiled for as long as the process lives.
        'calls with jit_compile=True': (num_calls // 10, lambda: calls(num_calls // 10, jit_compile=True)),
    }
    found = {}
    for name, (num, measure) in cases.items():
        memory = measure()
        tenth, end = memory[max(0, len(memory) // 10 - 1)], memory[-1]
        print(f'{num:9,} {name}: {tenth:.0f} MB resident after a tenth of them, {end:.0f} MB at the end', flush=True)
        found[name] = {'megabytes_after_a_tenth': tenth, 'megabytes_at_the_end': end, 'megabytes': memory}
    return found
