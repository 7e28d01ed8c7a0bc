"""Trajectories as tables of phases.

The first and the last phase of a step are often evaluated at the same point, so that those of two consecutive steps can be
one. A schedule says which phases a trajectory of any number of steps consists of. All phases are rounds of one loop, so
that a program holds the evaluation of the metric once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

__all__ = ['Schedule']


class Schedule:
    """The phases of a trajectory: `opening`, then `cycle` once for every step; the last cycle ends with `closing` instead.

    Args:
      opening: phases, each a NamedTuple of floats, all of one type.
      cycle: the phases that a step adds.
      closing: phases that take the place of as many at the end of the last cycle.
    """

    def __init__(self, opening: Sequence[NamedTuple], cycle: Sequence[NamedTuple], closing: Sequence[NamedTuple]):
        self._phase_type: Any = type(cycle[0])
        self._table = [*opening, *cycle, *closing]
        self._num_opening, self._num_cycle, self._num_closing = len(opening), len(cycle), len(closing)

    def length(self, num_steps: tf.Tensor) -> tf.Tensor:
        """The number of phases of a trajectory, int32."""
        return self._num_opening + self._num_cycle * num_steps

    def run(
        self,
        perform: Callable[[Any, Any], Any],
        point: Any,
        num_steps: tf.Tensor,
        first: int = 0,
        last: tf.Tensor | None = None,
    ) -> Any:
        """The point after the phases `first` to `last`, exclusive, of a trajectory; by default after all of them.

        Args:
          perform: takes a phase, whose fields are scalar tensors of the point's dtype, and a point; returns a point.
          point: a NamedTuple of tensors with a field `position`.
          num_steps: int32 scalar.
          first, last: the first phase, and the one before which to stop.
        """
        columns = [tf.constant(column, point.position.dtype) for column in zip(*self._table, strict=True)]
        length = self.length(num_steps)
        last = length if last is None else last

        def body(i: tf.Tensor, point: Any) -> tuple[tf.Tensor, Any]:
            in_cycle = self._num_opening + (i - self._num_opening) % self._num_cycle
            in_closing = len(self._table) - (length - i)
            row = tf.where(i < self._num_opening, i, tf.where(i >= length - self._num_closing, in_closing, in_cycle))
            return i + 1, perform(self._phase_type(*[tf.gather(column, row) for column in columns]), point)

        return tf.while_loop(lambda i, _: i < last, body, (tf.constant(first), point))[1]
