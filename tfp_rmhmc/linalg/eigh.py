"""Eigendecompositions of many small symmetric matrices, by whichever solver the surrounding program runs fastest.

A graph and eager code call LAPACK (on a GPU the vendor's library). XLA can call neither: its own solver works on one matrix
at a time, and leaves an error of 1e-7 to 1e-9 in `Q diag(lam) Q'` in float64. `jacobi_eigh` works on all matrices at once,
with the batch as the contiguous dimension. It takes about as long as XLA's solver for one matrix of 11 rows, a seventh of
the time for many, and is accurate to rounding, or to 1e-11 where many eigenvalues nearly coincide.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.linalg.arrowhead import is_diagonal, normalise, read_off, reflect
from tfp_rmhmc.linalg.blocks import map_blocks
from tfp_rmhmc.xla import is_compiled_by_xla

__all__ = ['STRUCTURES', 'eigh', 'jacobi_eigh']

# What a caller may know of its matrices: nothing, or that they are arrowheads with equal entries on the shaft.
STRUCTURES = (None, 'arrowhead')
# Sweeps after which a matrix is left as it is; a general one of 11 rows needs five or six.
_MAX_SWEEPS = 16
# The largest squared cosine that a sweep may find and be the last. Quadratic convergence would allow 1e-16, but near
# repeated eigenvalues it is slower than that.
_CONVERGED = 1e-20


def eigh(matrix: tf.Tensor, structure: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
    """Eigenvalues `[batch..., D]`, in no promised order, and eigenvectors `[batch..., D, D]`, in columns.

    Args:
      matrix: `[batch..., D, D]`, symmetric and finite: LAPACK raises for the whole batch if it is not.
      structure: one of `STRUCTURES`. With `'arrowhead'`, XLA programs try the closed form first and sweep where it does not
        hold; other programs call LAPACK all the same. A structure that matrices do not have costs time, not accuracy.
    """
    if is_compiled_by_xla() and matrix.shape[-1] > 1:
        return jacobi_eigh(matrix, structure)
    return tf.linalg.eigh(matrix)


def jacobi_eigh(matrix: tf.Tensor, structure: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
    """One-sided Jacobi iteration (Hestenes 1958): rotates pairs of rows until all rows are orthogonal.

    The rows of `W = V' (A + s I)`, with s large enough to make `A + s I` positive definite, are rotated by V. When they are
    orthogonal, row i is `(lam_i + s) v_i'`. A round rotates D / 2 neighbouring pairs at once and swaps them; after D
    rounds, which make a sweep, every pair has met (the odd-even ordering of Luk and Park 1989). Convergence is quadratic.
    Eigenvalues are Rayleigh quotients, so that small ones do not lose digits to s. Cost: 6 D^3 operations a sweep.

    Computed in float64 also for float32: beside s, float32 would lose the digits of eigenvalues below 1e-7 of the largest,
    which LAPACK keeps.

    Args:
      matrix, structure: as in `eigh`.
    """
    decompose = _decompose_arrowheads if structure == 'arrowhead' else _decompose
    eigenvalues, eigenvectors = map_blocks(decompose, tf.cast(matrix, tf.float64), num_results=2)
    return tf.cast(eigenvalues, matrix.dtype), tf.cast(eigenvectors, matrix.dtype)


def _decompose(matrices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Of `[B, D, D]`, float64. Inside, the batch is last, `[D, D, B]`: operations are on long contiguous vectors."""
    a, norm = normalise(matrices)
    return _batch_first(norm, *_sweep(a))


def _decompose_arrowheads(matrices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Of `[B, D, D]`, float64: in closed form if all are arrowheads, else by sweeps."""
    a, norm = normalise(matrices)
    reflected, normals = reflect(a)
    decomposed = tf.cond(is_diagonal(reflected), lambda: read_off(reflected, normals), lambda: _sweep(a))
    return _batch_first(norm, *decomposed)


def _batch_first(norm: tf.Tensor, eigenvalues: tf.Tensor, vectors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.transpose(norm * eigenvalues), tf.transpose(vectors, [2, 1, 0])


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
