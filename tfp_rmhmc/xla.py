"""Which compiler the surrounding program goes to."""

from __future__ import annotations

import tensorflow as tf

__all__ = ['is_compiled_by_xla']


def is_compiled_by_xla() -> bool:
    """Whether the operations that are being traced will be compiled by XLA.

    Use it to choose the faster of two ways to compute the same numbers, never to choose what is computed.
    """
    if tf.executing_eagerly():
        return False
    try:  # TensorFlow has no public function for this.
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
    except ImportError:
        return False
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
