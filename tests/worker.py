"""A worker of `tests/test_processes.py`: the documentation's code for data on several devices, on one of several processes.

TF_CONFIG=... python -m tests.worker OUTPUT CHECKPOINTS DRAWS
"""

import os
import pathlib
import re
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc

ROOT = pathlib.Path(__file__).parents[1]
SHORT = {'num_burnin': 4, 'num_adaptation': 4, 'chunk_size': 10, 'progress': False}


def kernels(target):
    """One of each kind."""
    step = np.float64(0.1)
    scales = tfp_rmhmc.SeparableMetric(lambda a, b: [0.1 * b, -0.1 * a], blocks=[[0], [1]])
    return {
        'explicit': tfp_rmhmc.ExplicitRiemannianHMC(target, step, 2, metric=tfp_rmhmc.MongeMetric(0.1)),
        'implicit': tfp_rmhmc.ImplicitRiemannianHMC(target, step, 2, metric=tfp_rmhmc.MongeMetric(0.1)),
        'separable': tfp_rmhmc.RiemannianHMC(target, step, 2, metric=scales),
    }


def chains(target):
    """Some draws with each kernel."""
    start = tf.constant([[0.3, -0.2], [1.0, 0.5]], tf.float64)

    def draws(kernel):
        return tfp.mcmc.sample_chain(3, start, kernel=kernel, trace_fn=None, seed=(1, 2))

    return {
        name: tf.function(draws, autograph=False).get_concrete_function(kernel)().numpy()
        for name, kernel in kernels(target).items()
    }


def block_of_page():
    """The code for data on several devices."""
    page = (ROOT / 'docs/howto/devices.md').read_text()
    (block,) = re.findall(r'```python\n([^`]*?tf\.distribute.*?)```', page, re.DOTALL)
    return block


def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=[20, 1])
    return x, 0.5 + 2.0 * x + rng.normal(size=[20, 1])


def namespace_of_page(mirrored='tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())'):
    """What the documentation's code makes, with another strategy in place of `MirroredStrategy`."""
    code = block_of_page()
    assert mirrored in code
    x, y = data()
    names = {'np': np, 'tf': tf, 'tfp_rmhmc': tfp_rmhmc, 'x': x, 'y': y}
    exec(code.replace(mirrored, 'tf.distribute.MultiWorkerMirroredStrategy()'), names)
    return names


def main(output, checkpoints, num_draws, *options):
    names = namespace_of_page()
    target, strategy = names['target'], names['strategy']
    assert strategy.num_replicas_in_sync == 2
    index = strategy.cluster_resolver.task_id
    if options:
        np.savez(f'{output}/chains{index}.npz', **chains(target))
    result = tfp_rmhmc.sample_posterior(
        int(num_draws), target, num_chains=2, initial_state=np.zeros((2, 2)), seed=1, checkpoint_dir=checkpoints, **SHORT
    )
    np.save(f'{output}/draws{index}.npy', result.draws)


if __name__ == '__main__':
    main(*sys.argv[1:])
