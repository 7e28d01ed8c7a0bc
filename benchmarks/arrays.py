"""The few functions that the targets are made of, in TensorFlow and in JAX: one formula serves all samplers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ['Arrays', 'in_jax', 'in_tensorflow']


class Arrays(NamedTuple):
    """Functions of arrays `[batch..., n]`; all but the first two act on numbers.

    Attributes:
      constant: `(numpy array, like)`: the array in the dtype of another.
      total: the sum over the last axis.
      matvec: `(numpy matrix [m, n], x [..., n])`: `[..., m]`.
      take: `(x [..., n], indices [m])`: `[..., m]`.
      concat: of a list, along the last axis.
      cholesky, solve_lower: of `[..., n, n]`, and `(L, b [..., n])`.
    """

    constant: Callable[..., Any]
    total: Callable[..., Any]
    matvec: Callable[..., Any]
    take: Callable[..., Any]
    concat: Callable[..., Any]
    cholesky: Callable[..., Any]
    solve_lower: Callable[..., Any]
    exp: Callable[..., Any]
    log: Callable[..., Any]
    log1p: Callable[..., Any]
    square: Callable[..., Any]
    tanh: Callable[..., Any]
    softplus: Callable[..., Any]
    lgamma: Callable[..., Any]


@functools.cache
def in_tensorflow() -> Arrays:
    """TensorFlow's."""

    def constant(x: np.ndarray, like: tf.Tensor) -> tf.Tensor:
        return tf.cast(x, like.dtype)

    def matvec(m: np.ndarray, x: tf.Tensor) -> tf.Tensor:
        if x.shape.rank == 2:  # one product of matrices, where more dimensions would make many of vectors
            return tf.matmul(x, constant(m, x), transpose_b=True)
        return tf.matmul(x[..., tf.newaxis, :], constant(m, x), transpose_b=True)[..., 0, :]

    return Arrays(
        constant=constant,
        total=lambda x: tf.reduce_sum(x, axis=-1),
        matvec=matvec,
        take=lambda x, indices: tf.gather(x, indices, axis=-1),
        concat=lambda xs: tf.concat(xs, axis=-1),
        cholesky=tf.linalg.cholesky,
        solve_lower=lambda m, b: tf.linalg.triangular_solve(m, b[..., tf.newaxis])[..., 0],
        exp=tf.exp,
        log=tf.math.log,
        log1p=tf.math.log1p,
        square=tf.square,
        tanh=tf.tanh,
        softplus=tf.nn.softplus,
        lgamma=tf.math.lgamma,
    )


@functools.cache
def in_jax() -> Arrays:
    """JAX's, in float64."""
    import jax
    import jax.numpy as jnp

    jax.config.update('jax_enable_x64', True)
    return Arrays(
        constant=lambda x, like: jnp.asarray(x, like.dtype),
        total=lambda x: jnp.sum(x, axis=-1),
        matvec=lambda m, x: x @ jnp.asarray(m, x.dtype).T,
        take=lambda x, indices: x[..., indices],
        concat=lambda xs: jnp.concatenate(xs, axis=-1),
        cholesky=jnp.linalg.cholesky,
        solve_lower=lambda m, b: jax.scipy.linalg.solve_triangular(m, b, lower=True),
        exp=jnp.exp,
        log=jnp.log,
        log1p=jnp.log1p,
        square=jnp.square,
        tanh=jnp.tanh,
        softplus=jax.nn.softplus,
        lgamma=jax.scipy.special.gammaln,
    )
