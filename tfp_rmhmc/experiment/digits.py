"""A convolutional network on the digits of scikit-learn: one network, HMC and explicit RMHMC with the Monge metric."""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tfp_rmhmc.experiment.plot import COLORS, save_figure

__all__ = ['run']


def run(arguments: argparse.Namespace) -> int:
    """Log likelihood, accuracy and calibration on held-out digits, and a reliability diagram."""
    import keras
    import sklearn.datasets

    keras.utils.set_random_seed(arguments.seed)
    num_draws = arguments.draws or (10 if arguments.quick else 100)
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    x = (x.reshape(-1, 8, 8, 1) / 16.0).astype(np.float32)
    x_train, y_train, x_test, y_test = x[:200], y[:200], x[200:], y[200:]
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(6, 3, activation='relu'),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x_train, y_train, epochs=300, batch_size=50, verbose=0)
    posterior = rm.keras.make_posterior(model, x_train, y_train, likelihood='categorical', prior=1.0)
    target = posterior.target_log_prob_fn
    kernels = {
        'HMC': tfp.mcmc.HamiltonianMonteCarlo(target, 0.03, 20),
        'explicit RMHMC, Monge': rm.ExplicitRiemannianHMC(target, 0.012, 40, metric=rm.MongeMetric(0.001)),
    }
    print(f'convolutional network of {posterior.dimension} weights, 200 digits to learn from, {len(x_test)} to predict')
    print(f'{"scheme":24}{"wall time":>10}{"acceptance":>12}{"log likelihood":>16}{"accuracy":>10}{"calib. error":>14}')
    single = posterior.predict([part[None] for part in posterior.initial_state()], x_test)
    predictives = {'one network': single}
    _print_row('one network', 0.0, float('nan'), single, y_test)
    for name, kernel in kernels.items():
        begin = time.perf_counter()
        draws, accepted = _sample(posterior, kernel, num_draws, arguments.seed)
        predictives[name] = posterior.predict(draws, x_test)
        _print_row(name, time.perf_counter() - begin, accepted, predictives[name], y_test)

    def reliability(axes: Any) -> None:
        edges = np.linspace(0.0, 1.0, 11)
        for color, (name, predictive) in zip(COLORS, predictives.items(), strict=False):
            probabilities = predictive.mean()
            confidence, is_right = probabilities.max(-1), probabilities.argmax(-1) == y_test
            which = np.clip(np.digitize(confidence, edges) - 1, 0, 9)
            points = [
                (confidence[which == i].mean(), is_right[which == i].mean()) for i in range(10) if np.sum(which == i) > 5
            ]
            axes[0].plot(*zip(*points, strict=True), 'o-', color=color, label=name)
            axes[1].hist(confidence, bins=edges, histtype='step', color=color, lw=1.5)
        axes[0].plot([0, 1], [0, 1], 'k:', lw=0.8)
        axes[0].set(xlabel='confidence', ylabel='accuracy')
        axes[0].legend(frameon=False, fontsize=8)
        axes[1].set(xlabel='confidence', ylabel='digits', yscale='log')

    print(f'figure: {save_figure(pathlib.Path(arguments.out) / "digits.png", reliability, 2, 3.8)}')
    return 0


def _sample(posterior: Any, kernel: tfp.mcmc.TransitionKernel, num_draws: int, seed: int) -> tuple[Any, float]:
    @tf.function(autograph=False)
    def chain() -> Any:
        return tfp.mcmc.sample_chain(
            num_draws,
            posterior.initial_state(),
            kernel=kernel,
            num_burnin_steps=num_draws // 2,
            trace_fn=lambda _, results: tf.exp(tf.minimum(results.log_accept_ratio, 0.0)),
            seed=(0, seed),
        )

    draws, acceptance = chain()
    return draws, float(np.mean(acceptance))


def _print_row(name: str, seconds: float, acceptance: float, predictive: Any, y: np.ndarray) -> None:
    print(
        f'{name:24}{seconds:8.1f} s{acceptance:12.2f}{predictive.log_prob(y).mean():16.3f}'
        f'{predictive.accuracy(y):10.3f}{predictive.calibration_error(y):14.3f}',
        flush=True,
    )
