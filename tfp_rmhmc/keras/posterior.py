"""The posterior of a network's weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.argument import (
    check_callable,
    check_flag,
    check_instance,
    check_integer,
    check_positive,
    check_real,
    shown,
    static_real,
)
from tfp_rmhmc.data_sum import SumOverBatches
from tfp_rmhmc.keras.hierarchical import Hierarchical, HierarchicalPrior
from tfp_rmhmc.keras.likelihood import Likelihood, likelihood_of
from tfp_rmhmc.keras.network import Network, check_model
from tfp_rmhmc.keras.plot import plot_calibration, plot_predictive
from tfp_rmhmc.keras.predictive import Predictive
from tfp_rmhmc.keras.prior import CallablePrior, NormalPrior, Prior, prior_scales
from tfp_rmhmc.metric import GaussNewtonMetric, SeparableMetric
from tfp_rmhmc.noise import seed_words

__all__ = ['KerasPosterior', 'make_posterior']

# A priori the logarithm of an inferred noise scale is N(-1, 1): a scale of 0.1 to 1.4, for observations of unit variance.
_LOG_SCALE_MEAN, _LOG_SCALE_DEVIATION = -1.0, 1.0
_JITTER = 0.1  # of chains' starts, in prior standard deviations
# At which the data's information is taken, and how far they are from the weights, in prior standard deviations. A network
# that was trained until it is sure of everything would have hardly any.
_NUM_POSITIONS, _SPREAD = 32, 0.3
_NUM_GRID = 200  # inputs at which a curve is drawn


def make_posterior(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    likelihood: str | Callable[[tf.Tensor], tfp.distributions.Distribution] = 'gaussian',
    prior: Any = 'fan_in',
    noise_scale: float | None = 1.0,
    batch_size: int | None = None,
) -> KerasPosterior:
    """The posterior of a Keras model's trainable weights.

    Layers are in inference mode: dropout is off, batch normalisation uses its moving statistics. Frozen layers stay as they
    are. The model is not changed by sampling, and training it afterwards does not change the posterior.

    Args:
      model: a built Keras 3 model (Sequential, functional or subclassed; TensorFlow backend) or tf_keras model, with
        outputs `[N, K]`.
      x: inputs, `[N, ...]` or a structure of these; or a finite `tf.data.Dataset` of batches `(x, y)`.
      y: observations; None with a dataset.
      likelihood: `'gaussian'` (y like the outputs), `'bernoulli'` (y 0 or 1, outputs logits), `'categorical'` (y integer
        labels, outputs logits), `'poisson'` (y counts, outputs log rates), or a callable from outputs `[batch..., N, K]` to
        a `tfd.Distribution` of the observations.
      prior: standard deviations of independent normals of mean 0. By default `'fan_in'`: 1 / sqrt(fan-in) for kernels, 1
        for biases and the rest; or a number; or a dict from layer or weight names to numbers; or a list with one per
        weight; or a callable from the weights to their log density `[batch...]`. Or `'hierarchical'`, scales that are
        inferred: each kernel has a log scale, N(0, 1) a priori, times `'fan_in'`'s scale; `Hierarchical(...)` for other
        groups and scales.
      noise_scale: standard deviation of the Gaussian likelihood. With None it is inferred: the state then has one more
        part, its logarithm, N(-1, 1) a priori.
      batch_size: if given, the log density is summed over batches of this size, and only one is evaluated at a time.

    Returns:
      A `KerasPosterior`.
    """
    network = Network(model)
    if noise_scale is not None:
        check_positive('noise_scale', noise_scale)
        value, dtype = static_real('noise_scale', noise_scale), network.weights[0].dtype
        if value is not None and value > dtype.max:
            raise ValueError(f'`noise_scale` must be a number that {dtype.name} can hold, got {shown(noise_scale)}.')
    terms = likelihood_of(likelihood, noise_scale)
    is_dataset = isinstance(x, tf.data.Dataset)
    if is_dataset != (y is None):
        raise ValueError(
            f'`y` must be given with arrays and left out with a dataset of (x, y), got {shown(y)} with {shown(x)}.'
        )
    if batch_size is not None:
        check_integer('batch_size', batch_size, least=1)
        if is_dataset:
            raise ValueError(f'`batch_size` is for arrays; a dataset has its own, got {batch_size!r}.')
    if is_dataset and not (isinstance(x.element_spec, tuple) and len(x.element_spec) == 2):
        raise ValueError(f'`x` must be a dataset of pairs (x, y), got elements {x.element_spec}.')
    if is_dataset:
        first_x, first_y = _first_of(x)
    else:
        first_x, first_y = _inputs(x), y
    observed = _check_data(network, terms, first_x, first_y)
    _warn_of_fixed_statistics(model)
    if network.last_activation in terms.other_activations:
        warnings.warn(
            f'The outputs of `model` are taken for {terms.meaning}, but its last activation is '
            f'{network.last_activation!r}: leave that out, or pass a callable `likelihood` of its outputs.',
            stacklevel=2,
        )
    if is_dataset:
        data = x
    elif batch_size is not None:
        data = tf.data.Dataset.from_tensor_slices((first_x, observed)).batch(batch_size)
    else:
        data = (first_x, observed)
    shapes = [weight.shape.as_list() for weight in network.weights]
    prior = _prior_of(prior, network.names, shapes, network.weights[0].dtype)
    posterior = KerasPosterior(network, terms, prior, data)
    if is_dataset:
        posterior.check_passes()
    return posterior


def _prior_of(prior: Any, names: Sequence[str], shapes: Sequence[Sequence[int]], dtype: tf.DType) -> Prior:
    """The prior that `make_posterior`'s argument describes."""
    if isinstance(prior, Hierarchical):
        return prior.of(names, shapes, dtype)
    if isinstance(prior, str) and prior == 'hierarchical':
        return Hierarchical().of(names, shapes, dtype)
    if not callable(prior):
        return NormalPrior(prior_scales(prior, names, shapes), shapes, dtype)
    check_callable('prior', prior)  # a class, such as `Hierarchical` without its parentheses, is none
    return CallablePrior(prior, NormalPrior(prior_scales('fan_in', names, shapes), shapes, dtype))


class KerasPosterior:
    """The posterior of a network's weights; made by `make_posterior`.

    The state is the list of trainable weights, each `[batch..., shape...]`; then, with a hierarchical prior, the log scales
    of its groups, each `[batch..., size]`; then the logarithm of the noise scale, `[batch..., 1]`, if that is inferred.

    Attributes:
      names: of the state parts.
      target_log_prob_fn: the log density of the state parts, `[batch...]`.
    """

    def __init__(self, network: Network, likelihood: Likelihood, prior: Prior, data: Any):
        check_instance('network', network, Network, 'a Network: use `make_posterior`')
        check_instance('likelihood', likelihood, Likelihood, 'a Likelihood: use `make_posterior`')
        check_instance('prior', prior, Prior, 'a Prior: use `make_posterior`')
        if not isinstance(data, tf.data.Dataset) and not (isinstance(data, tuple) and len(data) == 2):
            raise TypeError(f'`data` must be a pair (x, y) or a dataset of such, got {shown(data)}.')
        self._network = network
        self._likelihood = likelihood
        self._prior = prior
        self._data = data
        self.names = [*network.names, *prior.names, *(['log_noise_scale'] if likelihood.has_log_scale else [])]
        self.target_log_prob_fn: Callable[..., tf.Tensor]
        if isinstance(data, tf.data.Dataset):
            self.target_log_prob_fn = SumOverBatches(self._log_likelihood, data, self.log_prior)
        else:
            self.target_log_prob_fn = lambda *parts: self._log_likelihood(data, *parts) + self.log_prior(*parts)

    def check_passes(self) -> None:
        """Raises unless the dataset, if there is one, holds the same elements on each pass. Cost: three passes."""
        if isinstance(self.target_log_prob_fn, SumOverBatches):
            self.target_log_prob_fn.check_passes(*self.initial_state())

    @property
    def dimension(self) -> int:
        """The number of coordinates of the state."""
        return self._network.dimension + sum(self._prior.sizes) + int(self._likelihood.has_log_scale)

    @property
    def has_separable_metric(self) -> bool:
        """Whether the prior is hierarchical, so that `separable_metric` can say who sets whose scale."""
        return isinstance(self._prior, HierarchicalPrior)

    def log_prior(self, *parts: tf.Tensor) -> tf.Tensor:
        """The log prior density `[batch...]` of state parts `[batch..., shape...]`."""
        weights, log_scales, log_scale = self._split(parts)
        log_prior = self._prior.log_prob(*weights, *log_scales)
        if log_scale is None:
            return log_prior
        normal = tfp.distributions.Normal(
            tf.cast(_LOG_SCALE_MEAN, log_scale.dtype), tf.cast(_LOG_SCALE_DEVIATION, log_scale.dtype)
        )
        return log_prior + normal.log_prob(log_scale)[..., 0]

    def initial_state(
        self, num_chains: int | None = None, seed: Any = (0, 0), from_prior: bool = False, jitter: float | None = None
    ) -> list[tf.Tensor]:
        """Initial state parts `[num_chains, shape...]`; `[shape...]` if `num_chains` is None.

        Args:
          num_chains: number of chains. They start around the weights that the model had when the posterior was made. R-hat
            can see that chains disagree only if they did not start at one point.
          seed: an int or int32[2], for the draws.
          from_prior: whether each chain starts at its own draw from the prior instead.
          jitter: how far around the weights, in units of the prior's standard deviation (of `'fan_in'`'s where the prior is
            a callable); by default 0.1, and 0 without a number of chains. With a hierarchical prior log scales start around
            those that fit the weights, and weights move with them. With 1 chains start about as far apart as the prior
            is wide, farther than the posterior.
        """
        if num_chains is not None:
            check_integer('num_chains', num_chains, least=1)
        check_flag('from_prior', from_prior)
        if jitter is not None:
            check_real('jitter', jitter, least=0.0)
        num = 1 if num_chains is None else int(num_chains)
        with tf.init_scope():  # the draws are NumPy's, also where a graph is traced
            seed = seed_words('seed', seed)
        if from_prior:
            parts = self._prior.draw(num, seed)
        else:
            jitter = (0.0 if num_chains is None else _JITTER) if jitter is None else float(jitter)
            parts = self._prior.around(self._network.weights, num, jitter, seed)
        if self._likelihood.has_log_scale:
            parts.append(tf.fill([num, 1], tf.cast(_LOG_SCALE_MEAN, parts[0].dtype)))
        return [part[0] for part in parts] if num_chains is None else parts

    def gauss_newton_metric(self, prior_precision: Any = None) -> GaussNewtonMetric:
        """`GaussNewtonMetric` of this network and likelihood.

        Args:
          prior_precision: scalar or `[dimension]`; by default that of the prior, if it was given by scales; of a
            hierarchical one where its log scales are 0.
        """
        if prior_precision is None:
            prior_precision = self._prior.precision()
            if self._likelihood.has_log_scale:
                prior_precision = np.append(prior_precision, _LOG_SCALE_DEVIATION**-2.0)
        information_fn = self._likelihood.information_fn
        if information_fn is None:
            raise ValueError(
                'A Gauss-Newton metric needs a likelihood of known Fisher information: gaussian, bernoulli, categorical or '
                'poisson, not a callable.'
            )
        if isinstance(self.target_log_prob_fn, SumOverBatches):
            return GaussNewtonMetric(self._natural_parameters, information_fn, prior_precision, self.target_log_prob_fn)
        output_fn = lambda *parts: self._natural_parameters(self._data, *parts)  # noqa: E731
        return GaussNewtonMetric(output_fn, information_fn, prior_precision)

    def separable_metric(self, draws: Any = None, seed: Any = (0, 0)) -> SeparableMetric:
        """The `SeparableMetric` of a hierarchical prior: weights at the scale that the log scales say.

            G_i = I_i exp(2 sum_k (s_k - r_k)) + (scale_i exp(s_g(i)))^-2  for a weight,
            G_g = 2 n_g + deviation^-2                                     for a log scale

        with s the log scales, n_g the number of weights of one, which pin it down, and k the other kernels: outputs are
        proportional to each of them where activations are homogeneous, such as ReLU, so that one layer may grow while
        another one shrinks. I_i is the Fisher information of the data where s = r, for each weight by itself, about: a
        mean over squared scores of observations that are drawn from the likelihood, at some positions around r. Nothing
        is learned. A step of `SeparableLeapfrog` costs one gradient.

        Args:
          draws: positions for the information: state parts with leading dimensions, of which some are taken. By default
            around the weights that the model had when the posterior was made.
          seed: int32[2], for the positions and observations.
        """
        prior = self._prior
        if not isinstance(prior, HierarchicalPrior):  # what `has_separable_metric` says
            raise ValueError("A separable metric needs prior='hierarchical' or Hierarchical(...): its scales vary.")
        if draws is None:
            positions = [part.numpy() for part in self.initial_state(_NUM_POSITIONS, seed, jitter=_SPREAD)]
        else:
            flat = self._flat_draws(draws)
            which = np.unique(np.linspace(0, len(flat[0]) - 1, _NUM_POSITIONS).astype(int))
            positions = [part[which] for part in flat]
        # The information about the log of a noise scale is 2 for each number that was observed.
        others: list[float] = []
        if self._likelihood.has_log_scale:
            others = [-0.5 * np.log(2.0 * self._num_observed() + _LOG_SCALE_DEVIATION**-2.0)]
        return prior.metric(self._squared_scores(positions, seed), self._split(positions)[1], others)

    def _squared_scores(self, positions: Sequence[np.ndarray], seed: Any) -> list[np.ndarray]:
        """Of the weights, for observations that the likelihood has at each position: `[positions, shape...]`."""

        @tf.function(autograph=False, reduce_retracing=True)
        def squares(x: Any, parts: list[tf.Tensor], seed: tf.Tensor) -> list[tf.Tensor]:
            weights, _, log_scale = self._split(parts)
            with tf.GradientTape() as tape:
                tape.watch(weights)
                outputs = self._network(x, weights)
                distribution = self._likelihood.distribution(outputs, log_scale)
                drawn = tf.stop_gradient(distribution.sample(seed=seed))
                log_prob = tf.reduce_sum(distribution.log_prob(drawn))
            return [tf.square(gradient) for gradient in tape.gradient(log_prob, weights)]

        batches = self._data if isinstance(self._data, tf.data.Dataset) else [self._data]
        num = len(positions[0])
        total = [np.zeros([num, *weight.shape], weight.dtype.as_numpy_dtype) for weight in self._network.weights]
        # Scores of batches are independent and of mean 0: the squares of their sum are the sums of their squares.
        for b, (x, _) in enumerate(batches):
            for i in range(num):
                where = [tf.constant(part[i]) for part in positions]
                found = squares(x, where, tf.constant(np.asarray(seed), tf.int32) + tf.constant([b, i], tf.int32))
                for sums, square in zip(total, found, strict=True):
                    sums[i] += square.numpy()
        return total

    def _num_observed(self) -> int:
        batches = self._data if isinstance(self._data, tf.data.Dataset) else [self._data]
        return sum(int(np.prod(np.shape(y))) for _, y in batches)

    def predict(self, draws: Any, x: Any, batch_size: int = 32) -> Predictive:
        """The predictive distribution at inputs `x`, a mixture over draws.

        Args:
          draws: of `sample_posterior` or `sample_chain`: state parts, each `[draws..., shape...]` with any number of
            leading dimensions.
          x: inputs, `[N, ...]`.
          batch_size: draws evaluated together.
        """
        x = _inputs(x)
        check_integer('batch_size', batch_size, least=1)
        _outputs_at(self._network, tf.nest.map_structure(lambda part: part[:1], x))

        def outputs_fn(*parts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
            weights, _, log_scale = self._split(parts)
            return self._network(x, weights), log_scale

        return Predictive(outputs_fn, self._likelihood, self._flat_draws(draws), batch_size)

    def plot_calibration(self, draws: Any, x: Any = None, y: Any = None, num_bins: int = 15, axes: Any = None) -> Any:
        """A reliability diagram of a classifier, with the number of predictions in each bin. Needs matplotlib.

        Args:
          draws: as `predict` takes them.
          x, y: inputs and labels, best those of a test; by default the posterior's own data.
          num_bins: of the confidence, of equal width.
          axes: two of matplotlib, for diagram and counts; by default those of a new figure.

        Returns:
          The two axes.
        """
        x, y = self._data_or(x, y)
        return plot_calibration(self.predict(draws, x), y, num_bins, axes)

    def plot_predictive(self, draws: Any, x: Any = None, y: Any = None, axes: Any = None) -> Any:
        """The predictive mean along the only input of a network with one output, with bands, over data. Needs matplotlib.

        Args:
          draws: as `predict` takes them.
          x, y: data that are shown, and whose range is; by default the posterior's own.
          axes: of matplotlib; by default those of a new figure.

        Returns:
          The axes.
        """
        x, y = (np.asarray(value) for value in self._data_or(x, y))
        if x.size != len(x) or y.size != len(y):
            raise ValueError(f'`x` and `y` must have one number in each row, got shapes {x.shape} and {y.shape}.')
        margin = 0.1 * np.ptp(x)
        grid = np.linspace(x.min() - margin, x.max() + margin, _NUM_GRID).astype(x.dtype)
        predictive = self.predict(draws, np.reshape(grid, [-1, *x.shape[1:]]))
        return plot_predictive(predictive, grid, x.ravel(), y.ravel(), axes)

    def _data_or(self, x: Any, y: Any) -> tuple[Any, Any]:
        """What is given, or all data of the posterior."""
        if (x is None) != (y is None):
            raise ValueError('`x` and `y` must be given both or neither, got one of them.')
        if x is not None:
            return x, y
        if not isinstance(self._data, tf.data.Dataset):
            return self._data
        pairs = list(self._data)
        return tf.nest.map_structure(lambda *batches: tf.concat(batches, axis=0), *pairs)

    def load(self, draw: Sequence[Any], model: Any) -> None:
        """Puts one draw, the state parts without leading dimensions, into a model of the same architecture."""
        weights, _, _ = self._split(self._checked_parts('draw', draw))
        check_model(model)
        variables = model.trainable_variables
        ours, theirs = [tuple(np.shape(w)) for w in weights], [tuple(v.shape) for v in variables]
        if ours != theirs:
            raise ValueError(f"`draw` must have the shapes of the model's trainable weights, {theirs}, got {ours}.")
        for variable, weight in zip(variables, weights, strict=True):
            variable.assign(weight)

    def _split(self, parts: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
        """Weights, log scales of the prior, and the log of the noise scale or None."""
        if len(parts) != len(self.names):
            raise ValueError(f'The state must have {len(self.names)} parts, {self.names}, got {len(parts)}.')
        first = len(self._network.weights)
        last = first + len(self._prior.names)
        log_scale = parts[-1] if self._likelihood.has_log_scale else None
        return list(parts[:first]), list(parts[first:last]), log_scale

    def _log_likelihood(self, data: Any, *parts: tf.Tensor) -> tf.Tensor:
        x, y = data
        weights, _, log_scale = self._split(parts)
        outputs = self._network(x, weights)
        observed = self._likelihood.observations(y, outputs[(0,) * (outputs.shape.rank - 2)])
        return tf.reduce_sum(self._likelihood.log_prob(observed, outputs, log_scale), axis=-1)

    def _natural_parameters(self, data: Any, *parts: tf.Tensor) -> tf.Tensor:
        x, _ = data
        weights, _, log_scale = self._split(parts)
        return self._likelihood.natural_parameters(self._network(x, weights), log_scale)

    def _checked_parts(self, name: str, parts: Any) -> list[np.ndarray]:
        """The state parts of an argument, as arrays of numbers."""
        what = f'a list of {len(self.names)} arrays, {self.names}'
        if not isinstance(parts, (list, tuple)):
            raise TypeError(f'`{name}` must be {what}, got {shown(parts)}.')
        found = [
            np.asarray(part) if array is None else array for part in parts for array in [static_real(name, part, what)]
        ]
        if len(found) != len(self.names):
            raise ValueError(f'`{name}` must be {what}, got {len(found)}.')
        return found

    def _flat_draws(self, draws: Any) -> list[np.ndarray]:
        events = [weight.shape.as_list() for weight in self._network.weights] + [[size] for size in self._prior.sizes]
        if self._likelihood.has_log_scale:
            events.append([1])
        parts = self._checked_parts('draws', draws)
        for name, part, event in zip(self.names, parts, events, strict=True):
            if part.ndim <= len(event) or list(part.shape[part.ndim - len(event) :]) != event:
                raise ValueError(f'`draws` of {name!r} must have shape [draws..., {event}], got {part.shape}.')
        return [np.reshape(part, [-1, *event]) for part, event in zip(parts, events, strict=True)]


def _inputs(x: Any) -> Any:
    """A structure of inputs, as tensors."""
    try:
        inputs = tf.nest.map_structure(tf.convert_to_tensor, x)
        is_good = all(part.shape.rank and part.shape[0] for part in tf.nest.flatten(inputs)) and tf.nest.flatten(inputs)
    except (TypeError, ValueError):
        is_good = False
    if not is_good or any(part.dtype.is_complex for part in tf.nest.flatten(inputs)):
        raise TypeError(f'`x` must be an array [N, ...] or a structure of these, got {shown(x)}.')
    return inputs


def _outputs_at(network: Network, x: Any) -> tf.Tensor:
    """The outputs at the model's own weights."""
    try:
        return network(x, network.weights)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        shapes = [part.shape.as_list() for part in tf.nest.flatten(x)]
        raise ValueError(f'`x` must be what the model takes, got shapes {shapes}: {shown(error)}.') from error


def _first_of(dataset: tf.data.Dataset) -> tuple[Any, Any]:
    for pair in dataset.take(1):
        return pair
    raise ValueError('`x` must hold at least one batch, got an empty dataset.')


def _check_data(network: Network, likelihood: Likelihood, x: Any, y: Any) -> tf.Tensor:
    """The observations as tensors; raises an error of one sentence if data, model and likelihood do not fit."""
    with tf.GradientTape() as tape:
        tape.watch(network.weights)
        outputs = _outputs_at(network, x)
        if outputs.shape.rank != 2:
            raise ValueError(f'`model` must give outputs of shape [N, K], got {outputs.shape}.')
        num_inputs = tf.nest.flatten(x)[0].shape[0]
        if outputs.shape[0] != num_inputs:
            raise ValueError(f'`model` must give one row of outputs for each of {num_inputs} inputs, got {outputs.shape}.')
        observed = likelihood.observations(y, outputs)
        log_scale = tf.zeros([1], outputs.dtype) if likelihood.has_log_scale else None
        log_prob = tf.reduce_sum(likelihood.log_prob(observed, outputs, log_scale))
    if not np.array_equal(outputs, network(x, network.weights), equal_nan=True):
        raise ValueError('`model` gives different outputs for the same inputs: a layer is random at inference.')
    for name, gradient in zip(network.names, tape.gradient(log_prob, network.weights), strict=True):
        if gradient is None:
            raise ValueError(f'The likelihood has no gradient with respect to {name!r}: a layer is not differentiable.')
    if not np.isfinite(log_prob):
        raise ValueError(f"`x` and `y` must have a finite log likelihood at the model's weights, got {log_prob.numpy()}.")
    return observed


def _warn_of_fixed_statistics(model: Any) -> None:
    for layer in model.layers:
        if 'BatchNormalization' in type(layer).__name__:
            warnings.warn(
                f'Layer {layer.name!r} normalises with its moving statistics, which stay as they are: the posterior is '
                'conditional on them.',
                stacklevel=3,
            )
