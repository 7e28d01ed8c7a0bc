"""The factor of a separable metric, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.linalg import Correlation, Directions, coordinate_directions
from tfp_rmhmc.metric.factor import Factor
from tfp_rmhmc.metric.separation import Partition

__all__ = ['BlockShape', 'SeparableFactor']


class BlockShape(NamedTuple):
    """What of `G_b = W' S C S W` does not depend on the position: C and W, of which one at least is the identity."""

    correlation: Correlation
    directions: Directions = coordinate_directions()

    @property
    def half_log_det(self) -> Any:
        """Of `W' C W`."""
        return self.correlation.half_log_det + self.directions.log_det

    def solve(self, scale: tf.Tensor, covector: tf.Tensor) -> tf.Tensor:
        """`G^-1 p`, where S is the inverse of `scale`."""
        components = self.directions.covector_components(covector)
        return self.directions.vector(scale * self.correlation.solve(scale * components))

    def multiply(self, scale: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
        """`G v`."""
        components = self.directions.components(vector)
        return self.directions.covector(self.correlation.multiply(components / scale) / scale)

    def sqrt_multiply(self, scale: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """A covector with covariance G, of standard normal noise."""
        return self.directions.covector(self.correlation.sqrt_multiply(noise) / scale)

    def diagonal(self, scale: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        """Of G, shaped like a vector."""
        return self.directions.diagonal(self.correlation.diagonal(like) / tf.square(scale))

    def scale_cotangent(self, scale: tf.Tensor, covector: tf.Tensor) -> tf.Tensor:
        """Of `1/2 log det G + 1/2 p' G^-1 p` with respect to log scales: `u (C^-1 u) - 1`, `u = S^-1 W^-T p`."""
        components = scale * self.directions.covector_components(covector)
        return components * self.correlation.solve(components) - 1.0


class SeparableFactor(Factor):
    """`G = blockdiag(W_b' S_b C_b S_b W_b)` with `S_b = diag(exp(-log_scale_b))`. O(D), and O(d_b^2) for dense C_b or W_b.

    Args:
      log_scales: `[batch..., d_b]` for each block.
      partition: of the flat coordinates.
      shapes: one for each block.
    """

    def __init__(self, log_scales: list[tf.Tensor], partition: Partition, shapes: list[BlockShape]):
        self._scales = [tf.exp(log_scale) for log_scale in log_scales]
        self._partition = partition
        self._shapes = shapes
        constant = sum(shape.half_log_det for shape in shapes)
        self.half_log_det = constant - tf.add_n([tf.reduce_sum(log_scale, axis=-1) for log_scale in log_scales])

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        return self._each(lambda one, scale, shape: shape.diagonal(scale, one), tf.ones_like(like))

    def solve(self, covector: tf.Tensor) -> tf.Tensor:
        return self._each(lambda p, scale, shape: shape.solve(scale, p), covector)

    def multiply(self, vector: tf.Tensor) -> tf.Tensor:
        return self._each(lambda v, scale, shape: shape.multiply(scale, v), vector)

    def sqrt_multiply(self, noise: tf.Tensor) -> tf.Tensor:
        return self._each(lambda z, scale, shape: shape.sqrt_multiply(scale, z), noise)

    def energy_cotangent(self, covector: tf.Tensor) -> list[tf.Tensor]:
        blocks = zip(self._partition.split(covector), self._scales, self._shapes, strict=True)
        return [shape.scale_cotangent(scale, p) for p, scale, shape in blocks]

    def _each(self, fn: Callable[[tf.Tensor, tf.Tensor, BlockShape], tf.Tensor], flat: tf.Tensor) -> tf.Tensor:
        blocks = zip(self._partition.split(flat), self._scales, self._shapes, strict=True)
        return self._partition.join([fn(*block) for block in blocks])
