"""Eigendecompositions of many small symmetric matrices, by whichever solver the surrounding program runs fastest.

In a graph and eagerly that is LAPACK's (on a GPU the vendor's). XLA has no call to either: its own solver is a loop of
operations on one matrix at a time, whose `Q diag(lam) Q'` is off by 1e-7 to 1e-9 in float64. `jacobi_eigh` is a loop of
operations on all matrices at once, the batch being the contiguous dimension: about as fast for one matrix of 11 rows, up to
seven times faster for many, and accurate to rounding, or to 1e-11 where many eigenvalues nearly coincide. Hessians of
models in which one parameter scales many like ones, as in the funnel, are decomposed in closed form, five times faster.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.metric.blocks import map_blocks
from tfp_rmhmc.state import is_compiled_by_xla

__all__ = ['are_arrowheads', 'eigh', 'jacobi_eigh']

# Sweeps after which a matrix is left as it is; a general one of 11 rows needs five or six.
_MAX_SWEEPS = 16
# The largest squared cosine that a sweep may find and be the last. Quadratic convergence would allow 1e-16, but near
# repeated eigenvalues it is slower than that.
_CONVERGED = 1e-20
# The largest entry off the diagonal, beside a norm of one, of a matrix that is diagonal to rounding.
_DIAGONAL = 4e-15


def eigh(matrix: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Eigenvalues `[batch..., D]`, in no promised order, and eigenvectors `[batch..., D, D]`, in columns.

    `matrix: [batch..., D, D]` is symmetric and finite: LAPACK raises for the whole batch if it is not.
    """
    if is_compiled_by_xla() and matrix.shape[-1] > 1:
        return jacobi_eigh(matrix)
    return tf.linalg.eigh(matrix)


def jacobi_eigh(matrix: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One-sided Jacobi iteration (Hestenes 1958): rotates pairs of rows until all are orthogonal.

    The rows of `W = V' (A + s I)`, with s large enough to make it positive definite, are rotated by V; when they are
    orthogonal, row i is `(lam_i + s) v_i'`. A round rotates D / 2 neighbouring pairs at once and swaps them, so that after
    D rounds, a sweep, every pair has met (the odd-even ordering of Luk and Park 1989). Convergence is quadratic.
    Eigenvalues are Rayleigh quotients, so that small ones do not suffer from s. Cost: 6 D^3 operations a sweep; none where
    `_arrowhead_reflections` have made all matrices of a block diagonal.

    Computed in float64 for float32 too: beside s the digits of eigenvalues below 1e-7 of the largest would be lost, which
    LAPACK keeps.
    """
    eigenvalues, eigenvectors = map_blocks(_decompose, tf.cast(matrix, tf.float64), num_results=2)
    return tf.cast(eigenvalues, matrix.dtype), tf.cast(eigenvectors, matrix.dtype)


def are_arrowheads(matrix: tf.Tensor) -> tf.Tensor:
    """Whether `jacobi_eigh` decomposes all of `matrix: [batch..., D, D]` in closed form."""
    flat = tf.reshape(tf.cast(matrix, tf.float64), [-1, matrix.shape[-1], matrix.shape[-1]])
    return _is_diagonal(_arrowhead_reflections(_normalised(flat)[0])[0])


def _decompose(matrices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Of `[B, D, D]`, float64. Inside, the batch is last, `[D, D, B]`: operations are on long contiguous vectors."""
    a, norm = _normalised(matrices)
    reflected, normals = _arrowhead_reflections(a)
    eigenvalues, vectors = tf.cond(_is_diagonal(reflected), lambda: _read_off(reflected, normals), lambda: _sweep(a))
    return tf.transpose(norm * eigenvalues), tf.transpose(vectors, [2, 1, 0])


def _normalised(matrices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`[B, D, D]` as `[D, D, B]`, of norm 1 or less, and what it was divided by, `[B]`."""
    a = tf.transpose(matrices, [1, 2, 0])
    norm = tf.reduce_max(tf.reduce_sum(tf.abs(a), axis=1), axis=0)  # a bound on it
    norm = tf.where(norm > 0.0, norm, tf.ones_like(norm))
    return a / norm, norm


def _is_diagonal(a: tf.Tensor) -> tf.Tensor:
    """Whether all of `a: [D, D, B]` are, to rounding."""
    identity = tf.eye(a.shape[0], dtype=a.dtype)[:, :, tf.newaxis]
    return tf.reduce_max(tf.abs(a * (1.0 - identity))) <= _DIAGONAL


def _arrowhead_reflections(a: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Two reflections, `a -> P a P` with `P = I - n n'`, which make an arrowhead with equal entries on its shaft diagonal.

    That is the Hessian where one parameter scales many like ones, as in the funnel; the head may be anywhere. The first
    (Householder 1958) gathers what the most coupled row is coupled to in its neighbour, the second diagonalises these two.
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


def _read_off(diagonal: tf.Tensor, normals: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Eigenvalues `[D, B]` and eigenvectors `[D, D, B]`, in rows, where reflections have made a matrix diagonal."""
    identity = tf.eye(diagonal.shape[0], dtype=diagonal.dtype)[:, :, tf.newaxis]
    first, second = normals
    vectors = identity - second[:, tf.newaxis] * second
    vectors -= tf.reduce_sum(vectors * first, axis=1, keepdims=True) * first
    return tf.reduce_sum(diagonal * identity, axis=1), vectors


def _sweep(a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Eigenvalues `[D, B]` and eigenvectors `[D, D, B]`, in rows, of symmetric matrices of norm 1 or less, by sweeps."""
    dimension, dtype = a.shape[0], a.dtype

    def two_rounds(i: tf.Tensor, turning: _Turning) -> tuple[tf.Tensor, _Turning]:
        return i + 1, _round(_round(turning, 0), 1)

    def sweep(i: tf.Tensor, rows: tf.Tensor, worst: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        del worst
        # Squared lengths are updated by the rotations; summed anew for each sweep, they do not drift.
        turning = _Turning(rows, tf.reduce_sum(tf.square(rows), axis=1, keepdims=True), tf.zeros([], dtype))
        _, turning = tf.while_loop(lambda j, _: j < (dimension + 1) // 2, two_rounds, (tf.constant(0), turning))
        return i + 1, turning.rows, turning.worst

    rows = a + 2.0 * tf.eye(dimension, dtype=dtype)[:, :, tf.newaxis]  # of lengths between 1 and 3
    start = (tf.constant(0), rows, tf.ones([], dtype))
    _, rows, _ = tf.while_loop(lambda i, _, worst: (worst > _CONVERGED) & (i < _MAX_SWEEPS), sweep, start)
    vectors = rows / tf.sqrt(tf.reduce_sum(tf.square(rows), axis=1, keepdims=True))
    images = tf.reduce_sum(a[tf.newaxis] * vectors[:, tf.newaxis], axis=2)
    return tf.reduce_sum(images * vectors, axis=1), vectors


class _Turning(NamedTuple):
    """Rows `[D, D, B]`, their squared lengths `[D, 1, B]`, and the largest squared cosine that was found so far."""

    rows: tf.Tensor
    squares: tf.Tensor
    worst: tf.Tensor


def _round(turning: _Turning, first: int) -> _Turning:
    """Rotates and swaps the pairs of neighbours that begin at row `first`."""
    num_pairs = (turning.rows.shape[0] - first) // 2
    if num_pairs == 0:
        return turning
    end = first + 2 * num_pairs

    def pairs_of(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pairs = tf.reshape(x[first:end], [num_pairs, 2, *_sizes(x)])
        return pairs[:, 0], pairs[:, 1]

    def replaced(x: tf.Tensor, even: tf.Tensor, odd: tf.Tensor) -> tf.Tensor:
        middle = tf.reshape(tf.stack([even, odd], axis=1), [2 * num_pairs, *_sizes(x)])
        return tf.concat([x[:first], middle, x[end:]], axis=0)

    (x, y), (xx, yy) = pairs_of(turning.rows), pairs_of(turning.squares)
    xy = tf.reduce_sum(x * y, axis=1, keepdims=True)
    # The smaller root of t^2 + (yy - xx) / xy t - 1 = 0, without dividing by xy.
    gap = yy - xx
    tiny = tf.constant(1e-300, x.dtype)  # for 0 / 0
    tangent = 2.0 * xy / (tf.abs(gap) + tf.sqrt(tf.square(gap) + 4.0 * tf.square(xy)) + tiny)
    tangent = tf.where(gap < 0.0, -tangent, tangent)
    cosine = 1.0 / tf.sqrt(1.0 + tf.square(tangent))
    sine = cosine * tangent
    return _Turning(
        replaced(turning.rows, sine * x + cosine * y, cosine * x - sine * y),  # swapped
        replaced(turning.squares, yy + tangent * xy, xx - tangent * xy),
        tf.maximum(turning.worst, tf.reduce_max(tf.square(xy) / (xx * yy))),
    )


def _sizes(rows: tf.Tensor) -> list[int]:
    return [rows.shape[1], -1 if rows.shape[2] is None else rows.shape[2]]
