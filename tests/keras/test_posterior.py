"""Posteriors of Keras models: what is built, what is refused, and the way back to predictions."""

import itertools
import warnings

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tfp_rmhmc.density import LogDensity

tfd = tfp.distributions
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5]) + 0.3 + 0.5 * RNG.normal(size=30)).astype(np.float32)
LABELS = (Y > 0).astype(np.int32)


def dense(units=1, hidden=4, library=keras, **kwargs):
    library.utils.set_random_seed(1)
    layers = library.layers
    return library.Sequential([layers.Input((3,)), layers.Dense(hidden, activation='tanh', **kwargs), layers.Dense(units)])


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(4, activation='tanh')
        self.dropout = keras.layers.Dropout(0.5)
        self.out = keras.layers.Dense(1)

    def call(self, x, training=False):
        return self.out(self.dropout(self.hidden(x), training=training))


def built_subclassed():
    model = Subclassed()
    model(X[:1])
    return model


def functional():
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4, activation='tanh')(inputs)
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.concatenate([inputs, hidden])))


def tf_keras_model():
    tf_keras = pytest.importorskip('tf_keras')
    return dense(library=tf_keras)


MODELS = {'sequential': dense, 'functional': functional, 'subclassed': built_subclassed, 'tf_keras': tf_keras_model}


def test_chains_start_apart_in_units_of_the_prior():
    model = dense()
    posterior = rm.keras.make_posterior(model, X, Y, noise_scale=0.5, prior=0.7)
    weights = posterior.initial_state()
    assert all(np.array_equal(a, np.asarray(b)) for a, b in zip(weights, model.trainable_variables, strict=True))
    moved = np.concatenate(
        [np.ravel(a - b) for a, b in zip(posterior.initial_state(200, seed=(1, 2)), weights, strict=True)]
    )
    np.testing.assert_allclose(moved.std(), 0.07, rtol=0.1)
    together = posterior.initial_state(3, jitter=0.0)
    assert all(np.array_equal(part[0], part[2]) for part in together)
    callable_prior = rm.keras.make_posterior(model, X, Y, noise_scale=0.5, prior=lambda *w: -tf.reduce_sum(w[0], [-2, -1]))
    assert np.std(callable_prior.initial_state(3)[0], axis=0).min() > 0.0
    with pytest.raises(ValueError, match='`jitter`.*-1'):
        posterior.initial_state(3, jitter=-1.0)


@pytest.mark.parametrize('name', MODELS)
def test_the_log_density_is_prior_plus_likelihood_for_one_chain_and_many(name):
    model = MODELS[name]()
    before = [np.asarray(v) for v in model.trainable_variables]
    posterior = rm.keras.make_posterior(model, X, Y, noise_scale=0.5, prior=0.7)
    states = posterior.initial_state(3, seed=(1, 2), from_prior=True)
    log_probs = tf.function(posterior.target_log_prob_fn, autograph=False)(*states).numpy()
    np.testing.assert_allclose(posterior.target_log_prob_fn(*states), log_probs, rtol=1e-5)
    for chain in range(3):
        state = [part[chain] for part in states]
        np.testing.assert_allclose(posterior.target_log_prob_fn(*state), log_probs[chain], rtol=1e-5)
        for weight, variable in zip(state, model.trainable_variables, strict=True):
            variable.assign(weight)
        outputs = np.asarray(model(X))[:, 0]
        expected = scipy.stats.norm(outputs, 0.5).logpdf(Y).sum()
        expected += sum(scipy.stats.norm(0.0, 0.7).logpdf(weight.numpy()).sum() for weight in state)
        np.testing.assert_allclose(log_probs[chain], expected, rtol=1e-4)
    # The start is what the model held when the posterior was made, whatever became of the model.
    for part, weight in zip(posterior.initial_state(), before, strict=True):
        np.testing.assert_array_equal(part, weight)


def test_sampling_changes_nothing_of_the_model():
    model = dense()
    before = [np.asarray(v) for v in model.variables]
    posterior = rm.keras.make_posterior(model, X, Y)
    kernel = rm.ExplicitRiemannianHMC(posterior.target_log_prob_fn, 0.05, 2, metric=posterior.gauss_newton_metric())
    draws = tf.function(
        lambda: tfp.mcmc.sample_chain(3, posterior.initial_state(), kernel=kernel, trace_fn=None, seed=(1, 2)),
        autograph=False,
    )()
    assert [part.shape[1:] for part in draws] == [v.shape for v in model.trainable_variables]
    assert np.ptp(draws[0], axis=0).max() > 0
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    posterior.load([part[-1] for part in draws], model)
    for variable, part in zip(model.trainable_variables, draws, strict=True):
        np.testing.assert_array_equal(variable, part[-1])
    with pytest.raises(ValueError, match='`draw` must have the shapes'):
        posterior.load([part[:, 0] for part in draws], model)


LIKELIHOODS = {
    'gaussian': (Y, 1, lambda f, y: scipy.stats.norm(f[:, 0], 1.0).logpdf(y)),
    'bernoulli': (LABELS, 1, lambda f, y: scipy.stats.bernoulli(1.0 / (1.0 + np.exp(-f[:, 0]))).logpmf(y)),
    'categorical': (LABELS, 3, lambda f, y: (f - np.log(np.exp(f).sum(1, keepdims=True)))[np.arange(len(y)), y]),
    'poisson': (LABELS * 3, 1, lambda f, y: scipy.stats.poisson(np.exp(f[:, 0])).logpmf(y)),
}


@pytest.mark.parametrize('name', LIKELIHOODS)
def test_likelihoods_and_their_gauss_newton_metrics(name):
    """Value against SciPy; the metric against its definition, the expected outer product of the score."""
    y, units, log_prob = LIKELIHOODS[name]
    model = dense(units)
    posterior = rm.keras.make_posterior(model, X, y, likelihood=name)
    state = posterior.initial_state()
    ours = posterior.target_log_prob_fn(*state) - posterior.log_prior(*state)
    np.testing.assert_allclose(ours, log_prob(np.asarray(model(X)).astype(np.float64), y).sum(), rtol=1e-5)
    density = LogDensity.at_state(posterior.target_log_prob_fn, state)
    position = density.layout.flatten(state)
    matrix = posterior.gauss_newton_metric().matrix(density, position)
    precision = np.concatenate([np.full(v.shape, v.shape[0] if len(v.shape) > 1 else 1.0).ravel() for v in model.weights])
    with tf.GradientTape() as tape:
        weights = [tf.constant(v.numpy()) for v in model.trainable_variables]
        tape.watch(weights)
        outputs, _ = model.stateless_call(weights, [], X)
    jacobian = np.concatenate([np.reshape(j, [30, units, -1]) for j in tape.jacobian(outputs, weights)], axis=-1)
    f = outputs.numpy().astype(np.float64)
    probability = np.exp(f) / np.exp(f).sum(1, keepdims=True) if units > 1 else 1.0 / (1.0 + np.exp(-f))
    information = {
        'gaussian': np.ones_like(f)[..., None],
        'bernoulli': (probability * (1.0 - probability))[..., None],
        'poisson': np.exp(f)[..., None],
        'categorical': np.stack([np.diag(p) - np.outer(p, p) for p in np.atleast_2d(probability)]),
    }[name]
    expected = np.einsum('nka,nkl,nlb->ab', jacobian, information, jacobian) + np.diag(precision)
    np.testing.assert_allclose(matrix, expected, rtol=1e-3, atol=1e-3)


def test_an_inferred_noise_scale():
    posterior = rm.keras.make_posterior(dense(), X, Y, noise_scale=None)
    assert posterior.names[-1] == 'log_noise_scale'
    state = posterior.initial_state(2)
    assert state[-1].shape == (2, 1)
    density = LogDensity.at_state(posterior.target_log_prob_fn, state)
    matrix = posterior.gauss_newton_metric().matrix(density, density.layout.flatten(state))
    # The information of a log scale is two an observation; its prior is N(-1, 1).
    np.testing.assert_allclose(matrix[0, -1, -1], 2.0 * len(Y) + 1.0, rtol=1e-4)
    np.testing.assert_allclose(matrix[0, -1, :-1], 0.0, atol=1e-5)


def test_a_callable_likelihood_and_prior():
    student = lambda outputs: tfd.StudentT(tf.cast(4.0, outputs.dtype), outputs[..., 0], tf.ones([], outputs.dtype))
    laplace = lambda *weights: (
        -tf.add_n([tf.reduce_sum(tf.abs(w), axis=[-1] if w.shape.rank < 3 else [-2, -1]) for w in weights])
    )
    model = dense()
    posterior = rm.keras.make_posterior(model, X, Y, likelihood=student, prior=laplace)
    state = posterior.initial_state(2, jitter=0.0)
    expected = scipy.stats.t(4.0, np.asarray(model(X))[:, 0]).logpdf(Y).sum()
    expected -= sum(np.abs(v.numpy()).sum() for v in model.trainable_variables)
    np.testing.assert_allclose(posterior.target_log_prob_fn(*state), [expected] * 2, rtol=1e-5)
    with pytest.raises(ValueError, match='`prior_precision` must be given'):
        posterior.gauss_newton_metric()
    with pytest.raises(ValueError, match='known Fisher information'):
        posterior.gauss_newton_metric(prior_precision=1.0)
    with pytest.raises(ValueError, match='`from_prior` needs'):
        posterior.initial_state(2, from_prior=True)


def test_priors_by_name_and_in_a_list():
    model = dense()
    first, second = (layer.name for layer in model.layers)
    by_layer = rm.keras.make_posterior(model, X, Y, prior={first: 2.0, f'{second}/bias': 3.0})
    in_a_list = rm.keras.make_posterior(model, X, Y, prior=[2.0, 2.0, 0.5, np.array([3.0])])
    state = by_layer.initial_state(2, from_prior=True)
    np.testing.assert_allclose(by_layer.log_prior(*state), in_a_list.log_prior(*state), rtol=1e-6)


@pytest.mark.parametrize('kind', ['arrays', 'dataset'])
def test_mini_batches_give_the_whole(kind):
    """Log density, gradient and every metric's force, with a last batch that is smaller."""
    model = dense()
    whole = rm.keras.make_posterior(model, X, Y)
    if kind == 'arrays':
        batched = rm.keras.make_posterior(model, X, Y, batch_size=8)
    else:
        batched = rm.keras.make_posterior(model, tf.data.Dataset.from_tensor_slices((X, Y)).batch(8))
    state = whole.initial_state(2, seed=(1, 2), from_prior=True)

    @tf.function(autograph=False)
    def everything(posterior_index):
        posterior = (whole, batched)[posterior_index]
        density = LogDensity.at_state(posterior.target_log_prob_fn, state)
        position = density.layout.flatten(state)
        found = []
        for metric in (rm.SoftAbsMetric(1.0), posterior.gauss_newton_metric(), rm.MongeMetric(0.1)):
            local = metric.at(density, position)
            found += [local.log_prob, local.gradient, local.factor.half_log_det]
            found.append(local.energy_gradient(tf.ones_like(position)))
        return found

    for ours, expected in zip(everything(1), everything(0), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=2e-3, atol=2e-3)


def test_the_predictive_is_a_mixture_over_draws():
    posterior = rm.keras.make_posterior(dense(), X, Y, noise_scale=None)
    parts = posterior.initial_state(5, seed=(1, 2), from_prior=True)
    draws = [np.stack([part, part + 0.1]) for part in parts]  # [2, 5, ...]
    flat = [np.reshape(part, [10, *part.shape[2:]]) for part in draws]
    predictive = posterior.predict(draws, X, batch_size=3)
    assert predictive.num_draws == 10
    outputs = predictive.outputs()[..., 0].astype(np.float64)
    scale = np.exp(flat[-1])
    np.testing.assert_allclose(predictive.mean()[:, 0], outputs.mean(0), rtol=1e-4, atol=1e-5)
    expected = np.sqrt(outputs.var(0) + np.mean(scale**2))
    np.testing.assert_allclose(predictive.stddev()[:, 0], expected, rtol=1e-4)
    density = np.mean(scipy.stats.norm(outputs, scale).pdf(Y), axis=0)
    np.testing.assert_allclose(predictive.log_prob(Y), np.log(density), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match='for classifiers'):
        predictive.accuracy(Y)
    with pytest.raises(ValueError, match='`draws` of .* must have shape'):
        posterior.predict([part[..., None] for part in draws], X)


@pytest.mark.parametrize(('likelihood', 'units'), [('bernoulli', 1), ('categorical', 2)])
def test_accuracy_and_calibration(likelihood, units):
    posterior = rm.keras.make_posterior(dense(units), X, LABELS, likelihood=likelihood)
    predictive = posterior.predict(posterior.initial_state(7, seed=(1, 2), from_prior=True), X)
    mean = predictive.mean()
    ones = mean[:, 0] if units == 1 else mean[:, 1]
    confidence, is_right = np.maximum(ones, 1.0 - ones), (ones > 0.5) == LABELS
    assert predictive.accuracy(LABELS) == pytest.approx(is_right.mean())
    edges = np.linspace(0.0, 1.0, 6)
    expected = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence >= low) & ((confidence < high) | (high == 1.0))
        expected += abs(np.sum(confidence[inside] - is_right[inside])) / len(LABELS)
    assert predictive.calibration_error(LABELS, num_bins=5) == pytest.approx(expected)
    np.testing.assert_allclose(predictive.log_prob(LABELS), np.log(np.where(LABELS, ones, 1.0 - ones)), rtol=1e-4)


def test_frozen_layers_and_layers_with_state():
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(4, activation='tanh'),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )
    model.layers[0].trainable = False
    with pytest.warns(UserWarning, match='moving statistics'):
        posterior = rm.keras.make_posterior(model, X, Y)
    assert len(posterior.names) == 4
    state = posterior.initial_state()
    np.testing.assert_allclose(posterior.target_log_prob_fn(*state), posterior.target_log_prob_fn(*state))


class Noise(keras.layers.Layer):
    def call(self, x):
        return x + tf.random.normal(tf.shape(x))


def with_layers(*layers):
    return keras.Sequential([keras.layers.Input((3,)), *layers])


BAD = [
    (lambda: keras.Sequential([keras.layers.Dense(1)]), {}, ValueError, 'must be built'),
    (lambda: with_layers(keras.layers.Activation('tanh')), {}, ValueError, 'no trainable weights'),
    (lambda: 'model', {}, TypeError, '`model` must be a Keras model'),
    (dense, {'y': Y[:-1]}, ValueError, r'`y` must have the shape of the model.s outputs, \(30, 1\), got \(29'),
    (dense, {'y': np.stack([Y, Y], 1)}, ValueError, r'got \(30, 2\)'),
    (dense, {'y': LABELS + 1, 'likelihood': 'bernoulli'}, ValueError, '`y` must hold 0 or 1, got 2'),
    (lambda: dense(2), {'y': LABELS + 1, 'likelihood': 'categorical'}, ValueError, 'labels from 0 to 1, got 2'),
    (lambda: dense(2), {'y': LABELS[:9], 'likelihood': 'categorical'}, ValueError, 'one integer label for each'),
    (dense, {'y': -LABELS, 'likelihood': 'poisson'}, ValueError, '`y` must hold counts, got -1'),
    (dense, {'likelihood': 'cauchy'}, ValueError, "`likelihood` must be .* got 'cauchy'"),
    (dense, {'noise_scale': -1.0}, ValueError, '`noise_scale` must be positive.*-1.0'),
    (dense, {'prior': 0.0}, ValueError, '`prior` must be positive'),
    (dense, {'prior': {'nothing': 1.0}}, ValueError, "`prior` names 'nothing'"),
    (dense, {'prior': [1.0]}, ValueError, 'one scale for each of 4 weights, got 1'),
    (dense, {'prior': 'wide'}, ValueError, "`prior` must be 'fan_in'.*'wide'"),
    (dense, {'batch_size': 0}, ValueError, '`batch_size` must be an integer of at least 1, got 0'),
    (dense, {'y': None}, ValueError, '`y` must be given with arrays'),
    (lambda: with_layers(keras.layers.Dense(2), keras.layers.Lambda(tf.round)), {'y': X[:, :2]}, ValueError, 'no gradient'),
    (lambda: with_layers(keras.layers.Dense(1), Noise()), {}, ValueError, 'random at inference'),
    (
        lambda: with_layers(keras.layers.Reshape((1, 3)), keras.layers.Dense(1)),
        {},
        ValueError,
        r'outputs of shape \[N, K\], got \(30, 1, 1\)',
    ),
]


@pytest.mark.parametrize(('make_model', 'change', 'error', 'message'), BAD)
def test_bad_input_is_one_sentence(make_model, change, error, message):
    with pytest.raises(error, match=message):
        rm.keras.make_posterior(make_model(), X, **({'y': Y} | change))


def ending_in(activation, kind):
    """A model whose outputs come from an activation, written in every way."""
    library = pytest.importorskip('tf_keras') if kind.startswith('tf_keras') else keras
    layers = library.layers
    units = 2 if activation == 'softmax' else 1
    if kind.endswith('sequential'):
        return library.Sequential([layers.Input((3,)), layers.Dense(units, activation=activation)])
    if kind == 'layer':
        return library.Sequential(
            [layers.Input((3,)), layers.Dense(units), layers.Activation(activation), layers.Dropout(0.1)]
        )
    if kind == 'nested':
        inner = library.Sequential([layers.Input((3,)), layers.Dense(units, activation=activation)])
        return library.Sequential([layers.Input((3,)), inner])
    if kind == 'without an input':
        model = library.Sequential([layers.Dense(units, activation=activation)])
        model(X[:1])
        return model
    inputs = library.Input((3,))
    outputs = layers.Dense(units)(inputs)
    if kind == 'operation':
        return library.Model(inputs, getattr(library.ops, activation)(outputs))
    return library.Model(inputs, layers.Reshape((units,))(layers.Activation(activation)(outputs)))


KINDS = ['sequential', 'layer', 'nested', 'without an input', 'operation', 'functional']
ENDS = [(kind, activation) for kind in [*KINDS, 'tf_keras sequential'] for activation in ('softmax', 'sigmoid', 'linear')]
ENDS.remove(('operation', 'linear'))  # Keras has no operation that does nothing


@pytest.mark.parametrize(('kind', 'activation'), [*ENDS, ('tf_keras functional', 'softmax')])
def test_probabilities_that_are_taken_for_logits_are_warned_of(kind, activation):
    model = ending_in(activation, kind)
    likelihood = 'categorical' if activation == 'softmax' else 'bernoulli'
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        rm.keras.make_posterior(model, X, LABELS, likelihood=likelihood)
    sentences = [str(w.message) for w in caught if 'taken for logits' in str(w.message)]
    assert len(sentences) == (activation != 'linear')
    assert all(f'last activation is {activation!r}' in sentence for sentence in sentences)


def test_a_dataset_that_differs_from_pass_to_pass_is_refused():
    rows = tf.data.Dataset.from_tensor_slices((X, Y))
    with pytest.raises(ValueError, match='`dataset` must hold the same elements on each pass'):
        rm.keras.make_posterior(dense(), rows.batch(5).shuffle(6).take(3))
    rm.keras.make_posterior(dense(), rows.shuffle(30).batch(5))
