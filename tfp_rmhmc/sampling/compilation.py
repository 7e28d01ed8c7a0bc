"""Whether XLA should compile a run, and what is done where it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_callable, check_instance
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.linalg import are_arrowheads
from tfp_rmhmc.metric import DenseMetric, Metric, SoftAbsMetric
from tfp_rmhmc.state import StateLayout, state_parts

__all__ = ['Compiler', 'has_long_loops', 'prefers_xla']

_T = TypeVar('_T')


class Compiler:
    """Which compiler the programs of a run go to: XLA, or a graph. What XLA could not do once is not tried again.

    Args:
      jit_compile: whether XLA compiles; None where `prefer` says so, and then a graph takes over if XLA cannot.
      seconds: where the time of tracing and compiling is added up, by phase.

    Attributes:
      is_xla: whether programs go to XLA.
      is_forced: whether the user chose.
      failure: why XLA could not compile the run, in one sentence, or None.
      seconds: that tracing and compiling took, by phase.
      phase: to which they are counted.
    """

    def __init__(self, jit_compile: bool | None, seconds: dict[str, float] | None = None):
        self.is_forced = jit_compile is not None
        self.is_xla = bool(jit_compile)
        self.failure: str | None = None
        self.seconds = {'warmup': 0.0, 'sampling': 0.0} if seconds is None else seconds
        self.phase = 'warmup'

    def prefer(self, is_xla: bool) -> None:
        """What to do from now on, unless the user chose, or XLA failed before."""
        if not self.is_forced and self.failure is None:
            self.is_xla = is_xla

    def call(self, program: Callable[[bool], _T]) -> _T:
        """`program(is_xla)`, with False after XLA has failed."""
        try:
            return program(self.is_xla)
        except Exception as error:  # anything that XLA cannot do; if the target is at fault, the graph raises too
            if self.is_forced or not self.is_xla:
                raise
            # XLA's messages hold names of graphs that are hundreds of letters long.
            reason = re.sub(r'\S{50,}', '...', str(error).strip().split('\n')[0])[:200]
            self.is_xla = False
            result = program(False)
            self.failure = f'XLA could not compile the target, so it ran in a graph: {reason}'
            return result

    def saved(self) -> dict[str, np.ndarray]:
        """As arrays, for a checkpoint."""
        return {'compiler.is_xla': np.array(self.is_xla), 'compiler.failure': np.array(self.failure or '')}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """What was known when `saved` was made."""
        if not self.is_forced:
            self.is_xla = bool(saved['compiler.is_xla'])
            self.failure = str(saved['compiler.failure']) or None


class _Factorisation(NamedTuple):
    """What a metric's own matrices cost, beside the cost of the log density.

    Attributes:
      vectors: how many numbers the metric's own operations handle for each tangent and each dimension.
      loss: microseconds that XLA takes longer than a graph to factor one matrix of 25 rows.
      power: the power of D with which this loss grows.
    """

    vectors: float
    loss: float
    power: float


# Fitted on one machine, a CPU with two cores, to the measurements that `benchmarks/README.md` shows under `choice`. The
# model: XLA saves the time that a graph takes to start each operation, and much of the memory traffic of the D tangents
# of the log density. XLA loses time where it factors matrices, because a graph has LAPACK do this on every core. All
# times are in microseconds for one chain's metric.
_START = 120.0
_TRAFFIC = 0.0012
_FACTORISATION = {
    SoftAbsMetric: _Factorisation(vectors=10.0, loss=96.0, power=3.5),
    DenseMetric: _Factorisation(vectors=5.0, loss=14.0, power=2.4),
}
# Rounds of a loop from which on a gradient of the target takes a graph so long to start its operations, some tenths of a
# millisecond a round, that compiling pays within the first hundred transitions.
_LONG = 20
# Above this dimension an operation takes longer to run than to start.
_MAX_DIMENSION = 10_000


def prefers_xla(target_log_prob_fn: Callable[..., tf.Tensor], current_state: Any, metric: Metric | None = None) -> bool:
    """Whether XLA is expected to run a kernel on this target faster than a plain `tf.function` does.

    On a GPU the answer is always no: there a graph calls the vendor's batched factorisations, which XLA replaces by loops.
    The answer depends on shapes. For a `SoftAbsMetric` with a `structure` it also depends on whether the Hessians at
    `current_state` have that structure. Nothing is timed, so that a run can be repeated. Cost: one trace of the target.

    Args:
      target_log_prob_fn: as a kernel takes it.
      current_state: a tensor or list of parts, with as many chains as will run together.
      metric: of the kernel; None for a kernel without one.
    """
    check_callable('target_log_prob_fn', target_log_prob_fn)
    if metric is not None:
        check_instance('metric', metric, Metric, 'a `tfp_rmhmc.Metric`')
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


def has_long_loops(target_log_prob_fn: Callable[..., tf.Tensor], parts: list[tf.Tensor]) -> bool:
    """Whether a target goes through loops of many rounds, as many as are known beforehand, as a `tf.scan` over data does.

    Of other loops XLA has no derivatives. Cost: one trace of the target.
    """
    graph = tf.function(target_log_prob_fn, autograph=False).get_concrete_function(*parts).graph
    loops = [op for op in graph.get_operations() if op.type in ('While', 'StatelessWhile')]
    rounds = [tf.get_static_value(op.inputs[1]) for op in loops]  # TensorFlow's counter, the most rounds, the variables
    return bool(rounds) and all(most is not None and np.ndim(most) == 0 for most in rounds) and max(rounds) >= _LONG


def _num_elements(graph: tf.Graph) -> int:
    """How many numbers a graph computes; tensors of unknown shape are not counted."""
    computed = [op for op in graph.get_operations() if op.type not in ('Const', 'Placeholder', 'ReadVariableOp')]
    return sum(output.shape.num_elements() or 0 for op in computed for output in op.outputs)


def _has_closed_form(density: LogDensity, position: tf.Tensor) -> bool:
    hessian = tf.function(lambda position: density.apply(autodiff.hessian, position)[2], autograph=False)
    return bool(are_arrowheads(hessian.get_concrete_function(position)(position)))
