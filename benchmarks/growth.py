"""How time and memory grow with dimensions, chains, data, and the number of transitions."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import tfp_rmhmc as rm
from benchmarks import targets
from benchmarks.measure import exponent, peak_megabytes, seconds_of

METRICS = {'SoftAbs': rm.SoftAbsMetric(), 'Hessian': rm.HessianMetric(), 'Monge': rm.MongeMetric(0.1)}


def by_dimension(size: int, metric: str):
    """Eight chains on a logistic regression of 1,000 observations. (A Gaussian's metric is a constant, and is folded.)"""
    target = targets.logistic(1000, size)
    return _transition(target.log_prob, tf.constant(target.draws(8, 1)), METRICS[metric])


def by_chains(size: int):
    """The 11-D funnel under SoftAbs."""
    target = targets.funnel(11)
    return _transition(target.log_prob, tf.constant(target.draws(size, 1)), METRICS['SoftAbs'])


def by_data(size: int):
    """A 10-D logistic regression, one chain, Hessian."""
    target = targets.logistic(size, 10)
    return _transition(target.log_prob, tf.constant(target.draws(1, 1)), METRICS['Hessian'])


def by_batched_data(size: int):
    """The same, its observations read in batches of 10,000."""
    target = targets.logistic(size, 10)
    batches = tf.data.Dataset.from_tensor_slices(
        (target.inputs.reshape([-1, 10_000, 10]), target.labels.reshape([-1, 10_000]))
    )

    def term(batch, w):
        x, y = batch
        logits = tf.matmul(w, x, transpose_b=True)
        return tf.reduce_sum(y * logits - tf.nn.softplus(logits), axis=-1)

    log_prob = rm.SumOverBatches(term, batches, lambda w: -0.5 * tf.reduce_sum(tf.square(w), axis=-1))
    return _transition(log_prob, tf.constant(target.draws(1, 1)), METRICS['Hessian'])


def _transition(target, start, metric, num_steps=3, step_size=0.1):
    """A transition, traced."""

    @tf.function(autograph=False)
    def transition(q):
        kernel = rm.ExplicitRiemannianHMC(target, np.float64(step_size), num_steps, metric=metric)
        return kernel.one_step(q, kernel.bootstrap_results(q), seed=(1, 2))[0]

    concrete = transition.get_concrete_function(start)
    return lambda: concrete(start)


def run(quick: bool = False) -> dict:
    """Tables with fitted exponents."""
    found: dict = {}

    def table(title, sizes, expression):
        print(f'\n{title}: ms for a transition of 3 steps, and MB of memory on top')
        rows = {}
        for size in sizes:
            took = 1e3 * seconds_of(eval(expression.format(size)), 0.3)[1]
            rows[size] = (took, peak_megabytes('benchmarks.growth', expression.format(size)))
            print(f'{size:9d}{rows[size][0]:12.2f}{rows[size][1]:12.1f}', flush=True)
        powers = [exponent(list(rows), [row[i] for row in rows.values()]) for i in (0, 1)]
        print(f'   in the upper half time grows like size^{powers[0]:.2f}, memory like size^{powers[1]:.2f}')
        found[title] = {'rows': rows, 'exponents': powers}

    dimensions = [10, 20, 50, 100] if quick else [10, 20, 50, 100, 200]
    for name in METRICS:
        table(
            f'dimensions, {name}, 8 chains, logistic regression of 1,000 observations',
            dimensions,
            f"by_dimension({{}}, '{name}')",
        )
    table('chains, SoftAbs, 11-D funnel', [1, 16, 256] if quick else [1, 64, 512, 4096], 'by_chains({})')
    # At once, a Hessian holds D tangents of every observation: 10 GB for a million.
    table('data, Hessian, 10-D logistic regression, 1 chain', [1000, 10_000, 100_000], 'by_data({})')
    sizes = [10_000, 100_000] + [1_000_000] * (not quick)
    table('the same in batches of 10,000 observations', sizes, 'by_batched_data({})')
    found['leak'] = _leak(10_000 if quick else 100_000)
    return found


def _leak(num_transitions: int) -> dict:
    """Resident memory after one tenth and after all of many transitions."""
    target = targets.gaussian(2)

    @tf.function(autograph=False, jit_compile=True)
    def many(q, seed):
        kernel = rm.ExplicitRiemannianHMC(target.log_prob, np.float64(0.3), 1, metric=rm.DiagonalMetric())
        results = kernel.bootstrap_results(q)

        def body(i, q, results):
            return i + 1, *kernel.one_step(q, results, seed=seed + [0, i])

        return tf.while_loop(lambda i, *_: i < 1000, body, (tf.constant(0), q, results))[1]

    q = tf.constant(target.draws(4, 1))
    memory = []
    for i in range(num_transitions // 1000):
        q = many(q, tf.constant([i, 0]))
        with open('/proc/self/statm') as file:
            memory.append(int(file.read().split()[1]) * 4096 / 1e6)
    tenth, end = memory[len(memory) // 10], memory[-1]
    print(f'\n{num_transitions} transitions: {tenth:.1f} MB resident after a tenth of them, {end:.1f} MB at the end')
    return {'megabytes_after_a_tenth': tenth, 'megabytes_at_the_end': end}
