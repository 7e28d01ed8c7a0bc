"""HMC and Monge-RMHMC on the paper's network, 431,080 weights, and what each metric costs on smaller ones."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from benchmarks import peers
from benchmarks.measure import peak_megabytes, seconds_of

NUM_IMAGES = 100


def lenet():
    """Two convolutional and two dense layers on 28 x 28 x 1 images, 10 classes."""
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(20, 5, activation='relu'),
            layers.MaxPooling2D(2),
            layers.Conv2D(50, 5, activation='relu'),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(500, activation='relu'),
            layers.Dense(10),
        ]
    )
    assert model.count_params() == 431_080
    return model


STEP_SIZE = np.float32(1e-4)
NAMES = ('HMC', 'RMHMC, Monge')


def dense(hidden: int):
    """A dense network of 8-H-1."""
    import keras

    return keras.Sequential(
        [keras.layers.Input((8,)), keras.layers.Dense(hidden, activation='tanh'), keras.layers.Dense(1)]
    )


def lenet_data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(NUM_IMAGES, 28, 28, 1)).astype(np.float32), rng.integers(0, 10, size=NUM_IMAGES)


def lenet_posterior():
    x, y = lenet_data()
    return rm.keras.make_posterior(lenet(), x, y, likelihood='categorical', prior=1.0)


def dense_posterior(hidden: int):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 8)).astype(np.float32)
    return rm.keras.make_posterior(dense(hidden), x, rng.normal(size=200).astype(np.float32))


def make_kernel(name: str, target, num_steps: int):
    if name == 'HMC':
        return tfp.mcmc.HamiltonianMonteCarlo(target, STEP_SIZE, num_steps)
    return rm.ExplicitRiemannianHMC(target, STEP_SIZE, num_steps, metric=rm.MongeMetric(1e-4))


def traced(posterior, kernel, jit: bool = False):
    """A transition from the posterior's start, traced: the log of its acceptance ratio."""
    state = posterior.initial_state()
    results = tf.function(kernel.bootstrap_results, autograph=False).get_concrete_function(state)(state)

    @tf.function(autograph=False, jit_compile=jit)
    def transition(state, results):
        return kernel.one_step(state, results, seed=(1, 2))[1].log_accept_ratio

    concrete = transition.get_concrete_function(state, results)
    return lambda: concrete(state, results)


def lenet_transition(name: str, num_steps: int, jit: bool = False):
    posterior = lenet_posterior()
    return traced(posterior, make_kernel(name, posterior.target_log_prob_fn, num_steps), jit)


def dense_transition(hidden: int, metric: str):
    posterior = dense_posterior(hidden)
    kernel = rm.ExplicitRiemannianHMC(posterior.target_log_prob_fn, np.float32(1e-3), 4, metric=METRICS[metric](posterior))
    return traced(posterior, kernel)


def run(quick: bool = False) -> dict:
    """Draws for each second and peak memory."""
    found: dict = {}
    print(f'LeNet: 431,080 weights, {NUM_IMAGES} images, float32')
    print(f'{"kernel":18}{"":7}{"L":>4}{"draws/s":>9}{"ms/step":>9}{"times HMC":>11}{"peak MB":>9}')
    # Under XLA convolutions are twenty times slower on a CPU: a short trajectory has to do.
    for jit, num_steps in ((False, 5), (False, 10), (False, 25), (True, 10)):
        mode = f'{"XLA" if jit else "graph"} {num_steps}'
        for name in NAMES:
            _, took = seconds_of(lenet_transition(name, num_steps, jit), 2.0, 10)
            memory = peak_megabytes('benchmarks.network', f'lenet_transition({name!r}, {num_steps}, {jit})')
            per_step = 1e3 * took / num_steps
            found[f'{name} {mode}'] = {'draws_per_second': 1 / took, 'ms_per_step': per_step, 'megabytes': memory}
            ratio = per_step / found[f'HMC {mode}']['ms_per_step']
            print(
                f'{name:18}{mode.split()[0]:7}{num_steps:4d}{1 / took:9.3f}{per_step:9.1f}{ratio:11.1f}{memory:9.0f}',
                flush=True,
            )
    # What a longer trajectory costs more, the evaluations at its ends being the same.
    extra = {
        name: (25 * found[f'{name} graph 25']['ms_per_step'] - 5 * found[f'{name} graph 5']['ms_per_step']) / 20.0
        for name in NAMES
    }
    found['ms for one step more'] = extra
    print('one step more: ' + ', '.join(f'{name} {took:.1f} ms' for name, took in extra.items()), end='')
    print(f': {extra[NAMES[1]] / extra[NAMES[0]]:.1f} times')
    if peers.has('hamiltorch'):
        model = lenet()
        x, y = lenet_data()
        per_step = 1e3 * peers.hamiltorch_network_steps([w.numpy() for w in model.weights], x, y, float(STEP_SIZE), 25)
        found['hamiltorch HMC'] = {'ms_per_step': per_step}
        print(f'{"hamiltorch, HMC":18}{"":7}{25:4d}{1e3 / per_step / 25:9.3f}{per_step:9.1f}')
    else:
        print('hamiltorch is not on the path')
    found['cost'] = metric_costs(quick)
    return found


METRICS = {
    'SoftAbs': lambda posterior: rm.SoftAbsMetric(1.0),
    'Hessian': lambda posterior: rm.HessianMetric(),
    'Gauss-Newton': lambda posterior: posterior.gauss_newton_metric(),
    'Monge': lambda posterior: rm.MongeMetric(0.1),
    'diagonal': lambda posterior: rm.DiagonalMetric(),
    'Euclidean': lambda posterior: rm.EuclideanMetric(),
}


def metric_costs(quick: bool = False) -> dict:
    """Time and memory of a step under each metric as a dense network grows."""
    found: dict = {}
    print('\none chain, dense networks 8-H-1 on 200 observations, float32, graph: ms for each step / MB of memory on top')
    print(f'{"D":>7}' + ''.join(f'{name:>18}' for name in METRICS))
    for hidden in [2, 10, 30] if quick else [2, 10, 30, 100, 1000, 10_000]:
        dimension = 10 * hidden + 1
        cells = []
        for name in METRICS:
            if dimension > 400 and name in ('SoftAbs', 'Hessian', 'Gauss-Newton'):
                cells.append(f'{"":>18}')
                continue
            took = 1e3 * seconds_of(dense_transition(hidden, name), 0.3)[1] / 4
            memory = peak_megabytes('benchmarks.network', f'dense_transition({hidden}, {name!r})')
            found[f'{name} {dimension}'] = (took, memory)
            cells.append(f'{took:9.2f} /{memory:7.1f}')
        print(f'{dimension:7d}' + ''.join(cells), flush=True)
    return found
