"""The log density as a function of one flat vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfp_rmhmc.argument import check_callable, check_instance
from tfp_rmhmc.data_sum import SumOverData
from tfp_rmhmc.state import StateLayout

__all__ = ['LogDensity']


class LogDensity:
    """A `target_log_prob_fn` of state parts, seen as a function of the flat vector: `[batch..., D] -> [batch...]`.

    Args:
      target_log_prob_fn: takes the state parts and returns the log density, `[batch...]`.
      layout: where each state part sits in the flat vector.
    """

    def __init__(self, target_log_prob_fn: Callable[..., tf.Tensor], layout: StateLayout):
        check_callable('target_log_prob_fn', target_log_prob_fn)
        check_instance('layout', layout, StateLayout, 'a StateLayout')
        self.target_log_prob_fn = target_log_prob_fn
        self.layout = layout

    @classmethod
    def at_state(cls, target_log_prob_fn: Callable[..., tf.Tensor], parts: Sequence[tf.Tensor]) -> LogDensity:
        """The log density around a state. One call of the target finds how many leading dimensions are chains."""
        log_prob = tf.convert_to_tensor(target_log_prob_fn(*parts))
        return cls(target_log_prob_fn, StateLayout.of(parts, log_prob))

    def __call__(self, position: tf.Tensor) -> tf.Tensor:
        return tf.convert_to_tensor(self.target_log_prob_fn(*self.layout.unflatten(position)))

    def apply(self, operator: Callable[..., Sequence[tf.Tensor]], position: tf.Tensor) -> Sequence[tf.Tensor]:
        """`operator(self, position)` for an operator that is linear in the log density, such as its gradient or Hessian.

        Where the density is a sum over data, the operator is applied to each term, in one pass over the data.
        """
        if isinstance(self.target_log_prob_fn, SumOverData):
            return self.target_log_prob_fn.apply(operator, position, self.layout.unflatten)
        return operator(self, position)
