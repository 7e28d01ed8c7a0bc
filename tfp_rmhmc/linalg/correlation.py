"""Constant positive definite matrices, factored once: identity, dense, or identity plus low rank."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.linalg.constant import captured

__all__ = ['Correlation', 'correlation_of', 'dense_correlation', 'identity_correlation']

# Relative asymmetry below which a matrix counts as symmetric.
_SYMMETRIC = 1e-6


class Correlation(abc.ABC):
    """A constant positive definite matrix C. Vectors are `[batch..., d]`, in float32 or float64.

    Attributes:
      half_log_det: `1/2 log det C`, a float or a scalar.
    """

    half_log_det: Any

    @abc.abstractmethod
    def solve(self, x: tf.Tensor) -> tf.Tensor:
        """`C^-1 x`."""

    @abc.abstractmethod
    def multiply(self, x: tf.Tensor) -> tf.Tensor:
        """`C x`."""

    @abc.abstractmethod
    def sqrt_multiply(self, x: tf.Tensor) -> tf.Tensor:
        """`L x` with `L L' = C`."""

    @abc.abstractmethod
    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        """The diagonal of C, shaped like a vector."""


def correlation_of(name: str, value: Any, size: int) -> Correlation:
    """The correlation that a user gave.

    Args:
      name: of the argument, for errors.
      value: finite. None for the identity; `[d, d]` for a dense matrix, symmetric and positive definite; `[d, k]` with
        `k < d` for a factor W of `I + W W'`.
      size: d, the number of coordinates.
    """
    if value is None:
        return identity_correlation()
    matrix = np.asarray(value, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != size or matrix.shape[1] > size:
        raise ValueError(
            f'`{name}` must be None, [{size}, {size}], or [{size}, k] with k < {size}, got shape {matrix.shape}.'
        )
    if matrix.shape[1] < size:
        return _LowRank(matrix)
    if np.abs(matrix - matrix.T).max() > _SYMMETRIC * np.abs(matrix).max():
        raise ValueError(f'`{name}` must be symmetric, got {value!r}.')
    if np.linalg.eigvalsh(0.5 * (matrix + matrix.T)).min() <= 0.0:
        raise ValueError(f'`{name}` must be positive definite, got {value!r}.')
    matrix = 0.5 * (matrix + matrix.T)
    return dense_correlation(np.linalg.cholesky(matrix), np.linalg.inv(matrix))


def identity_correlation() -> Correlation:
    """`C = I`."""
    return _Identity()


def dense_correlation(root: Any, inverse: Any) -> Correlation:
    """`C = root root'`, given beside its inverse, both `[d, d]`: arrays, or tensors of the program that is being traced."""
    return _Dense(root, inverse)


class _Identity(Correlation):
    """`C = I`."""

    half_log_det = 0.0

    def solve(self, x: tf.Tensor) -> tf.Tensor:
        return x

    def multiply(self, x: tf.Tensor) -> tf.Tensor:
        return x

    def sqrt_multiply(self, x: tf.Tensor) -> tf.Tensor:
        return x

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(like)


class _Dense(Correlation):
    """A matrix `[d, d]`. Each verb is one product that all chains share (`multiply` is two), O(d^2) a chain.

    Args:
      root: lower triangular, `C = root root'`; an array, or a tensor of the program that is being traced.
      inverse: of C, likewise.
    """

    def __init__(self, root: Any, inverse: Any):
        self._root, self._inverse = root, inverse
        is_known = isinstance(root, np.ndarray)
        self.half_log_det = (
            float(np.sum(np.log(np.diag(root)))) if is_known else tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))
        )

    def solve(self, x: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(x, captured(self._inverse, x.dtype), 1)

    def multiply(self, x: tf.Tensor) -> tf.Tensor:
        root = captured(self._root, x.dtype)
        return tf.tensordot(tf.tensordot(x, root, 1), root, [[-1], [1]])

    def sqrt_multiply(self, x: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(x, captured(self._root, x.dtype), [[-1], [1]])

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.square(captured(self._root, like.dtype)), axis=1) + tf.zeros_like(like)


class _LowRank(Correlation):
    """`C = I + W W'` with `W: [d, k]`, O(d k) a chain.

    With `W = U diag(sqrt(lam)) V'`, that is, U orthonormal: `C^-1 = I - U diag(lam / (1 + lam)) U'`, and
    `C^(1/2) = I + U diag(sqrt(1 + lam) - 1) U'`.
    """

    def __init__(self, factor: np.ndarray):
        basis, singular, _ = np.linalg.svd(factor, full_matrices=False)
        lam = np.square(singular)
        self._basis = basis
        self._solve, self._multiply, self._root = -lam / (1.0 + lam), lam, np.sqrt(1.0 + lam) - 1.0
        self.half_log_det = float(0.5 * np.sum(np.log1p(lam)))

    def _updated(self, x: tf.Tensor, weights: np.ndarray) -> tf.Tensor:
        """`x + U diag(weights) U' x`."""
        inner = tf.tensordot(x, captured(self._basis, x.dtype), 1)
        return x + tf.tensordot(inner, captured((self._basis * weights).T, x.dtype), 1)

    def solve(self, x: tf.Tensor) -> tf.Tensor:
        return self._updated(x, self._solve)

    def multiply(self, x: tf.Tensor) -> tf.Tensor:
        return self._updated(x, self._multiply)

    def sqrt_multiply(self, x: tf.Tensor) -> tf.Tensor:
        return self._updated(x, self._root)

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        squares = np.square(self._basis) @ self._multiply
        return captured(1.0 + squares, like.dtype) + tf.zeros_like(like)
