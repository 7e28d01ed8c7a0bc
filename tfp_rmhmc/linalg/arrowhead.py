"""Arrowheads with equal entries on their shaft, diagonalised in closed form by two reflections.

An arrowhead is a symmetric matrix that is diagonal but for one row and its column, the head. The Hessian is one where a
single parameter scales many others alike, as in a funnel. Two reflections take the place of the sweeps of an iterative
solver, O(D^2) in place of O(D^3), five times faster at D = 11. The closed form is for callers who know that their matrices
have this structure; `are_arrowheads` finds out.

Inside this file the batch is the last dimension, `[D, D, B]`, so that operations run over long contiguous vectors.
"""

from __future__ import annotations

import tensorflow as tf

__all__ = ['are_arrowheads', 'is_diagonal', 'normalise', 'read_off', 'reflect']

# A matrix of norm one is diagonal to rounding if no entry off the diagonal is larger than this.
_DIAGONAL = 4e-15


def are_arrowheads(matrix: tf.Tensor) -> tf.Tensor:
    """Whether all of `matrix: [batch..., D, D]` are arrowheads with equal entries on their shafts: a scalar bool."""
    flat = tf.reshape(tf.cast(matrix, tf.float64), [-1, matrix.shape[-1], matrix.shape[-1]])
    return is_diagonal(reflect(normalise(flat)[0])[0])


def normalise(matrices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`[B, D, D]` as `[D, D, B]` of norm 1 or less, and the divisors `[B]`."""
    a = tf.transpose(matrices, [1, 2, 0])
    norm = tf.reduce_max(tf.reduce_sum(tf.abs(a), axis=1), axis=0)  # a bound on it
    norm = tf.where(norm > 0.0, norm, tf.ones_like(norm))
    return a / norm, norm


def is_diagonal(a: tf.Tensor) -> tf.Tensor:
    """Whether all of `a: [D, D, B]`, of norm 1, are diagonal to rounding: a scalar bool."""
    identity = tf.eye(a.shape[0], dtype=a.dtype)[:, :, tf.newaxis]
    return tf.reduce_max(tf.abs(a * (1.0 - identity))) <= _DIAGONAL


def reflect(a: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Two reflections, `a -> P a P` with `P = I - n n'`, which make an arrowhead with equal entries on its shaft diagonal.

    The head, which may be any row, is the row with the largest entries off the diagonal. The first reflection
    (Householder 1958) gathers all that the head is coupled to in the row after it; the second diagonalises these two rows.
    Cost: O(D^2).

    Args:
      a: `[D, D, B]`, symmetric.

    Returns:
      `P2 P1 a P1 P2: [D, D, B]`, and `n1` and `n2: [D, B]`.
    """
    dimension, dtype = a.shape[0], a.dtype
    identity = tf.eye(dimension, dtype=dtype)[:, :, tf.newaxis]
    off_diagonal = a * (1.0 - identity)
    coupling = tf.reduce_sum(tf.square(off_diagonal), axis=1)
    head = tf.one_hot(tf.argmax(coupling, axis=0, output_type=tf.int32), dimension, axis=0, dtype=dtype)
    neighbour = tf.roll(head, 1, axis=0)
    x = tf.reduce_sum(head[:, tf.newaxis] * off_diagonal, axis=0)
    component = tf.reduce_sum(neighbour * x, axis=0)
    length = tf.sqrt(tf.reduce_sum(tf.square(x), axis=0))
    length = tf.where(component < 0.0, -length, length)  # the sign with which nothing cancels
    gathering = x + length * neighbour
    square = tf.reduce_sum(tf.square(gathering), axis=0)
    gathering *= tf.sqrt(2.0 / tf.where(square > 0.0, square, tf.ones_like(square)))
    a = _reflected(a, gathering)
    # [[cos 2t, sin 2t], [sin 2t, -cos 2t]] diagonalises [[a_head, -length], [-length, a_neighbour]].
    difference = tf.reduce_sum((head - neighbour) * tf.reduce_sum(a * identity, axis=1), axis=0)
    angle = 0.25 * tf.math.atan2(-2.0 * length, difference)
    diagonalising = tf.sqrt(tf.constant(2.0, dtype)) * (tf.sin(angle) * head - tf.cos(angle) * neighbour)
    return _reflected(a, diagonalising), [gathering, diagonalising]


def _reflected(a: tf.Tensor, normal: tf.Tensor) -> tf.Tensor:
    """`P a P` of a symmetric `a: [D, D, B]`, with `P = I - n n'`, `n: [D, B]` of squared length 2, or 0. O(D^2)."""
    image = tf.reduce_sum(a * normal, axis=1)
    image -= 0.5 * tf.reduce_sum(image * normal, axis=0) * normal
    return a - normal[:, tf.newaxis] * image - image[:, tf.newaxis] * normal


def read_off(diagonal: tf.Tensor, normals: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Eigenvalues `[D, B]` and eigenvectors `[D, D, B]`, in rows, where reflections have made a matrix diagonal."""
    identity = tf.eye(diagonal.shape[0], dtype=diagonal.dtype)[:, :, tf.newaxis]
    first, second = normals
    vectors = identity - second[:, tf.newaxis] * second
    vectors -= tf.reduce_sum(vectors * first, axis=1, keepdims=True) * first
    return tf.reduce_sum(diagonal * identity, axis=1), vectors
