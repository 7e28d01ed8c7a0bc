"""The Gauss-Newton metric of a model with outputs and a likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_choice, check_finite_array, check_instance, check_precision, shown
from tfp_rmhmc.data_sum import SumOverData
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.linalg import WeightedGram
from tfp_rmhmc.metric.base import DenseMetric

__all__ = ['INFORMATION', 'GaussNewtonMetric']


def _categorical_information(logits: tf.Tensor) -> tf.Tensor:
    probabilities = tf.nn.softmax(logits)
    outer = probabilities[..., :, tf.newaxis] * probabilities[..., tf.newaxis, :]
    return tf.linalg.diag(probabilities) - outer


# Fisher information of a likelihood's natural parameters, by name.
INFORMATION: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    'gaussian': tf.ones_like,
    'bernoulli': lambda logits: tf.sigmoid(logits) * tf.sigmoid(-logits),
    'categorical': _categorical_information,
    'poisson': tf.exp,
}


class GaussNewtonMetric(DenseMetric):
    """`G(q) = J' Lambda J + prior_precision`: J the Jacobian of the outputs, Lambda their Fisher information.

    It is positive definite by construction and needs no third derivatives. With K outputs, cost of an evaluation:
    `min(D, K)` vectorised passes for J, `O(K D^2)` for the product, one Cholesky; memory `O(K D)` a chain. For a
    generalised linear model use `GaussNewtonMetric.of_design`, which needs no J.

    Args:
      output_fn: takes the state parts and returns the model's outputs `[batch..., K]` or `[batch..., N, C]`. (A design
        matrix is still accepted here; prefer `of_design`.)
      likelihood: `'gaussian'` (unit noise), `'bernoulli'` (logits), `'categorical'` (logits `[batch..., N, C]`),
        `'poisson'` (log rates), or a callable from outputs to their Fisher information: shaped like the outputs if it is
        diagonal, else with one more dimension, `[batch..., N, C, C]`, a block for each of N observations.
      prior_precision: positive scalar, `[D]`, or a symmetric positive definite `[D, D]`.
      data: a `SumOverBatches` or `SumOverReplicas`, if the outputs are to be computed piece by piece: `output_fn` then
        takes a piece of its data before the state parts, and `J' Lambda J` is summed over the pieces.
    """

    follows_curvature = True

    def __init__(
        self,
        output_fn: Callable[..., tf.Tensor] | Any,
        likelihood: str | Callable[[tf.Tensor], tf.Tensor] = 'gaussian',
        prior_precision: Any = 1.0,
        data: SumOverData | None = None,
    ):
        if not callable(output_fn) and not isinstance(output_fn, WeightedGram):
            # Deprecated since `of_design` exists, and kept for scripts that pass a matrix.
            output_fn = _gram('output_fn', output_fn)
        if isinstance(output_fn, WeightedGram) and data is not None:
            raise ValueError(f'`data` must be None where `output_fn` is a matrix, got {shown(data)}.')
        if not callable(likelihood):
            check_choice('likelihood', likelihood, list(INFORMATION), also='callable or ')
        check_precision('prior_precision', prior_precision)
        if data is not None:
            check_instance('data', data, SumOverData, 'None, a SumOverBatches or a SumOverReplicas')
        self._output_fn = output_fn
        self._likelihood = likelihood
        self._prior_precision = prior_precision
        self._data = data

    @classmethod
    def of_design(
        cls, design: Any, likelihood: str | Callable[[tf.Tensor], tf.Tensor] = 'gaussian', prior_precision: Any = 1.0
    ) -> GaussNewtonMetric:
        """The metric of a generalised linear model, `X' Lambda X + prior_precision`.

        No Jacobian is computed, and one product serves all chains: five to eight times faster than the same model given
        as a function. Cost of an evaluation: `K D (D + 1)` operations a chain, one Cholesky. See `linalg.WeightedGram`.

        Args:
          design: `X: [K, D]`, finite; the outputs are its product with the flattened state.
          likelihood: as in the constructor, but the Fisher information must be diagonal, shaped like the outputs.
          prior_precision: as in the constructor.
        """
        return cls(_gram('design', design), likelihood, prior_precision)

    def matrix(self, density: LogDensity, position: tf.Tensor) -> tf.Tensor:
        unflatten = density.layout.unflatten
        if isinstance(self._output_fn, WeightedGram):
            curvature = self._linear_curvature(self._output_fn, position)
        elif self._data is None:
            curvature = self._curvature(lambda flat: self._output_fn(*unflatten(flat)), position)
        else:
            (curvature,) = self._data.sum(
                lambda piece, position: [self._curvature(lambda flat: self._output_fn(piece, *unflatten(flat)), position)],
                position,
            )
        return curvature + self._prior_matrix(position.shape[-1], position.dtype)

    def _curvature(self, output_fn: Callable[[tf.Tensor], tf.Tensor], position: tf.Tensor) -> tf.Tensor:
        """`J' Lambda J`."""
        batch_rank = position.shape.rank - 1
        shape: list[tf.Tensor] = []  # of the outputs, known once they have been computed

        def flat_outputs(flat: tf.Tensor) -> tf.Tensor:
            outputs = tf.convert_to_tensor(output_fn(flat))
            if outputs.shape.rank is None or outputs.shape.rank <= batch_rank:
                raise ValueError(f'`output_fn` must return [batch..., outputs...], got shape {outputs.shape}.')
            shape[:] = [tf.shape(outputs)]
            return tf.reshape(outputs, tf.concat([tf.shape(flat)[:-1], [-1]], axis=0))

        outputs, jacobian = autodiff.jacobian(flat_outputs, position)
        outputs = tf.reshape(outputs, shape[0])
        information = self._information(outputs)
        if information.shape.rank == outputs.shape.rank:
            weighted = tf.reshape(information, tf.shape(jacobian)[:-1])[..., tf.newaxis] * jacobian
        elif information.shape.rank == outputs.shape.rank + 1:
            blocks = tf.reshape(jacobian, tf.concat([tf.shape(outputs), [position.shape[-1]]], axis=0))
            weighted = tf.reshape(tf.matmul(information, blocks), tf.shape(jacobian))
        else:
            raise ValueError(
                f'`likelihood` must return the Fisher information of outputs of shape {outputs.shape}: that shape, or one '
                f'more dimension; got shape {information.shape}.'
            )
        return tf.matmul(jacobian, weighted, transpose_a=True)

    def _linear_curvature(self, gram: WeightedGram, position: tf.Tensor) -> tf.Tensor:
        """`X' Lambda X`."""
        if gram.design.shape[1] != position.shape[-1]:
            raise ValueError(f'`output_fn` must have a column for each of {position.shape[-1]} coordinates, got {gram!r}.')
        outputs = gram.rows_times(position)
        information = self._information(outputs)
        if information.shape.rank != outputs.shape.rank:
            raise ValueError(
                f'`likelihood` must return the Fisher information of each output by itself where `output_fn` is a matrix, '
                f'that is, shape {outputs.shape}; got shape {information.shape}.'
            )
        return gram(information)

    def _information(self, outputs: tf.Tensor) -> tf.Tensor:
        return (self._likelihood if callable(self._likelihood) else INFORMATION[self._likelihood])(outputs)

    def _prior_matrix(self, dimension: int, dtype: tf.DType) -> tf.Tensor:
        precision = tf.cast(self._prior_precision, dtype)
        if precision.shape.rank > 0 and precision.shape[-1] != dimension:
            raise ValueError(
                f'`prior_precision` must fit the {dimension} coordinates of the state, got shape {precision.shape}.'
            )
        if precision.shape.rank < 2:
            return tf.linalg.diag(precision * tf.ones([dimension], dtype))
        return precision


def _gram(name: str, design: Any) -> WeightedGram:
    """The Gram matrices of a design that the user passed as the argument `name`."""
    what = 'a matrix [K, D]' if name == 'design' else 'callable or a matrix [K, D]'
    check_finite_array(name, design, 2, what)
    return WeightedGram(design)
