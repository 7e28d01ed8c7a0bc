"""Priors whose scales are inferred: density, groups, starts, metric, and all that other priors can."""

import warnings

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests.numeric import central_gradient
from tfp_rmhmc.density import LogDensity

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
Y = X @ np.array([1.0, -2.0, 0.0]) + 0.5 * RNG.normal(size=30)
LABELS = (Y > 0).astype(np.int32)
Hierarchical = rm.keras.Hierarchical


def dense(units=1, library=keras, dtype='float64'):
    library.utils.set_random_seed(1)
    layers = library.layers
    return library.Sequential(
        [
            layers.Input((3,)),
            layers.Dense(4, activation='tanh', name='hidden', dtype=dtype),
            layers.Dense(units, name='out', dtype=dtype),
        ]
    )


def convolutional():
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((5, 5, 2)),
            layers.Conv2D(3, 3, activation='relu', name='conv'),
            layers.Flatten(),
            layers.Dense(2, name='out'),
        ]
    )


# For each grouping the names of the log scales, and for each weight its scale where all log scales are 0 and, as a function
# of the log scales, what it is multiplied by.
GROUPS = {
    'kernel': (
        ['hidden/kernel/log_scale', 'out/kernel/log_scale'],
        lambda s, t: [np.exp(s[0]), 1.0, np.exp(t[0]), 1.0],
    ),
    'layer': (['hidden/log_scale', 'out/log_scale'], lambda s, t: [np.exp(s[0]), np.exp(s[0]), np.exp(t[0]), np.exp(t[0])]),
    'input': (
        ['hidden/kernel/log_scale', 'out/kernel/log_scale'],
        lambda s, t: [np.exp(s)[:, None], 1.0, np.exp(t)[:, None], 1.0],
    ),
    'named': (
        ['hidden/kernel/log_scale', 'shared/log_scale'],
        lambda s, t: [np.exp(s)[:, None], np.exp(t[0]), np.exp(t[0]), 1.0],
    ),
}
NAMED = {'hidden': 'shared', 'hidden/kernel': 'input', 'out/kernel': 'shared'}
SCALES = [3.0**-0.5, 1.0, 4.0**-0.5, 1.0]


def prior_of(groups, **kwargs):
    return Hierarchical(NAMED if groups == 'named' else groups, **kwargs)


@pytest.mark.parametrize('groups', GROUPS)
def test_the_log_density_is_what_one_would_write(groups):
    names, factors = GROUPS[groups]
    model = dense()
    posterior = rm.keras.make_posterior(model, X, Y, noise_scale=0.5, prior=prior_of(groups, deviation=0.8))
    assert posterior.names[4:] == names
    states = posterior.initial_state(3, seed=(1, 2), from_prior=True)
    log_probs = tf.function(posterior.target_log_prob_fn, autograph=False)(*states)
    for chain in range(3):
        state = [part[chain].numpy() for part in states]
        np.testing.assert_allclose(posterior.target_log_prob_fn(*map(tf.constant, state)), log_probs[chain], rtol=1e-10)
        posterior.load(state, model)
        expected = scipy.stats.norm(np.asarray(model(X))[:, 0], 0.5).logpdf(Y).sum()
        for weight, scale, factor in zip(state[:4], SCALES, factors(*state[4:]), strict=True):
            expected += scipy.stats.norm(0.0, scale * factor).logpdf(weight).sum()
        expected += sum(scipy.stats.norm(0.0, 0.8).logpdf(part).sum() for part in state[4:])
        np.testing.assert_allclose(log_probs[chain], expected, rtol=1e-10)


@pytest.mark.parametrize('groups', ['kernel', 'input'])
def test_gradients(groups):
    posterior = rm.keras.make_posterior(dense(), X, Y, prior=Hierarchical(groups), noise_scale=None)
    state = posterior.initial_state(1, seed=(1, 2), from_prior=True)
    density = LogDensity.at_state(posterior.target_log_prob_fn, state)
    position = density.layout.flatten(state)
    with tf.GradientTape() as tape:
        tape.watch(position)
        log_prob = density(position)
    expected = central_gradient(lambda points: density(tf.constant(points)), position[0], 1e-3)
    np.testing.assert_allclose(tape.gradient(log_prob, position)[0], expected, rtol=1e-6, atol=1e-7)


def test_inputs_of_a_convolution_are_its_channels():
    x, y = RNG.normal(size=(6, 5, 5, 2)).astype(np.float32), np.arange(6) % 2
    posterior = rm.keras.make_posterior(convolutional(), x, y, likelihood='categorical', prior=Hierarchical('input'))
    state = posterior.initial_state(2, seed=(1, 2))
    assert [part.shape.as_list() for part in state[4:]] == [[2, 2], [2, 27]]
    # The derivative by the log scale of a channel is made of the weights of that channel.
    with tf.GradientTape() as tape:
        tape.watch(state)
        log_prior = posterior.log_prior(*state)
    kernel, log_scale = state[0].numpy(), state[4].numpy()
    squares = np.square(kernel).sum(axis=(1, 2, 4)) * 18.0  # of fan-in 18
    expected = squares * np.exp(-2.0 * log_scale) - 27.0 - log_scale
    np.testing.assert_allclose(tape.gradient(log_prior, state[4]), expected, rtol=1e-4)


def test_starts_fit_their_weights_and_are_apart():
    model = dense()
    posterior = rm.keras.make_posterior(model, X, Y, prior='hierarchical')
    one = posterior.initial_state()
    for part, variable in zip(one, model.trainable_variables, strict=False):
        np.testing.assert_array_equal(part, variable)
    # Without chains log scales are close to the most probable ones given the weights.
    with tf.GradientTape() as tape:
        tape.watch(one[4:])
        log_prior = posterior.log_prior(*one)
    for gradient, count in zip(tape.gradient(log_prior, one[4:]), (12, 4), strict=True):
        assert abs(float(gradient[0])) < 0.2 * np.sqrt(2.0 * count)
    # Chains are as far apart as is asked for, and their weights with their log scales.
    several = posterior.initial_state(400, seed=(1, 2), jitter=1.0)
    shifts = several[4][:, 0] - one[4][0]
    np.testing.assert_allclose(np.std(shifts), 1.0, rtol=0.15)
    sizes = np.sqrt(np.mean(np.square(several[0]), axis=(1, 2))) * np.exp(-shifts)
    np.testing.assert_allclose(np.mean(np.square(sizes)), 2.0 * np.exp(2.0 * one[4][0]) / 3.0, rtol=0.2)


def diagonal(posterior, metric, state):
    """Of the metric at a state of several chains, as numbers for each part."""
    density = LogDensity.at_state(posterior.target_log_prob_fn, state)
    position = density.layout.flatten(state)
    return density.layout.unflatten(metric.at(density, position).factor.diagonal(position))


def test_the_metric_is_what_its_docstring_says():
    posterior = rm.keras.make_posterior(dense(), X, Y, prior=Hierarchical('kernel', deviation=0.5), noise_scale=None)
    one = posterior.initial_state()
    # At one position, so that the reference is known and the information can be computed in another way.
    metric = posterior.separable_metric([np.repeat(part[None], 400, axis=0) for part in one])
    r, t = float(one[4][0]), float(one[5][0])
    grown = posterior.initial_state(2, seed=(1, 2), from_prior=True)
    u, v = grown[4][:, 0].numpy(), grown[5][:, 0].numpy()
    at_reference = [part[0].numpy() for part in diagonal(posterior, metric, [part[None] for part in one])]
    information = [
        at_reference[0] - 3.0 * np.exp(-2.0 * r), at_reference[1] - 1.0, at_reference[2] - 4.0 * np.exp(-2.0 * t),
        at_reference[3] - 1.0,
    ]  # fmt: skip
    assert all(np.all(part > 0.0) for part in information)
    for chain in range(2):
        found = [part[chain].numpy() for part in diagonal(posterior, metric, grown)]
        expected = [
            information[0] * np.exp(2.0 * (v[chain] - t)) + 3.0 * np.exp(-2.0 * u[chain]),
            information[1] * np.exp(2.0 * (v[chain] - t)) + 1.0,
            information[2] * np.exp(2.0 * (u[chain] - r)) + 4.0 * np.exp(-2.0 * v[chain]),
            information[3] + 1.0,
            [2.0 * 12 + 4.0],
            [2.0 * 4 + 4.0],
            [2.0 * 30 + 1.0],
        ]
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    # The information is about that of Gauss-Newton: means of 32 squares of normal variables.
    density = LogDensity.at_state(posterior.target_log_prob_fn, one)
    matrix = posterior.gauss_newton_metric(prior_precision=1e-9).matrix(density, density.layout.flatten(one))
    ours, theirs = np.concatenate([np.ravel(part) for part in information]), np.diag(matrix)[:21]
    assert 0.6 < np.median(ours / theirs) < 1.5
    assert abs(np.log(ours.sum() / theirs.sum())) < 0.4


@pytest.mark.parametrize('kind', ['arrays', 'dataset'])
def test_mini_batches_give_the_whole(kind):
    model = dense()
    whole = rm.keras.make_posterior(model, X, Y, prior='hierarchical')
    if kind == 'arrays':
        batched = rm.keras.make_posterior(model, X, Y, prior='hierarchical', batch_size=8)
    else:
        dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
        batched = rm.keras.make_posterior(model, dataset, prior='hierarchical')
    state = whole.initial_state(2, seed=(1, 2), from_prior=True)
    found = []
    for posterior in (whole, batched):
        with tf.GradientTape() as tape:
            tape.watch(state)
            log_prob = posterior.target_log_prob_fn(*state)
        found.append([log_prob, *tape.gradient(log_prob, state)])
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-10)
    # Its own metric sees all batches. Where scales are large, the information is what counts.
    large = [part + 3.0 * (i >= 4) for i, part in enumerate(whole.initial_state(1))]
    diagonals = [diagonal(posterior, posterior.separable_metric(), large) for posterior in (whole, batched)]
    np.testing.assert_allclose(np.sum(diagonals[1][0]), np.sum(diagonals[0][0]), rtol=0.4)


@pytest.mark.parametrize('library', ['keras', 'tf_keras'])
def test_predictions_and_load_ignore_the_scales(library):
    library = keras if library == 'keras' else pytest.importorskip('tf_keras')
    model = dense(2, library, 'float32')
    x = X.astype(np.float32)
    posterior = rm.keras.make_posterior(model, x, LABELS, likelihood='categorical', prior='hierarchical')
    plain = rm.keras.make_posterior(model, x, LABELS, likelihood='categorical')
    draws = posterior.initial_state(5, seed=(1, 2), from_prior=True)
    assert len(draws) == 6
    np.testing.assert_allclose(posterior.predict(draws, x).mean(), plain.predict(draws[:4], x).mean(), rtol=1e-6)
    posterior.load([part[2] for part in draws], model)
    for variable, part in zip(model.trainable_variables, draws, strict=False):
        np.testing.assert_array_equal(np.asarray(variable), part[2])
    with pytest.raises(ValueError, match='must be a list of 6 arrays'):
        posterior.predict(draws[:4], x)


def invariance(posterior, deviation, num_chains=1500):
    """The least p-value of log scales and scaled weights after some transitions, moves and acceptance."""
    start = posterior.initial_state(num_chains, seed=(3, 4), from_prior=True)
    metric = posterior.separable_metric()
    kernel = rm.RiemannianHMC(posterior.target_log_prob_fn, np.float64(0.5), 5, metric=metric)

    @tf.function(autograph=False)
    def run(start):
        return tfp.mcmc.sample_chain(8, start, kernel=kernel, trace_fn=lambda _, results: results.is_accepted, seed=(5, 6))

    states, accepted = run(start)
    moved = np.mean(np.abs(states[4][-1] - start[4]))
    parts = [part[-1].numpy() for part in states]
    scaled = [parts[0][:, 0, 0] * 3.0**0.5 * np.exp(-parts[4][:, 0]), parts[2][:, 1, 0] * 2.0 * np.exp(-parts[5][:, 0])]
    columns = [parts[4][:, 0] / deviation, parts[5][:, 0] / deviation, *scaled]
    return min(scipy.stats.kstest(column, 'norm').pvalue for column in columns), moved, np.mean(accepted)


@pytest.mark.statistical
def test_the_prior_is_left_as_it_is():
    """Of data that say nothing, the posterior is the prior, of which there are exact draws."""
    nothing = {'noise_scale': 1e4}
    posterior = rm.keras.make_posterior(dense(), X, Y, prior=Hierarchical(), **nothing)
    p_value, moved, accepted = invariance(posterior, 1.0)
    print(f'p-value {p_value:.3f}, log scale moved by {moved:.2f}, acceptance {accepted:.2f}')
    assert p_value > 1e-3
    assert moved > 0.3  # a kernel that moves nothing leaves everything as it is
    assert 0.6 < accepted < 0.999
    # The control: draws of the one, transitions of a slightly other one.
    wrong = rm.keras.make_posterior(dense(), X, Y, prior=Hierarchical(deviation=1.3), **nothing)
    wrong.initial_state = posterior.initial_state
    assert invariance(wrong, 1.0)[0] < 1e-4


BAD = [
    ({'groups': 'neuron'}, "`groups` must be a dict by name, or one of .* got 'neuron'"),
    ({'deviation': 0.0}, '`deviation` must be positive'),
    ({'groups': {'nothing': 'a'}}, "`groups` names 'nothing'"),
    ({'groups': {'hidden/bias': 'input'}}, "`groups` must not be 'input' for 'hidden/bias'"),
    ({'groups': {'hidden': None}}, '`groups` must hold at least one'),
    ({'groups': {'hidden/kernel': 'input', 'out': 'hidden/kernel'}}, "`groups` must not name a group 'hidden/kernel'"),
    ({'scales': -1.0}, '`prior` must be positive'),
]


@pytest.mark.parametrize(('arguments', 'sentence'), BAD)
def test_wrong_arguments(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        rm.keras.make_posterior(dense(), X, Y, prior=Hierarchical(**arguments))


def test_other_priors_have_no_separable_metric():
    with pytest.raises(ValueError, match="needs prior='hierarchical'"):
        rm.keras.make_posterior(dense(), X, Y).separable_metric()


@pytest.mark.parametrize('most', [22, 23])
def test_the_default_takes_the_known_metric_where_scales_are_not_learned(most, monkeypatch):
    monkeypatch.setattr('tfp_rmhmc.sampling.posterior.MAX_LEARNED', most)
    posterior = rm.keras.make_posterior(dense(), X, Y, prior='hierarchical')
    assert posterior.dimension == 23
    assert not rm.keras.make_posterior(dense(), X, Y).has_separable_metric
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # so few draws are not enough
        result = rm.sample_posterior(2, posterior, num_burnin=4, num_adaptation=4, seed=1, jit_compile=False)
    assert ('SeparableMetric' in result.choice) == (most < 23)
    assert [part.shape[2:] for part in result.draws] == [part.shape for part in posterior.initial_state()]


def test_what_the_data_say_is_an_input_of_programs():
    """There may be millions of numbers, and TensorFlow copies a program's constants several times."""
    model = keras.Sequential([keras.layers.Input((30,)), keras.layers.Dense(20), keras.layers.Dense(1)])
    x = np.random.default_rng(0).standard_normal((5, 30)).astype(np.float32)
    posterior = rm.keras.make_posterior(model, x, x[:, 0], prior='hierarchical')
    metric, state = posterior.separable_metric(), posterior.initial_state(2)
    layout = rm.LogDensity.at_state(posterior.target_log_prob_fn, state).layout
    program = tf.function(metric.log_scales, autograph=False).get_concrete_function(layout, layout.flatten(state))
    constants = [op for op in program.graph.get_operations() if op.type == 'Const']
    assert max(np.size(tf.make_ndarray(op.get_attr('value'))) for op in constants) < 100  # a kernel has 600
