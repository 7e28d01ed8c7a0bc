"""Which compiler the surrounding program goes to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

__all__ = ['is_compiled_by_xla', 'traced_as_for_a_graph']


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


@contextlib.contextmanager
def traced_as_for_a_graph() -> Iterator[None]:
    """Within, operations are traced as if XLA were not to compile them, which it does all the same. Not for loops.

    Where TensorFlow knows of XLA, `tf.vectorized_map` makes a function of what it maps, and the higher derivatives of
    functions take long to trace: those of an auto-batched model had several times the operations. Loops, on the other hand,
    have derivatives under XLA only if they know of it.
    """
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    left = []
    try:
        while graph is not None:
            # TensorFlow has no public functions for this either.
            context = graph._get_control_flow_context() if hasattr(graph, '_get_control_flow_context') else None
            if context is not None and context.IsXLAContext():
                left.append((graph, context))
                graph._set_control_flow_context(context.outer_context)
            graph = getattr(graph, 'outer_graph', None)
        yield
    finally:
        for graph, context in left:
            graph._set_control_flow_context(context)
