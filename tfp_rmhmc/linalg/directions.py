"""Constant changes of coordinates, `y = W x`, for matrices that are simple along the rows of W."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.linalg.constant import captured

__all__ = ['Directions', 'coordinate_directions', 'directions_of', 'given_directions']


class Directions(abc.ABC):
    """An invertible matrix W. Vectors and covectors are `[batch..., d]`, in float32 or float64.

    A vector v has the components `W v`, a covector p has `W^-T p`, so that `p . v` is the same in both coordinates.

    Attributes:
      log_det: `log |det W|`.
    """

    log_det: float

    @abc.abstractmethod
    def components(self, vector: tf.Tensor) -> tf.Tensor:
        """`W v`."""

    @abc.abstractmethod
    def vector(self, components: tf.Tensor) -> tf.Tensor:
        """`W^-1 c`, the vector that has these components."""

    @abc.abstractmethod
    def covector_components(self, covector: tf.Tensor) -> tf.Tensor:
        """`W^-T p`."""

    @abc.abstractmethod
    def covector(self, components: tf.Tensor) -> tf.Tensor:
        """`W' c`, the covector that has these components."""

    @abc.abstractmethod
    def diagonal(self, weights: tf.Tensor) -> tf.Tensor:
        """The diagonal of `W' diag(weights) W`."""


def coordinate_directions() -> Directions:
    """`W = I`."""
    return _Coordinates()


def given_directions(rows: Any, inverse: Any, log_det: float) -> Directions:
    """`W = rows`, beside its inverse, both `[d, d]`: arrays, or tensors of the program that is being traced."""
    return _Given(rows, inverse, log_det)


def directions_of(name: str, value: Any, size: int) -> Directions:
    """The directions that a user gave.

    Args:
      name: of the argument, for errors.
      value: finite. None for the coordinates, or an invertible matrix `[d, d]`.
      size: d, the number of coordinates.
    """
    if value is None:
        return coordinate_directions()
    matrix = np.asarray(value, np.float64)
    if matrix.shape != (size, size):
        raise ValueError(f'`{name}` must be None or [{size}, {size}], got shape {matrix.shape}.')
    if np.linalg.matrix_rank(matrix) < size:
        raise ValueError(f'`{name}` must be invertible, got {value!r}.')
    return given_directions(matrix, np.linalg.inv(matrix), float(np.linalg.slogdet(matrix)[1]))


class _Coordinates(Directions):
    log_det = 0.0

    def components(self, vector: tf.Tensor) -> tf.Tensor:
        return vector

    def vector(self, components: tf.Tensor) -> tf.Tensor:
        return components

    def covector_components(self, covector: tf.Tensor) -> tf.Tensor:
        return covector

    def covector(self, components: tf.Tensor) -> tf.Tensor:
        return components

    def diagonal(self, weights: tf.Tensor) -> tf.Tensor:
        return weights


class _Given(Directions):
    """Each verb is one product that all chains share, O(d^2) a chain."""

    def __init__(self, rows: Any, inverse: Any, log_det: float):
        self._rows, self._inverse, self.log_det = rows, inverse, log_det

    def components(self, vector: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(vector, captured(self._rows, vector.dtype), [[-1], [1]])

    def vector(self, components: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(components, captured(self._inverse, components.dtype), [[-1], [1]])

    def covector_components(self, covector: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(covector, captured(self._inverse, covector.dtype), 1)

    def covector(self, components: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(components, captured(self._rows, components.dtype), 1)

    def diagonal(self, weights: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(weights, tf.square(captured(self._rows, weights.dtype)), 1)
