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

__all__ = ['Compiler', 'has_long_loops', 'prefers_xla', 'said_of_singular_matrix']

_T = TypeVar('_T')
# In what TensorFlow's decompositions and solvers say of a matrix that they cannot treat.
_SINGULAR = re.compile('not invertible|[Dd]ecomposition was not successful')


class Compiler:
    """Which compiler the programs of a run go to: XLA, or a graph. What one could not do once is not tried again.

    XLA cannot compile every target. In a graph, on the other hand, TensorFlow's matrix operations raise an error for all
    chains where one of them is at a matrix that is singular or not finite, as proposals that diverge are. XLA has numbers
    there that are not finite, and the proposal is rejected.

    Args:
      jit_compile: whether XLA compiles; None where `prefer` says so, and then each takes over where the other fails.
      seconds: where the time of tracing and compiling is added up, by phase.

    Attributes:
      is_xla: whether programs go to XLA.
      is_forced: whether the user chose.
      failure: what one of them could not do, so that the other has to, in one sentence; or None.
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
        """What to do from now on, unless the user chose, or one of them failed before."""
        if not self.is_forced and self.failure is None:
            self.is_xla = is_xla

    def call(self, program: Callable[[bool], _T]) -> _T:
        """`program(is_xla)`, and where one compiler fails what the other makes of it, from then on."""
        try:
            return program(self.is_xla)
        except Exception as error:  # anything that XLA cannot do; if the target is at fault, the graph raises too
            may_change = not self.is_forced and self.failure is None
            if self.is_xla and may_change:
                result = program(False)
            elif self.is_xla or said_of_singular_matrix(error) is None:
                raise
            elif may_change:
                result = _rescued(program, error)
            else:
                raise _stopped(
                    error, 'XLA, which does not stop, ' + ('was ruled out' if self.is_forced else 'failed')
                ) from error
            self.failure = _told(error, self.is_xla)
            self.is_xla = not self.is_xla
            return result

    def saved(self) -> dict[str, np.ndarray]:
        """As arrays, for a checkpoint."""
        return {'compiler.is_xla': np.array(self.is_xla), 'compiler.failure': np.array(self.failure or '')}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """What was known when `saved` was made."""
        if not self.is_forced:
            self.is_xla = bool(saved['compiler.is_xla'])
            self.failure = str(saved['compiler.failure']) or None


def said_of_singular_matrix(error: Exception) -> str | None:
    """What a matrix operation said of a matrix that is singular, indefinite or not finite; None for other errors."""
    lines = str(error).split('\n') if isinstance(error, tf.errors.InvalidArgumentError) else []
    line = next((line for line in lines if _SINGULAR.search(line)), None)
    # Without the place in the graph.
    return None if line is None else re.sub(r'\{\{.*?\}\}|\[Op:.*', '', line).strip().rstrip('.')


def _rescued(program: Callable[[bool], _T], error: Exception) -> _T:
    """What XLA makes of a program that has stopped at a singular matrix."""
    try:
        return program(True)
    except Exception as failure:
        raise _stopped(error, f'XLA, which does not stop, failed: {_shortened(failure)}') from failure


def _stopped(error: Exception, why_not_xla: str) -> RuntimeError:
    return RuntimeError(f'{_met_singular_matrix(error)}. {why_not_xla}.')


def _told(error: Exception, is_xla: bool) -> str:
    """Why the other compiler had to take over, in one sentence."""
    if is_xla:
        return f'XLA could not compile the target, so it ran in a graph: {_shortened(error)}'
    return f'{_met_singular_matrix(error)}, so XLA compiled the run.'


def _met_singular_matrix(error: Exception) -> str:
    return (
        f'A matrix of the target was singular or not finite in one of the chains ({said_of_singular_matrix(error)}), which '
        'stops all of them in a graph'
    )


def _shortened(error: Exception) -> str:
    """The first line of a message; XLA's hold names of graphs that are hundreds of letters long."""
    return re.sub(r'\S{50,}', '...', str(error).strip().split('\n')[0])[:200]


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


def has_long_loops(graph: tf.Graph) -> bool:
    """Whether a target goes through loops of many rounds, as many as are known beforehand, as a `tf.scan` over data does.

    Of other loops XLA has no derivatives.
    """
    loops = [op for op in graph.get_operations() if op.type in ('While', 'StatelessWhile')]
    rounds = [tf.get_static_value(op.inputs[1]) for op in loops]  # TensorFlow's counter, the most rounds, the variables
    are_known = all(most is not None and np.ndim(most) == 0 for most in rounds)
    return bool(rounds and are_known and max(rounds) >= _LONG)


def _num_elements(graph: tf.Graph) -> int:
    """How many numbers a graph computes; tensors of unknown shape are not counted."""
    computed = [op for op in graph.get_operations() if op.type not in ('Const', 'Placeholder', 'ReadVariableOp')]
    return sum(output.shape.num_elements() or 0 for op in computed for output in op.outputs)


def _has_closed_form(density: LogDensity, position: tf.Tensor) -> bool:
    hessian = tf.function(lambda position: density.apply(autodiff.hessian, position)[2], autograph=False)
    return bool(are_arrowheads(hessian.get_concrete_function(position)(position)))
