"""Programs of earlier runs: a target that is traced to the same graph as before need not be compiled again.

TensorFlow keeps what XLA has compiled for as long as the process lives, so that a program for each run would take ever more
memory, beside the seconds that it takes to compile. A graph says all that a program does: operations, constants, and the
tensors that it captured. So the key of a program is made of these, from a trace of this run's target, and a function that
has changed its mind since (other data in a global variable, say) has another one.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Hashable, Sequence
from typing import Any

import tensorflow as tf

from tfp_rmhmc.sampling.engine import Engine

__all__ = ['engine_of', 'forget', 'graph_key', 'keep']

_MAX_PROGRAMS = 16  # that are kept, those that were used last
# The attribute by which operations find their custom gradients; it is another one each time.
_NUMBERED = '_gradient_op_type'
_MAX_BYTES = 2**26  # of a target's constants; programs of larger ones are left to their runs
_programs: collections.OrderedDict[Hashable, Engine] = collections.OrderedDict()


def graph_key(traced: Any) -> bytes | None:
    """What two concrete functions have in common if they compute the same, whatever names TensorFlow gave them.

    Gradients that they do not take themselves do not count. None where it cannot be told: of functions with state, such as
    variables, and of very large ones.
    """
    definition, captured = traced.graph.as_graph_def(), traced.captured_inputs
    if any(not hasattr(x, 'numpy') or x.dtype in (tf.resource, tf.variant) for x in captured):
        return None
    values = [x.numpy() for x in captured]
    if definition.ByteSize() + sum(value.nbytes for value in values) > _MAX_BYTES:
        return None
    digest = hashlib.sha256(_key_of_nodes(definition.node, [], _Functions(definition.library.function)))
    for value in values:
        digest.update(f'{value.dtype} {value.shape}'.encode())
        digest.update(value.tobytes())
    return digest.digest()


class _Functions:
    """The keys of a graph's functions, by name."""

    def __init__(self, definitions: Any):
        self._definitions = {definition.signature.name: definition for definition in definitions}
        self._keys: dict[str, bytes] = {}

    def key(self, name: str) -> bytes:
        """That of a function, by what it computes; of others, such as TensorFlow's operations, the name."""
        if name not in self._definitions:
            return name.encode()
        if name not in self._keys:
            definition = self._definitions[name]
            self._keys[name] = _key_of_nodes(
                definition.node_def,
                [arg.name for arg in definition.signature.input_arg],
                self,
                [definition.ret[arg.name] for arg in definition.signature.output_arg],
            )
        return self._keys[name]


def _key_of_nodes(nodes: Any, arguments: list[str], functions: _Functions, results: Sequence[str] = ()) -> bytes:
    """Of operations in their order, without their names, which TensorFlow numbers through the process."""
    place = {name: f'argument {i}' for i, name in enumerate(arguments)}
    place |= {node.name: f'node {i}' for i, node in enumerate(nodes)}
    digest = hashlib.sha256()

    def add(told: bytes) -> None:
        digest.update(len(told).to_bytes(8, 'little') + told)

    def add_reference(reference: str) -> None:
        """`name`, `name:output:index`, or `^name` for what has to run before."""
        name, *output = reference.removeprefix('^').split(':')
        add(':'.join([reference[: reference.startswith('^')], place[name], *output]).encode())

    for node in nodes:
        add(functions.key(node.op))
        add(node.device.encode())
        add(len(node.input).to_bytes(8, 'little'))
        for reference in node.input:
            add_reference(reference)
        for name in sorted(node.attr.keys() - {_NUMBERED}):
            add(name.encode())
            value = node.attr[name]
            called = [value.func, *value.list.func] if value.HasField('func') or value.list.func else []
            for function in called:
                add(functions.key(function.name))
            add(value.SerializeToString(deterministic=True) if not called else b'')
    for reference in results:
        add_reference(reference)
    return digest.digest()


def engine_of(key: Hashable | None) -> Engine | None:
    """The engine of an earlier run that had this key, if it is still there."""
    return None if key is None else _programs.get(key)


def keep(key: Hashable | None, engine: Engine) -> None:
    """Keeps an engine that has run. Before that it would yet have to trace its target, which may have changed by then."""
    if key is None:
        return
    _programs[key] = engine
    _programs.move_to_end(key)
    while len(_programs) > _MAX_PROGRAMS:
        _programs.popitem(last=False)


def forget() -> None:
    """Lets go of all programs."""
    _programs.clear()
