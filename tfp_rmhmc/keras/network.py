"""A Keras model as a pure function of its trainable weights."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.argument import shown

__all__ = ['Network', 'check_model']

# Convolutions whose filters differ between chains are not vectorised by TensorFlow: a loop over chains is as fast, and XLA
# can compile it.
_LOOPED_LAYERS = ('Conv',)
# Layers that leave numbers as they are, at inference.
_PASSING_LAYERS = ('Dropout', 'Flatten', 'Reshape', 'ActivityRegularization', 'Identity')


class Network:
    """`outputs = network(x, weights)`, with everything but the trainable weights fixed at its present value.

    Layers are in inference mode. Neither the model nor its variables are changed, and later training of the model does
    not change the network.

    Args:
      model: a built Keras 3 model (TensorFlow backend) or tf_keras model.
    """

    def __init__(self, model: Any):
        check_model(model)
        self._model = model
        variables = model.trainable_variables
        self.weights = [tf.constant(_value_of(v)) for v in variables]
        self.names = _names_of(variables, model.name)
        # Copied into constants, so that no derivative and no later training involves the variables.
        self._others = [tf.constant(_value_of(v)) for v in model.non_trainable_variables]
        self._loops_over_chains = any(
            kind in type(layer).__name__ for layer in _layers_of(model) for kind in _LOOPED_LAYERS
        )

    @property
    def last_activation(self) -> str | None:
        """The name of the function that makes the model's outputs, such as `'softmax'`; None where it is not known."""
        return _last_activation(self._model)

    @property
    def dimension(self) -> int:
        """The number of trainable weights."""
        return sum(math.prod(weight.shape) for weight in self.weights)

    def __call__(self, x: Any, weights: Sequence[tf.Tensor]) -> tf.Tensor:
        """Outputs `[batch..., N, ...]` for inputs `[N, ...]` and weights `[batch..., shape...]`."""
        batch_rank = weights[0].shape.rank - self.weights[0].shape.rank
        if batch_rank == 0:
            return self._call(x, weights)
        batch = tf.shape(weights[0])[:batch_rank]
        flat = [
            tf.reshape(weight, tf.concat([[-1], tf.shape(weight)[batch_rank:]], axis=0)) if batch_rank > 1 else weight
            for weight in weights
        ]
        num_chains = flat[0].shape[0]
        if self._loops_over_chains and num_chains is not None:
            outputs = tf.stack([self._call(x, [weight[i] for weight in flat]) for i in range(num_chains)])
        else:
            outputs = tf.vectorized_map(lambda weights: self._call(x, weights), flat)
        if batch_rank == 1:
            return outputs
        return tf.reshape(outputs, tf.concat([batch, tf.shape(outputs)[1:]], axis=0))

    def _call(self, x: Any, weights: Sequence[tf.Tensor]) -> tf.Tensor:
        if hasattr(self._model, 'stateless_call'):
            outputs, _ = self._model.stateless_call(list(weights), self._others, x, training=False)
            return tf.convert_to_tensor(outputs)
        # Eager operations read a variable's memory and so miss the substitute; operations of a graph see it.
        call = tf.function(self._call_tf_keras, autograph=False) if tf.executing_eagerly() else self._call_tf_keras
        return call(x, list(weights))

    def _call_tf_keras(self, x: Any, weights: list[tf.Tensor]) -> tf.Tensor:
        variables = [*self._model.trainable_variables, *self._model.non_trainable_variables]
        with _substituted(variables, [*weights, *self._others]):
            return tf.convert_to_tensor(self._model(x, training=False))


@contextlib.contextmanager
def _substituted(variables: Sequence[Any], values: Sequence[tf.Tensor]) -> Iterator[None]:
    """Makes each variable return the given value when it is read, for models that have no `stateless_call`."""
    try:
        for variable, value in zip(variables, values, strict=True):
            variable.value = lambda value=value: value
            variable.read_value = variable.value
            variable.sparse_read = lambda indices, name=None, value=value: tf.gather(value, indices, name=name)
        yield
    finally:
        for variable in variables:
            for name in ('value', 'read_value', 'sparse_read'):
                variable.__dict__.pop(name, None)


def check_model(model: Any) -> None:
    """Raises an error of one sentence unless `model` is a built Keras model whose weights can be sampled."""
    if isinstance(model, type) or not all(hasattr(model, name) for name in ('trainable_variables', 'built', 'layers')):
        raise TypeError(f'`model` must be a Keras model, got {shown(model)}.')
    if not model.built:
        raise ValueError(f'`model` {model.name!r} must be built: call it once on data, or give it an input shape.')
    if not model.trainable_variables:
        raise ValueError(f'`model` {model.name!r} has no trainable weights: nothing is left to sample.')
    dtypes = {np.dtype(_value_of(v).dtype).name for v in model.trainable_variables}
    if len(dtypes) > 1:
        raise ValueError(f'The trainable weights of `model` must share one dtype, got {sorted(dtypes)}.')
    for layer in _layers_of(model):
        if getattr(layer, 'stateful', False) is True:
            raise ValueError(
                f'Layer {layer.name!r} is stateful: its outputs depend on earlier calls, so the posterior is not defined; '
                'build it with stateful=False.'
            )


def _last_activation(model: Any) -> str | None:
    """By the last layer of a sequential model, or the layer that a functional one's output comes from."""
    outputs = getattr(model, 'outputs', None)
    if outputs:
        layer = getattr(outputs[0], '_keras_history', (None,))[0] if len(outputs) == 1 else None
    else:  # a sequential model without an input, or a subclassed one, of which nothing is known
        layer = model.layers[-1] if any(cls.__name__ == 'Sequential' for cls in type(model).__mro__) else None
    while type(layer).__name__ in _PASSING_LAYERS:
        layer = _layer_before(model, layer)
    if layer is None:
        return None
    if hasattr(layer, 'layers') and layer is not model:
        return _last_activation(layer)
    activation = getattr(layer, 'activation', None)
    name = type(layer).__name__ if activation is None else getattr(activation, '__name__', '')
    return name.lower()


def _layer_before(model: Any, layer: Any) -> Any:
    """The one layer whose outputs a layer of the model takes; None where there is no such."""
    if any(cls.__name__ == 'Sequential' for cls in type(model).__mro__) and layer in model.layers:
        index = model.layers.index(layer)
        return model.layers[index - 1] if index > 0 else None
    try:
        return layer.input._keras_history[0]
    except (AttributeError, ValueError, RuntimeError):
        return None


def _layers_of(model: Any) -> list[Any]:
    """The model's layers, including those of nested models."""
    flatten = getattr(model, '_flatten_layers', None)
    return list(flatten(include_self=False)) if flatten is not None else list(model.layers)


def _value_of(variable: Any) -> np.ndarray:
    return np.asarray(variable.numpy())


def _names_of(variables: Sequence[Any], model_name: str) -> list[str]:
    """`layer/weight`, with a number appended where two would be the same."""
    names = [getattr(v, 'path', v.name).removeprefix(f'{model_name}/').removesuffix(':0') for v in variables]
    return [name if names.count(name) == 1 else f'{name}_{names[:i].count(name)}' for i, name in enumerate(names)]
