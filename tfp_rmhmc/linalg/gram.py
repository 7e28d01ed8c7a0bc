"""Weighted Gram matrices of a fixed design."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.linalg.constant import captured

__all__ = ['WeightedGram']

# Outer products are computed in advance if they hold at most this many numbers, 128 MB in float64.
_MAX_PRODUCTS = 2**24


class WeightedGram:
    """`X' diag(w) X` for one design `X: [K, D]` and many weights.

    The result is linear in the weights: it is the product of the weights with the outer products of X's rows. These are
    computed in advance, and only their lower triangles. One such product serves all chains, at `K D (D + 1)` operations
    a chain, and the same holds for the derivative. Where the outer products would take too much memory, `w X` is
    computed for each chain instead, at twice the cost.
    """

    def __init__(self, design: Any):
        self.design = np.asarray(design)
        num_rows, dimension = self.design.shape
        self._products = None
        if num_rows * dimension * (dimension + 1) // 2 <= _MAX_PRODUCTS:
            # The diagonal is halved, because a call adds the lower triangle and its transpose.
            outer = self.design[:, :, np.newaxis] * self.design[:, np.newaxis, :]
            lower = outer * (np.tri(dimension) - 0.5 * np.eye(dimension))
            with tf.init_scope():  # a metric may be made while a function is traced
                self._products = tfp.math.fill_triangular_inverse(lower).numpy()

    def rows_times(self, vector: tf.Tensor) -> tf.Tensor:
        """`X v: [batch..., K]` of `v: [batch..., D]`."""
        return tf.tensordot(vector, captured(self.design.T, vector.dtype), 1)

    def __call__(self, weights: tf.Tensor) -> tf.Tensor:
        """`X' diag(w) X: [batch..., D, D]` of `w: [batch..., K]`, differentiable."""
        if self._products is None:
            design = captured(self.design, weights.dtype)
            return tf.einsum('kd,...kc->...dc', design, weights[..., tf.newaxis] * design)
        products = captured(self._products, weights.dtype)
        lower = tfp.math.fill_triangular(tf.tensordot(weights, products, 1))
        return lower + tf.linalg.matrix_transpose(lower)

    def __repr__(self) -> str:
        return f'{type(self).__name__}(design of shape {self.design.shape})'
