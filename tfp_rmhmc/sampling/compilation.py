"""Whether XLA should compile a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.metric import DenseMetric, Metric, SoftAbsMetric
from tfp_rmhmc.metric.eigh import are_arrowheads
from tfp_rmhmc.state import LogDensity, StateLayout, state_parts

__all__ = ['prefers_xla']


class _Factorisation(NamedTuple):
    """A metric's own matrices, beside the log density's tensors, and what XLA loses where it factors them."""

    vectors: float  # as many numbers of each tangent, times D, as the metric's own operations go through
    loss: float  # microseconds for a matrix of 25 rows
    power: float  # of D, by which it grows


# On a CPU, XLA saves the start of a graph's operations, and by fusing them much of their traffic: those of D tangents of
# the log density. It loses where it factors matrices: a graph calls LAPACK, on every core. In microseconds for a metric
# evaluation of one chain; fitted to the measurements that `benchmarks/README.md` shows.
_START = 120.0
_TRAFFIC = 0.0012
_FACTORISATION = {
    SoftAbsMetric: _Factorisation(vectors=10.0, loss=96.0, power=3.5),
    DenseMetric: _Factorisation(vectors=5.0, loss=14.0, power=2.4),
}
# Beyond it an operation takes longer than to start it.
_MAX_DIMENSION = 10_000


def prefers_xla(target_log_prob_fn: Callable[..., tf.Tensor], current_state: Any, metric: Metric | None = None) -> bool:
    """Whether XLA is expected to run a kernel on this target faster than a plain `tf.function` does.

    On a GPU never: there a graph calls the vendor's batched factorisations, which XLA replaces by loops. The answer depends
    on shapes, and with `SoftAbsMetric` on whether the Hessians at the state have a decomposition in closed form; not on a
    clock, so that a run can be repeated. Cost: one trace of the target, and of its Hessian.

    Args:
      target_log_prob_fn: as a kernel takes it.
      current_state: a tensor or list of parts, of as many chains as shall run together.
      metric: of the kernel; None for a kernel without one.
    """
    parts = state_parts(current_state)
    traced = tf.function(target_log_prob_fn, autograph=False).get_concrete_function(*parts)
    layout = StateLayout.of(parts, traced.outputs[0])
    num_chains, dimension = traced.outputs[0].shape.num_elements() or 1, layout.dimension
    if tf.config.list_physical_devices('GPU') or dimension > _MAX_DIMENSION:
        return False
    for kind, (vectors, loss, power) in _FACTORISATION.items():
        if isinstance(metric, kind):
            elements = _num_elements(traced.graph) / num_chains
            gain = _START / num_chains + _TRAFFIC * dimension * (elements + vectors * dimension)
            is_faster = gain > loss * (dimension / 25.0) ** power
            return is_faster or (
                kind is SoftAbsMetric and _has_closed_form(LogDensity(target_log_prob_fn, layout), layout.flatten(parts))
            )
    return True


def _num_elements(graph: tf.Graph) -> int:
    """Numbers that a graph computes, those of unknown shape left out."""
    computed = [op for op in graph.get_operations() if op.type not in ('Const', 'Placeholder', 'ReadVariableOp')]
    return sum(output.shape.num_elements() or 0 for op in computed for output in op.outputs)


def _has_closed_form(density: LogDensity, position: tf.Tensor) -> bool:
    hessian = tf.function(lambda position: density.apply(autodiff.hessian, position)[2], autograph=False)
    return bool(are_arrowheads(hessian.get_concrete_function(position)(position)))
