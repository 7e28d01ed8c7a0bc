"""Networks: time and memory of a draw on the paper's, with fixed and with inferred scales; what each metric costs."""

from __future__ import annotations

import time
import warnings

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from benchmarks import peers
from benchmarks.measure import peak_megabytes, seconds_in_turns, seconds_of

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
HIERARCHICAL_NAMES = ('HMC', 'separable')


def dense(hidden: int):
    """A dense network of 8-H-1."""
    import keras

    return keras.Sequential(
        [keras.layers.Input((8,)), keras.layers.Dense(hidden, activation='tanh'), keras.layers.Dense(1)]
    )


def lenet_data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(NUM_IMAGES, 28, 28, 1)).astype(np.float32), rng.integers(0, 10, size=NUM_IMAGES)


def lenet_posterior(prior=1.0):
    x, y = lenet_data()
    return rm.keras.make_posterior(lenet(), x, y, likelihood='categorical', prior=prior)


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


def hierarchical_transition(name: str, num_steps: int):
    """A transition on the network with inferred scales, so small that none is rejected."""
    posterior = lenet_posterior('hierarchical')
    if name == 'HMC':
        kernel = tfp.mcmc.HamiltonianMonteCarlo(posterior.target_log_prob_fn, np.float32(1e-5), num_steps)
    else:
        metric = posterior.separable_metric()
        kernel = rm.RiemannianHMC(posterior.target_log_prob_fn, np.float32(1e-3), num_steps, metric=metric)
    return traced(posterior, kernel)


def hierarchical_costs(quick: bool = False) -> dict:
    """Time and memory of a draw with the separable metric by HMC's, same prior and number of steps: medians of turns."""
    found: dict = {}
    print('\nLeNet with a log scale for each kernel, graph, float32')
    print(f'{"L":>4}{"HMC ms/draw":>14}{"separable":>12}{"ratio":>8}{"HMC MB":>10}{"separable":>12}{"ratio":>8}')
    for num_steps in (10, 25):
        transitions = [hierarchical_transition(name, num_steps) for name in HIERARCHICAL_NAMES]
        turns = seconds_in_turns(transitions, 8.0 if quick else 60.0)
        hmc, ours = 1e3 * np.median(turns, axis=0)
        ratio = float(np.median(turns[:, 1] / turns[:, 0]))
        memory = [
            peak_megabytes('benchmarks.network', f'hierarchical_transition({name!r}, {num_steps})')
            for name in HIERARCHICAL_NAMES
        ]
        found[num_steps] = {'ms': (hmc, ours), 'ratio': ratio, 'megabytes': memory}
        print(
            f'{num_steps:4d}{hmc:14.0f}{ours:12.0f}{ratio:8.2f}{memory[0]:10.0f}{memory[1]:12.0f}'
            f'{memory[1] / memory[0]:8.2f}',
            flush=True,
        )
    return found


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
    found['hierarchical'] = hierarchical_costs(quick)
    found['digits'] = digits(quick)
    found['cost'] = metric_costs(quick)
    return found


# Mean trajectory lengths: of HMC in coordinates scaled to unit deviation, of the other in units of its metric.
DIGITS_LENGTHS = {'HMC': 3.0, 'separable': 8.0}


def digits_posterior(num_images: int = 200):
    """A convolutional network of 610 weights for scikit-learn's digits, trained a little, with a log scale for each kernel.

    Returns:
      The posterior, test images and their labels.
    """
    import keras
    import sklearn.datasets

    keras.utils.set_random_seed(0)
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    x = (x.reshape(-1, 8, 8, 1) / 16.0).astype(np.float32)
    x = x - x[:num_images].mean(axis=0)
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(6, 3, strides=2, activation='relu'),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x[:num_images], y[:num_images], epochs=20, batch_size=50, verbose=0)
    posterior = rm.keras.make_posterior(
        model, x[:num_images], y[:num_images], likelihood='categorical', prior='hierarchical'
    )
    return posterior, x[num_images:], y[num_images:]


def digits(quick: bool = False, names=HIERARCHICAL_NAMES, lengths=None) -> dict:
    """Effective samples of the layers' log scales per gradient, HMC and the separable metric after the same warm-up."""
    posterior, x_test, y_test = digits_posterior()
    num_draws, num_warmup = (100, 100) if quick else (1000, 300)
    start = posterior.initial_state(4, seed=(1, 2), jitter=0.5)
    where = [i for i, name in enumerate(posterior.names) if name.endswith('log_scale')]
    found: dict = {}
    print(f'\ndigits, {posterior.dimension} coordinates, {num_draws} draws of 4 chains after 2 x {num_warmup} transitions')
    print(f'{"":10}{"step":>8}{"gradients":>11}{"least ESS":>11}{"per 1,000":>11}{"R-hat":>8}', end='')
    print(f'{"R-hat, predictions":>20}{"log likelihood":>16}{"calibration":>13}{"seconds":>9}')
    for name in names:
        begin = time.perf_counter()
        options = {'kernel': 'hmc'} if name == 'HMC' else {'metric': posterior.separable_metric()}
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            result = rm.sample_posterior(
                num_draws,
                posterior,
                initial_state=start,
                num_burnin=num_warmup,
                num_adaptation=num_warmup,
                trajectory_length=(lengths or DIGITS_LENGTHS)[name],
                seed=1,
                jit_compile=False,
                **options,
            )
        log_scales = tf.concat([result.draws[i] for i in where], axis=-1)
        ess = tfp.mcmc.effective_sample_size(log_scales, cross_chain_dims=1, filter_beyond_positive_pairs=True)
        predictive = posterior.predict(result.draws, x_test)
        some = posterior.predict(result.draws, x_test[:40])
        outputs = np.reshape(some.outputs(), [num_draws, 4, -1])
        r_hats = [
            float(np.max(tfp.mcmc.potential_scale_reduction(tf.constant(values), split_chains=True)))
            for values in (log_scales, outputs)
        ]
        row = {
            'step_size': float(result.trace['step_size'][-1, 0]),
            'gradients': result.gradients['sampling'],
            'least_ess': float(np.min(ess)),
            'per_1000': 1e3 * float(np.min(ess)) / result.gradients['sampling'],
            'r_hat': r_hats[0],
            'r_hat_predictions': r_hats[1],
            'log_likelihood': float(np.mean(predictive.log_prob(y_test))),
            'calibration_error': predictive.calibration_error(y_test),
            'seconds': time.perf_counter() - begin,
        }
        found[name] = row
        print(
            f'{name:10}{row["step_size"]:8.4f}{row["gradients"]:11d}{row["least_ess"]:11.1f}{row["per_1000"]:11.3f}'
            f'{r_hats[0]:8.3f}{r_hats[1]:20.3f}{row["log_likelihood"]:16.4f}{row["calibration_error"]:13.4f}'
            f'{row["seconds"]:9.0f}',
            flush=True,
        )
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
