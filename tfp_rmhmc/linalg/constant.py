"""Arrays that a traced function takes in."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

__all__ = ['captured']


def captured(value: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    """`value` as a tensor that is an input of the function being traced, not a constant in it.

    Graphs may not be larger than 2 GB, and XLA would copy a constant into each program.
    """
    with tf.init_scope():
        return tf.constant(value, dtype)
