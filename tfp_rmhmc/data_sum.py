"""Log densities that are sums over data: mini-batches from a file, or shards on several devices.

    l(q) = base(q) + sum_b term(b, q)

Value, gradient and Hessian are linear in l, so each is itself a sum over the data, which `apply` makes in one pass. The
derivatives of these sums are sums of vector-Jacobian products: one more pass over the data for each reverse pass. So no
batch has to stay in memory after its turn, at any order of derivative.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_callable, check_instance

__all__ = ['SumOverBatches', 'SumOverData', 'SumOverReplicas']

_Term = Callable[..., Any]

# Passes that are compared at first. A cut of four elements to three is the same twice with probability 1/4.
_NUM_PASSES = 3
# By which two orders of one sum may differ, relative to the sum of sizes. Sums within a batch are in the state's dtype.
_ROUNDINGS = 64.0


class SumOverData(abc.ABC):
    """A `target_log_prob_fn` that adds up terms, one for each piece of the data.

    Args:
      term_fn: takes a piece of the data and the state parts, and returns the piece's share `[batch...]`.
      base_fn: the share that needs no data, such as a log prior: takes the state parts. Optional.
    """

    def __init__(self, term_fn: _Term, base_fn: Callable[..., tf.Tensor] | None = None):
        check_callable('term_fn', term_fn)
        if base_fn is not None:
            check_callable('base_fn', base_fn)
        self._term_fn = term_fn
        self._base_fn = base_fn

    def _check(self, parts: Sequence[tf.Tensor]) -> None:
        """Raises if the data do not make a function of these state parts; called before each use."""
        del parts

    @property
    def is_chief(self) -> bool:
        """Whether this process writes files. Where several processes work together, the first one does."""
        return True

    @property
    def spans_processes(self) -> bool:
        """Whether several processes work together."""
        return False

    @abc.abstractmethod
    def _total(self, fn: _Term, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The sum of the list `fn(piece, *arguments)` over all pieces; need not be differentiable."""

    def sum(self, fn: _Term, *arguments: tf.Tensor) -> list[tf.Tensor]:
        """The sum of the list of tensors `fn(piece, *arguments)` over all pieces, differentiable in the arguments."""

        @tf.custom_gradient
        def total(*arguments: tf.Tensor) -> Any:
            def gradient(*cotangents: tf.Tensor) -> list[tf.Tensor]:
                # Into the graph of the gradient, which is not that of the sum where a `tf.function` holds the sum.
                captured = [tf.identity(argument) for argument in arguments]

                def pull_back(piece: Any, *both: tf.Tensor) -> list[tf.Tensor]:
                    upstream, inputs = list(both[: len(cotangents)]), list(both[len(cotangents) :])
                    with tf.GradientTape() as tape:
                        tape.watch(inputs)
                        outputs = fn(piece, *inputs)
                    return tape.gradient(
                        outputs,
                        inputs,
                        output_gradients=upstream,
                        unconnected_gradients=tf.UnconnectedGradients.ZERO,
                    )

                return self.sum(pull_back, *cotangents, *captured)

            return self._total(fn, arguments), gradient

        with autodiff.not_vectorizable():
            return list(total(*arguments))

    def of(
        self,
        fn: Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]],
        log_jacobian_fn: Callable[..., tf.Tensor] | None = None,
    ) -> SumOverData:
        """The same sum as a function of other state parts, `fn` taking them to these; plus `log_jacobian_fn` of them."""
        term_fn, base_fn = self._term_fn, self._base_fn
        other = copy.copy(self)
        other._term_fn = lambda piece, *parts: term_fn(piece, *fn(parts))
        if base_fn is None:
            other._base_fn = log_jacobian_fn
        elif log_jacobian_fn is None:
            other._base_fn = lambda *parts: base_fn(*fn(parts))
        else:
            other._base_fn = lambda *parts: base_fn(*fn(parts)) + log_jacobian_fn(*parts)
        return other

    def __call__(self, *parts: tf.Tensor) -> tf.Tensor:
        parts = tuple(tf.convert_to_tensor(part) for part in parts)
        self._check(parts)
        (total,) = self.sum(lambda piece, *parts: [self._term_fn(piece, *parts)], *parts)
        return total if self._base_fn is None else total + self._base_fn(*parts)

    def apply(
        self,
        operator: Callable[[Callable[[tf.Tensor], tf.Tensor], tf.Tensor], Sequence[tf.Tensor]],
        position: tf.Tensor,
        unflatten: Callable[[tf.Tensor], list[tf.Tensor]],
    ) -> list[tf.Tensor]:
        """`operator(l, position)` in one pass over the data, for an operator that is linear in l.

        Args:
          operator: takes a function of the flat position, and the position; returns tensors.
          position: `[batch..., D]`.
          unflatten: from the flat position to the state parts.
        """

        self._check(unflatten(position))

        def of_piece(piece: Any, position: tf.Tensor) -> list[tf.Tensor]:
            return list(operator(lambda flat: self._term_fn(piece, *unflatten(flat)), position))

        total = self.sum(of_piece, position)
        if self._base_fn is None:
            return total
        base_fn = self._base_fn
        base = operator(lambda flat: base_fn(*unflatten(flat)), position)
        return [a + b for a, b in zip(total, base, strict=True)]


class SumOverBatches(SumOverData):
    """A log density summed over the batches of a `tf.data.Dataset`, for data larger than memory.

    Exact: every evaluation reads all data, in a compiled loop, and holds one batch at a time. Works in `tf.function`, not
    under XLA, which cannot read a dataset. State shapes must be static. At the first use some passes are compared, since a
    dataset that differs from pass to pass makes a random target.

    Args:
      term_fn: takes an element of the dataset and the state parts, and returns the element's share `[batch...]`.
      dataset: finite, and of the same elements on each pass: not shuffled anew and then cut, nor augmented at random.
      base_fn: the share that needs no data, such as a log prior. Optional.
    """

    def __init__(self, term_fn: _Term, dataset: tf.data.Dataset, base_fn: Callable[..., tf.Tensor] | None = None):
        super().__init__(term_fn, base_fn)
        check_instance('dataset', dataset, tf.data.Dataset, 'a tf.data.Dataset')
        if tf.get_static_value(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:  # None in a graph
            raise ValueError('`dataset` must be finite, got one that repeats for ever.')
        self._dataset = dataset
        self._is_checked = False

    def check_passes(self, *parts: tf.Tensor) -> None:
        """Raises unless passes over the dataset agree at these state parts. Cost: three passes, eagerly."""

        def both(piece: Any, *parts: tf.Tensor) -> list[tf.Tensor]:
            term = tf.cast(self._term_fn(piece, *parts), tf.float64)
            return [term, tf.abs(term)]

        (first, size), *others = [self._total(both, parts) for _ in range(_NUM_PASSES)]
        # An order of its own for each pass is harmless, and changes what is rounded.
        allowed = _ROUNDINGS * np.finfo(parts[0].dtype.as_numpy_dtype).eps * size
        for other, _ in others:
            is_same = (tf.abs(first - other) <= allowed) | ~(tf.math.is_finite(first) | tf.math.is_finite(other))
            if not tf.reduce_all(is_same):
                raise ValueError(
                    f'`dataset` must hold the same elements on each pass, got log densities {np.ravel(first)[:3].tolist()} '
                    f'and then {np.ravel(other)[:3].tolist()} at one point: do not shuffle it anew before it is cut, and '
                    'do not augment it at random.'
                )
        self._is_checked = True

    def _check(self, parts: Sequence[tf.Tensor]) -> None:
        """Compares passes once: at the state itself, or, where a graph is traced, at a point near zero."""
        if self._is_checked:
            return
        with tf.init_scope():
            if not tf.executing_eagerly() or not hasattr(tf.data.experimental.to_variant(self._dataset), 'numpy'):
                return  # a dataset that is itself part of a graph
            known = [tf.get_static_value(part) for part in parts]
            if any(value is None for value in known):
                if not all(part.shape.is_fully_defined() for part in parts):
                    return
                rng = np.random.default_rng(0)
                known = [0.1 * rng.standard_normal(part.shape) for part in parts]
            points = [tf.constant(value, part.dtype) for value, part in zip(known, parts, strict=True)]
            try:
                for piece in self._dataset.take(1):
                    self._term_fn(piece, *points)
            except Exception:  # a term that works in the present graph alone, or not at all, which the graph will say
                return
            self.check_passes(*points)

    def _total(self, fn: _Term, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        traced = tf.function(lambda piece, *arguments: list(fn(piece, *arguments)), autograph=False)
        specs = [tf.TensorSpec(argument.shape, argument.dtype) for argument in arguments]
        concrete = traced.get_concrete_function(self._dataset.element_spec, *specs)
        for spec in concrete.structured_outputs:
            if not spec.shape.is_fully_defined():
                raise ValueError(f'A sum over batches needs state parts of static shape, got a term of shape {spec.shape}.')
        # The gradient is `sum`'s. A tape that watched the loop would ask for that of the iterator.
        arguments = [tf.stop_gradient(argument) for argument in arguments]
        # Not `dataset.reduce`, which optimises the graph of its function anew on every pass: 30 ms for a Hessian.
        iterator, is_made = _iterator_of(self._dataset)

        def add(piece: tf.experimental.Optional, total: tuple[tf.Tensor, ...]) -> tuple[Any, tuple[tf.Tensor, ...]]:
            terms = traced(piece.get_value(), *arguments)
            return iterator.get_next_as_optional(), tuple(a + b for a, b in zip(total, terms, strict=True))

        start = tuple(tf.zeros(spec.shape, spec.dtype) for spec in concrete.structured_outputs)
        # One batch at a time is read ahead of the sum.
        with tf.control_dependencies(is_made):
            loop = (iterator.get_next_as_optional(), start)
        _, total = tf.while_loop(lambda piece, _: piece.has_value(), add, loop, parallel_iterations=1)
        return list(total)


def _iterator_of(dataset: tf.data.Dataset) -> tuple[Any, list[tf.Operation]]:
    """An iterator, and the operations after which it can be read: gradients of a `tf.function` do not order them."""
    if tf.executing_eagerly():
        return iter(dataset), []
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    iterator = iter(dataset)
    return iterator, [op for op in graph.get_operations()[before:] if op.type == 'MakeIterator']


class SumOverReplicas(SumOverData):
    """A log density whose data is split over the devices of a `tf.distribute.Strategy`.

    Each device computes its share of the log density and of its derivatives; the shares are added, and the chain itself
    runs once, so it is the chain of one device, up to rounding. Give the strategy
    `cross_device_ops=tf.distribute.ReductionToOneDevice()`, whose sums are ordinary operations. Works in `tf.function`.

    With `MultiWorkerMirroredStrategy` every worker runs the same program with the same seed, and has the same draws. Where
    one of them is lost, the others end with TensorFlow's error. Of a `checkpoint_dir` that all can read, the first
    worker alone writes the file, and all go on from it when they are started again.

    Args:
      term_fn: takes a device's share of the data and the state parts, and returns its part of the log density.
      values: each device's share, by `strategy.experimental_distribute_values_from_function` or a distributed dataset.
      strategy: a `tf.distribute.Strategy`, such as `MirroredStrategy`.
      base_fn: the share that needs no data, such as a log prior; computed once. Optional.
    """

    def __init__(
        self,
        term_fn: _Term,
        values: Any,
        strategy: tf.distribute.Strategy,
        base_fn: Callable[..., tf.Tensor] | None = None,
    ):
        super().__init__(term_fn, base_fn)
        check_instance('strategy', strategy, tf.distribute.Strategy, 'a tf.distribute.Strategy')
        self._values = values
        self._strategy = strategy

    @property
    def is_chief(self) -> bool:
        resolver = self._strategy.cluster_resolver  # None on one machine
        return (
            resolver is None
            or resolver.task_type in (None, 'chief')
            or ('chief' not in resolver.cluster_spec().jobs and resolver.task_id == 0)
        )

    @property
    def spans_processes(self) -> bool:
        resolver = self._strategy.cluster_resolver
        return resolver is not None and sum(map(len, resolver.cluster_spec().as_dict().values())) > 1

    def _total(self, fn: _Term, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        def share(values: Any, *arguments: tf.Tensor) -> list[tf.Tensor]:
            return list(fn(values, *arguments))

        shares = self._strategy.run(share, args=(self._values, *arguments))
        return [self._strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None) for part in shares]
