"""What is known of scales before there are draws: by a metric that a model gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_rmhmc.metric.regression import Array
from tfp_rmhmc.state import StateLayout

if TYPE_CHECKING:
    from tfp_rmhmc.metric.separable import SeparableMetric

__all__ = ['ScaleHint', 'scale_hint']

# By how much a log scale must change with a coordinate that moves by one, to count as set by it.
_LEAST_CHANGE = 0.01
_MAX_SETTERS = 8  # of one coordinate, those that change it most
_AT_ONCE = 256  # positions


class ScaleHint(NamedTuple):
    """What a separable metric says at some positions.

    Attributes:
      log_precision: `-2 log_scale` of each flat coordinate, the mean over the positions, `[D]`.
      setters: for each coordinate those that set its scale.
    """

    log_precision: Array
    setters: list[tuple[int, ...]]


def scale_hint(metric: SeparableMetric, parts: list[tf.Tensor]) -> ScaleHint | None:
    """Log scales at some positions, and who sets whose; None where they are not finite.

    Who sets a scale is seen by moving each coordinate by one, from the first position. Cost: the log scales at D + n
    positions, and one trace of the function that gives them.

    Args:
      metric: for such a state.
      parts: state parts, each `[n, event...]`.
    """
    layout = StateLayout(parts, 1)
    positions = layout.flatten(parts).numpy()
    num, dimension = positions.shape
    moved = np.concatenate([positions, positions[:1] + np.eye(dimension)])
    chunk = min(len(moved), _AT_ONCE)
    program = tf.function(lambda position: tf.concat(metric.log_scales(layout, position), axis=-1), autograph=False)
    concrete = program.get_concrete_function(tf.TensorSpec([chunk, dimension], layout.dtype))
    padded = np.concatenate([moved, np.tile(moved[-1:], (-len(moved) % chunk, 1))])
    pieces = [concrete(tf.constant(piece, layout.dtype)).numpy() for piece in padded.reshape(-1, chunk, dimension)]
    by_blocks = np.concatenate(pieces)[: len(moved)].astype(np.float64)
    log_scales = np.empty_like(by_blocks)
    log_scales[:, np.concatenate(metric.separation(layout).partition.blocks)] = by_blocks
    if not np.all(np.isfinite(log_scales)):
        return None
    changes = np.abs(log_scales[num:] - log_scales[0])  # [setter, coordinate]
    order = np.argsort(-changes, axis=0, kind='stable')[:_MAX_SETTERS]
    setters = [tuple(sorted(int(s) for s in order[:, i] if changes[s, i] > _LEAST_CHANGE)) for i in range(dimension)]
    return ScaleHint(-2.0 * log_scales[:num].mean(axis=0), setters)
