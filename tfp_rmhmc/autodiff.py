"""Batched derivatives of a log density `fn: [batch..., D] -> [batch...]` by reverse mode.

Chains are independent: the value of a chain depends on that chain's position alone. So one reverse pass gives every chain's
gradient, and D reverse passes through that gradient give every chain's Hessian. The D passes differ only in the output
gradient, so `tf.vectorized_map` makes them together. The target is evaluated once, on the caller's own shape, and has to do
no more than TFP asks of any target. The results can be differentiated again by ordinary reverse passes.

What `tf.vectorized_map` cannot do (a `tf.cond`, some operations of XLA's, and under XLA a `tf.while_loop`) is written
out, pass by pass: D times the operations, and the same numbers.

Every function works eagerly, inside `tf.function`, and with `jit_compile=True`, with one exception: XLA cannot compile
third derivatives of a target that fills a `tf.TensorArray` in a loop, as `tf.scan` does. Run such a target in a plain
`tf.function`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.xla import is_compiled_by_xla, traced_as_for_a_graph

__all__ = [
    'hessian',
    'jacobian',
    'not_vectorizable',
    'value_and_gradient',
    'warn_of_nested_loops',
]

_Fn = Callable[[tf.Tensor], tf.Tensor]

_NOT_VECTORIZABLE = 'tfp_rmhmc_not_vectorizable'
_WHILE = {'While', 'StatelessWhile'}
# Loops and branches, whose vectorised derivatives XLA cannot compile.
_LOOPS = _WHILE | {'If', 'StatelessIf', 'Case', 'StatelessCase'}
# What writes to a `tf.TensorArray`.
_WRITES = {'TensorListSetItem', 'TensorListScatterIntoExistingList'}


def not_vectorizable() -> AbstractContextManager[Any]:
    """A scope for operations whose derivatives must not pass through `tf.vectorized_map`.

    Vectorisation loses custom gradients: it would differentiate the operations behind them, or nothing, without an error.
    The scope is part of the operations' names, which stay with them in every graph and function that they come to.
    """
    return tf.name_scope(_NOT_VECTORIZABLE)


def value_and_gradient(fn: _Fn, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`fn` and its gradient at `position: [batch..., D]`: shapes `[batch...]` and `[batch..., D]`.

    Raises:
      ValueError: if no differentiable path leads from the position to the value.
    """
    with tf.GradientTape() as tape:
        tape.watch(position)
        value = fn(position)
    gradient = tape.gradient(value, position)
    if gradient is None:
        raise ValueError('`target_log_prob_fn` has no gradient with respect to the state; is it differentiable?')
    return value, gradient


def hessian(fn: _Fn, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Value `[batch...]`, gradient `[batch..., D]` and symmetric Hessian `[batch..., D, D]` of `fn` at `position`.

    Cost: one evaluation, one reverse pass, and D vectorised reverse passes through the gradient.

    Raises:
      LookupError: under XLA, if the function fills a `tf.TensorArray` in a loop.
    """
    with _tracing(fn, position):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(position)
            value, gradient = value_and_gradient(fn, position)
        rows = _vectorized_rows(tape, gradient, position)
    return value, gradient, 0.5 * (rows + tf.linalg.matrix_transpose(rows))


def _tracing(fn: _Fn, position: tf.Tensor) -> AbstractContextManager[None]:
    """How higher derivatives of a function are to be traced; it is called once more, for a look at its operations."""
    if not is_compiled_by_xla():
        return contextlib.nullcontext()
    looked_at = tf.stop_gradient(position)
    kinds = {op.kind for op in _operations_between([looked_at], fn(looked_at))}
    if _WRITES & kinds:
        # XLA would say so itself, after minutes, and not in these words.
        raise LookupError('no second derivative of a `tf.TensorArray` that a loop fills, as `tf.scan` and `tf.map_fn` do')
    return contextlib.nullcontext() if _LOOPS & kinds else traced_as_for_a_graph()


def jacobian(fn: _Fn, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Outputs `[batch..., K]` of `fn` and their Jacobian `[batch..., K, D]` at `position: [batch..., D]`.

    Cost: K vectorised reverse passes, or D forward passes if D < K or K is not static; a forward pass is the reverse pass
    of a reverse pass, which is linear in its output gradient.
    """
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(position)
        outputs = fn(position)
    if outputs.shape[-1] is not None and outputs.shape[-1] <= position.shape[-1]:
        return outputs, _vectorized_rows(tape, outputs, position)
    dummy = tf.ones_like(outputs)
    with tf.GradientTape(persistent=True) as dummy_tape:
        dummy_tape.watch(dummy)
        pulled_back = _pull_back(tape, outputs, position, dummy)
    return outputs, tf.linalg.matrix_transpose(_vectorized_rows(dummy_tape, pulled_back, dummy, position))


def _vectorized_rows(
    tape: tf.GradientTape, outputs: tf.Tensor, inputs: tf.Tensor, position: tf.Tensor | None = None
) -> tf.Tensor:
    """`d outputs_k / d inputs` for each k, stacked as `[batch..., K, D]`; the user's function begins at `position`."""
    unit_vectors = tf.eye(outputs.shape[-1], dtype=outputs.dtype)

    def row(unit_vector: tf.Tensor) -> tf.Tensor:
        return _pull_back(tape, outputs, inputs, tf.broadcast_to(unit_vector, tf.shape(outputs)))

    rows = None
    # Eagerly, vectorized_map would trace anew on each call, which is slower than a loop.
    if not tf.executing_eagerly() and _can_be_vectorized(outputs, [inputs] if position is None else [inputs, position]):
        # A while loop over the rows is no way out: the rows could not be differentiated again under XLA.
        with contextlib.suppress(ValueError, LookupError, NotImplementedError):
            rows = tf.vectorized_map(row, unit_vectors, fallback_to_while_loop=False)
    if rows is None:
        rows = tf.stack([row(unit) for unit in tf.unstack(unit_vectors)])
    rank = outputs.shape.rank
    rows = tf.transpose(rows, [*range(1, rank), 0, rank])
    rows.set_shape(outputs.shape + inputs.shape[-1:])
    return rows


def _pull_back(tape: tf.GradientTape, outputs: tf.Tensor, inputs: tf.Tensor, cotangent: tf.Tensor) -> tf.Tensor:
    """`sum cotangent * d outputs / d inputs`; zero where the outputs do not depend on the inputs."""
    return tape.gradient(outputs, inputs, output_gradients=cotangent, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def _can_be_vectorized(outputs: tf.Tensor, inputs: list[tf.Tensor]) -> bool:
    """Whether no operation that leads from inputs to outputs is marked by `not_vectorizable`, or a loop under XLA."""
    forbidden = _LOOPS if is_compiled_by_xla() else set()
    return not any(_NOT_VECTORIZABLE in op.name or op.kind in forbidden for op in _operations_between(inputs, outputs))


def warn_of_nested_loops(position: tf.Tensor, value: tf.Tensor) -> None:
    """Warns, in a graph, if a function that shall be differentiated more than once has a loop inside a loop.

    Solvers of differential equations have. TensorFlow traces the derivatives of their gradients for minutes.
    """
    if tf.executing_eagerly():
        return
    if any(op.kind in _WHILE and op.num_loops for op in _operations_between([position], value)):
        warnings.warn(
            'The log density has a loop inside a loop, as solvers of differential equations have, and the metric needs '
            'derivatives of its gradient, which TensorFlow may take minutes to trace; `SeparableMetric`, `FisherMetric` '
            'and `EuclideanMetric` need none.',
            stacklevel=2,
        )


class _Operation(NamedTuple):
    """Of a graph: its name, its type, and in how many loops it is."""

    name: str
    kind: str
    num_loops: int


def _operations_between(inputs: list[tf.Tensor], outputs: tf.Tensor) -> Iterator[_Operation]:
    """Each operation of the present graph on the way, those inside of functions included."""
    bodies: set[tuple[str, int]] = set()  # the functions that are called on the way, and in how many loops
    waiting, seen = [outputs.op], {tensor.op for tensor in inputs}
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        yield _Operation(op.name, op.type, 0)
        if op.type != 'Const':  # whose description holds its value
            bodies |= {(name, int(op.type in _WHILE)) for name in _functions_of(op.node_def)}
        waiting += [tensor.op for tensor in op.inputs]
    if not bodies:
        return
    # Only now, since it copies the whole graph: the functions' own operations, and those of the functions that they call.
    library = {body.signature.name: body.node_def for body in outputs.graph.as_graph_def().library.function}
    to_read, known = list(bodies), set(bodies)
    while to_read:
        body, num_loops = to_read.pop()
        for node in library.get(body, ()):
            yield _Operation(node.name, node.op, num_loops)
            called = {(name, num_loops + int(node.op in _WHILE)) for name in _functions_of(node)} - known
            known |= called
            to_read += called


def _functions_of(node: Any) -> set[str]:
    """The names of the functions that an operation calls: a call, a loop, a condition."""
    found = {value.func.name for value in node.attr.values() if value.HasField('func')}
    return found | {function.name for value in node.attr.values() for function in value.list.func}
