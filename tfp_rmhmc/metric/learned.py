"""Separable metrics whose scales were learned: a log-linear function of the coordinates that set them."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tfp_rmhmc.linalg import coordinate_directions, dense_correlation, given_directions, identity_correlation
from tfp_rmhmc.linalg.constant import captured
from tfp_rmhmc.metric.separable import SeparableMetric
from tfp_rmhmc.metric.separable_factor import BlockShape

__all__ = ['LearnedMetric', 'ScaleStructure']


@dataclasses.dataclass(frozen=True)
class ScaleStructure:
    """Who sets whose scale: what of a learned metric is fixed when a program is compiled.

    Attributes:
      blocks: a partition of the flat coordinates; no coordinate sets the scale of one of its own block.
      setters: for each block, the flat coordinates that set its scales; empty where they are constant.
      has_directions: for each block, whether its scales are those of directions rather than of coordinates.
    """

    blocks: tuple[tuple[int, ...], ...]
    setters: tuple[tuple[int, ...], ...]
    has_directions: tuple[bool, ...]

    @classmethod
    def constant(cls, dimension: int) -> ScaleStructure:
        """One block of constant scales."""
        return cls((tuple(range(dimension)),), ((),), (False,))


class LearnedMetric(SeparableMetric):
    """A separable metric with, for the coordinates i of block b and the coordinates s that set its scales,

        log S_i^2 = log(exp(c_i) + exp(a_i + sum_s w_si q_s)),        G_b = S C_b S    or    G_b = W_b' S^2 W_b

    The first term is what does not vary, such as what the data say. With directions W_b, in the second form, it may be
    most of the matrix in some of them and nothing in others, so that correlations vary too; there the vector of all S_i^2
    may be multiplied by a constant matrix M, for directions that are not known exactly. `SeparableMetric.learn` makes one.

    Args:
      structure: blocks, and who sets their scales.
      parameters: for each block a dict of arrays or tensors: `c: [d]`; where there are setters also `a: [d]` and
        `w: [setters, d]`; then `root: [d, d]`, lower triangular with `C = root root'`, and `inverse: [d, d]`, that of C;
        or `directions: [d, d]`, the matrix W, of determinant 1 or -1, `dual: [d, d]`, its inverse, and `mixture: [d, d]`,
        the matrix M; or nothing more for identities. Tensors may be inputs of the program that is being traced, so that
        programs need not be compiled anew for other values.
      fit: how it was learned, or None.
    """

    def __init__(self, structure: ScaleStructure, parameters: list[dict[str, Any]], fit: Any = None):
        super().__init__(self._log_scales_of_blocks, blocks=structure.blocks)
        self.structure = structure
        self.parameters_of_blocks = parameters
        self.fit = fit

    def _log_scales_of_blocks(self, *blocks: tf.Tensor) -> list[tf.Tensor]:
        dtype = blocks[0].dtype
        place = {index: (b, i) for b, block in enumerate(self.structure.blocks) for i, index in enumerate(block)}
        found = []
        for setters, parameters in zip(self.structure.setters, self.parameters_of_blocks, strict=True):
            log_precision = captured(parameters['c'], dtype)
            if setters:
                values = tf.stack([blocks[place[s][0]][..., place[s][1]] for s in setters], axis=-1)
                varying = captured(parameters['a'], dtype) + tf.tensordot(values, captured(parameters['w'], dtype), 1)
                # softplus, not logaddexp: one transcendental function less, and a gradient without NaN.
                log_precision = log_precision + tf.nn.softplus(varying - log_precision)
            if 'mixture' in parameters:
                log_precision = _mixed(log_precision, captured(parameters['mixture'], dtype))
            found.append(-0.5 * log_precision)
        return found

    def _block_shapes(self, sizes: tuple[int, ...]) -> list[BlockShape]:
        del sizes
        return [_shape_of(parameters) for parameters in self.parameters_of_blocks]

    def __repr__(self) -> str:
        setters = sorted({s for group in self.structure.setters for s in group})
        return f'LearnedMetric(blocks of {[len(b) for b in self.structure.blocks]}, scales set by {setters})'


def _mixed(log_precision: tf.Tensor, mixture: tf.Tensor) -> tf.Tensor:
    """`log(M exp(l))`, of a matrix without zeros, so that nothing underflows where precisions differ by orders."""
    largest = tf.stop_gradient(tf.reduce_max(log_precision, axis=-1, keepdims=True))
    return largest + tf.math.log(tf.tensordot(tf.exp(log_precision - largest), mixture, [[-1], [1]]))


def _shape_of(parameters: dict[str, Any]) -> BlockShape:
    if 'directions' in parameters:
        return BlockShape(identity_correlation(), given_directions(parameters['directions'], parameters['dual'], 0.0))
    is_dense = 'root' in parameters
    correlation = dense_correlation(parameters['root'], parameters['inverse']) if is_dense else identity_correlation()
    return BlockShape(correlation, coordinate_directions())
