"""Batches of small matrices, in blocks that fit into a core's cache."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

__all__ = ['map_blocks']

# Matrices in a block: at D = 11, as many as fit into the cache together with their eigenvectors.
_BLOCK = 64


def map_blocks(
    fn: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], matrix: tf.Tensor, num_results: int
) -> tuple[tf.Tensor, ...]:
    """`fn` of `matrix: [batch..., D, D]`, block by block; its results are `[batch..., D]` or `[batch..., D, D]`.

    `fn` takes `[B, D, D]` and returns `num_results` tensors of its dtype, `[B, D]` or `[B, D, D]`. The last block is filled
    up with zeros. With a batch of unknown size there is one block.
    """
    dimension = matrix.shape[-1]
    flat = tf.reshape(matrix, [-1, dimension, dimension])
    num = flat.shape[0]
    if num is None or num <= 2 * _BLOCK:
        results = fn(flat)
    else:
        padded = tf.pad(flat, [[0, -num % _BLOCK], [0, 0], [0, 0]])
        blocks = tf.reshape(padded, [-1, _BLOCK, dimension, dimension])
        dtypes = (matrix.dtype,) * num_results
        results = tuple(tf.reshape(x, [-1, *x.shape[2:]])[:num] for x in tf.map_fn(fn, blocks, fn_output_signature=dtypes))
    batch_shape = tf.shape(matrix)[:-2]

    def unflattened(x: tf.Tensor) -> tf.Tensor:
        shaped = tf.reshape(x, tf.concat([batch_shape, tf.shape(x)[1:]], axis=0))
        return tf.ensure_shape(shaped, matrix.shape[:-2] + x.shape[1:])

    return tuple(unflattened(x) for x in results)
