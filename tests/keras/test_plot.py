"""Pictures of predictions show the numbers that they should."""

import keras
import matplotlib
import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm

matplotlib.use('Agg')
RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, size=(40, 1)).astype(np.float32)
Y = np.sin(2.0 * X[:, 0]) + 0.2 * RNG.normal(size=40).astype(np.float32)


def network(units=1, inputs=1):
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [keras.layers.Input((inputs,)), keras.layers.Dense(5, activation='tanh'), keras.layers.Dense(units)]
    )


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close('all')


@pytest.mark.parametrize('batch_size', [None, 16])
def test_calibration(batch_size):
    labels = (Y > 0).astype(np.int32)
    posterior = rm.keras.make_posterior(network(2), X, labels, likelihood='categorical', batch_size=batch_size)
    draws = posterior.initial_state(20, seed=(1, 2), from_prior=True)
    upper, lower = posterior.plot_calibration(draws, num_bins=10)
    probabilities = posterior.predict(draws, X).mean()
    confidence, is_right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    heights = [bar.get_height() for bar in lower.patches]
    np.testing.assert_array_equal(heights, np.histogram(confidence, np.linspace(0.0, 1.0, 11))[0])
    assert sum(heights) == 40
    x, y = upper.lines[1].get_data()
    weights = np.array(heights)[np.array(heights) > 0]
    np.testing.assert_allclose(np.sum(weights * x), confidence.sum(), rtol=1e-5)
    np.testing.assert_allclose(np.sum(weights * y), is_right.sum(), rtol=1e-5)
    error = posterior.predict(draws, X).calibration_error(labels, 10)
    assert f'{error:.3f}' in upper.get_title()


def test_predictive():
    posterior = rm.keras.make_posterior(network(), X, Y, noise_scale=0.2, prior='hierarchical')
    draws = posterior.initial_state(50, seed=(1, 2), from_prior=True)
    axes = posterior.plot_predictive(draws)
    mean, data = axes.lines
    grid = mean.get_xdata()
    predictive = posterior.predict(draws, grid[:, None])
    np.testing.assert_allclose(mean.get_ydata(), predictive.mean()[:, 0], rtol=1e-4, atol=1e-5)
    assert grid.min() < X.min()
    assert grid.max() > X.max()
    np.testing.assert_array_equal(data.get_xdata(), X[:, 0])
    bounds = np.quantile(predictive.outputs()[..., 0], [0.025, 0.975], axis=0)
    with_noise, of_draws = (c.get_paths()[0].vertices[:, 1] for c in axes.collections)
    np.testing.assert_allclose([of_draws.min(), of_draws.max()], [bounds.min(), bounds.max()], rtol=1e-4)
    spread = 2.0 * predictive.stddev()[:, 0]
    np.testing.assert_allclose(with_noise.max(), np.max(predictive.mean()[:, 0] + spread), rtol=1e-4)


def test_what_cannot_be_drawn():
    posterior = rm.keras.make_posterior(network(inputs=3), np.ones([4, 3], np.float32), np.ones(4))
    draws = posterior.initial_state(2)
    with pytest.raises(ValueError, match=r'one number in each row, got shapes \(4, 3\)'):
        posterior.plot_predictive(draws)
    with pytest.raises(ValueError, match='for classifiers'):
        posterior.plot_calibration(draws)
    with pytest.raises(ValueError, match='both or neither'):
        posterior.plot_calibration(draws, x=tf.ones([4, 3]))
    with pytest.raises(ValueError, match='`level` must be between 0 and 1, got 2'):
        posterior.predict(draws, np.ones([4, 3], np.float32)).credible_interval(2)
