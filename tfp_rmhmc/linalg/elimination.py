"""Linear equations and determinants of many small matrices that need not be symmetric."""

from __future__ import annotations

import tensorflow as tf

from tfp_rmhmc.xla import is_compiled_by_xla

__all__ = ['solve_and_log_det']


def solve_and_log_det(matrix: tf.Tensor, vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`A^-1 b: [batch..., D]` and `log det A: [batch...]` of `A: [batch..., D, D]` and `b: [batch..., D]`.

    Where the determinant is not positive or not finite, both are NaN; nothing raises. Graphs and eager code call LAPACK's
    decomposition with pivots. XLA's programs eliminate without pivots, all matrices at once, which is stable for the
    matrices that it is for: those whose symmetric part is positive definite. Cost: O(D^3).
    """
    solution, log_size, sign = _eliminate(matrix, vector) if is_compiled_by_xla() else _decompose(matrix, vector)
    nan = tf.constant(float('nan'), matrix.dtype)
    is_good = (sign > 0.0) & tf.math.is_finite(log_size)
    return tf.where(is_good[..., tf.newaxis], solution, nan), tf.where(is_good, log_size, nan)


def _decompose(matrix: tf.Tensor, vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    sign, log_size = tf.linalg.slogdet(matrix)
    # TensorFlow's solver raises for a singular matrix and takes the whole batch with it.
    is_good = tf.math.is_finite(log_size) & (sign > 0.0)
    identity = tf.eye(matrix.shape[-1], dtype=matrix.dtype)
    safe = tf.where(is_good[..., tf.newaxis, tf.newaxis], matrix, identity)
    return tf.linalg.solve(safe, vector[..., tf.newaxis])[..., 0], log_size, sign


def _eliminate(matrix: tf.Tensor, vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gauss and Jordan's elimination. Inside, the batch is last: operations are on long contiguous vectors."""
    dimension = matrix.shape[-1]
    a = tf.transpose(tf.reshape(matrix, [-1, dimension, dimension]), [1, 2, 0])
    b = tf.transpose(tf.reshape(vector, [-1, dimension]))

    def eliminate_first(
        k: tf.Tensor, a: tf.Tensor, b: tf.Tensor, log_size: tf.Tensor, sign: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Solves the first row for the first unknown and moves both to the end, so that no index depends on k."""
        pivot = a[0, 0]
        row, value = a[0, 1:] / pivot, b[0] / pivot
        rest = a[1:, 1:] - a[1:, :1] * row
        moved = tf.pad(tf.concat([rest, row[tf.newaxis]], axis=0), [[0, 0], [0, 1], [0, 0]])
        return (
            k + 1,
            moved,
            tf.concat([b[1:] - a[1:, 0] * value, value[tf.newaxis]], axis=0),
            log_size + tf.math.log(tf.abs(pivot)),
            sign * tf.sign(pivot),
        )

    start = (tf.constant(0), a, b, tf.zeros_like(b[0]), tf.ones_like(b[0]))
    _, _, solution, log_size, sign = tf.while_loop(lambda k, *_: k < dimension, eliminate_first, start)
    batch = tf.shape(vector)[:-1]
    shaped = [tf.reshape(x, batch) for x in (log_size, sign)]
    solved = tf.reshape(tf.transpose(solution), tf.shape(vector))
    for x in shaped:
        x.set_shape(vector.shape[:-1])
    solved.set_shape(vector.shape)
    return solved, shaped[0], shaped[1]
