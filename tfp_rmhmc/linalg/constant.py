"""Arrays that a traced function takes in."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ['captured']


def captured(value: Any, dtype: tf.DType) -> tf.Tensor:
    """`value` as a tensor that is an input of the function being traced, not a constant in it; a tensor as it is.

    Graphs may not be larger than 2 GB, and XLA would copy a constant into each program.
    """
    if tf.is_tensor(value):
        return tf.cast(value, dtype)
    with tf.init_scope():
        return tf.constant(value, dtype)
