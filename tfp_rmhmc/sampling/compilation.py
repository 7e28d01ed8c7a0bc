"""Whether XLA should compile a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.linalg import are_arrowheads
from tfp_rmhmc.metric import DenseMetric, Metric, SoftAbsMetric
from tfp_rmhmc.state import StateLayout, state_parts

__all__ = ['prefers_xla']


class _Factorisation(NamedTuple):
    """How a metric's own matrices weigh against the log density.

    Attributes:
      vectors: the numbers that the metric's own operations go through, for each tangent and dimension.
      loss: microseconds that XLA loses where it factors one matrix of 25 rows.
      power: of D, by which the loss grows.
    """

    vectors: float
    loss: float
    power: float


# Fitted on one machine, a CPU with two cores, to the measurements that `benchmarks/README.md` shows under `choice`. The
# model: XLA saves the start of every operation of a graph, and much of the memory traffic of the D tangents of the log
# density. It loses where it factors matrices, for which a graph calls LAPACK on every core. All in microseconds for one
# chain's metric.
_START = 120.0
_TRAFFIC = 0.0012
_FACTORISATION = {
    SoftAbsMetric: _Factorisation(vectors=10.0, loss=96.0, power=3.5),
    DenseMetric: _Factorisation(vectors=5.0, loss=14.0, power=2.4),
}
# From here on an operation takes longer than to start it.
_MAX_DIMENSION = 10_000


def prefers_xla(target_log_prob_fn: Callable[..., tf.Tensor], current_state: Any, metric: Metric | None = None) -> bool:
    """Whether XLA is expected to run a kernel on this target faster than a plain `tf.function` does.

    On a GPU the answer is always no: there a graph calls the vendor's batched factorisations, which XLA replaces by loops.
    The answer depends on shapes, and for a `SoftAbsMetric` that knows its Hessian's structure on whether the Hessians at
    the state have it. It does not depend on a clock, so that a run can be repeated. Cost: one trace of the target.

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
                isinstance(metric, SoftAbsMetric)
                and metric.structure == 'arrowhead'
                and _has_closed_form(LogDensity(target_log_prob_fn, layout), layout.flatten(parts))
            )
    return True


def _num_elements(graph: tf.Graph) -> int:
    """Numbers that a graph computes, those of unknown shape left out."""
    computed = [op for op in graph.get_operations() if op.type not in ('Const', 'Placeholder', 'ReadVariableOp')]
    return sum(output.shape.num_elements() or 0 for op in computed for output in op.outputs)


def _has_closed_form(density: LogDensity, position: tf.Tensor) -> bool:
    hessian = tf.function(lambda position: density.apply(autodiff.hessian, position)[2], autograph=False)
    return bool(are_arrowheads(hessian.get_concrete_function(position)(position)))
