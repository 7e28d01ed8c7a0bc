"""How a metric's kinetic energy falls apart into terms that each have an exact flow.

A metric is separable if it is block diagonal and each block depends on the coordinates of the other blocks only:

    G(q) = blockdiag(G_1(q_-1), ..., G_B(q_-B)),      K_b(q_-b, p_b) = 1/2 log det G_b + 1/2 p_b' G_b^-1 p_b

Under K_b neither p_b nor q_-b moves, so q_b and p_-b move on straight lines (Zhang and Sutton 2014, "Semi-separable
Hamiltonian Monte Carlo for inference in Bayesian hierarchical models").
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ['KineticTerms', 'Partition', 'Separation']


# Up to so many pieces, slices and their concatenation are faster than gathering single coordinates.
_MAX_PIECES = 32


class Partition:
    """The flat coordinates `[batch..., D]` in blocks `[batch..., d_b]`, each coordinate in exactly one.

    Blocks are cut into pieces of neighbouring coordinates, so that blocks that are slices, or a few of them, cost no
    gather.

    Args:
      blocks: the indices of each block.
    """

    def __init__(self, blocks: Sequence[Sequence[int] | np.ndarray]):
        self.blocks = [np.asarray(block, np.int32) for block in blocks]
        self.sizes = [len(block) for block in self.blocks]
        order = np.concatenate(self.blocks)
        self._inverse = np.argsort(order).astype(np.int32)
        # The pieces of each block, as (first coordinate, length), and where each stands among all pieces of the flat
        # vector.
        self._pieces = [_pieces(block) for block in self.blocks]
        starts = sorted(start for pieces in self._pieces for start, _ in pieces)
        self._places = [[starts.index(start) for start, _ in pieces] for pieces in self._pieces]
        self._lengths = np.diff([*starts, len(order)]).tolist()

    @classmethod
    def contiguous(cls, sizes: Sequence[int]) -> Partition:
        """Blocks of neighbouring coordinates, of these sizes."""
        ends = np.cumsum(sizes)
        return cls([np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)])

    def split(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """`[batch..., D]` -> `[batch..., d_b]` for each block."""
        if len(self._lengths) == 1:
            return [flat]
        if len(self._lengths) > _MAX_PIECES:
            return [tf.gather(flat, block, axis=-1) for block in self.blocks]
        pieces = tf.split(flat, self._lengths, axis=-1)
        return [_concatenated([pieces[place] for place in places]) for places in self._places]

    def join(self, blocks: Sequence[tf.Tensor]) -> tf.Tensor:
        """The inverse of `split`."""
        if len(self._lengths) > _MAX_PIECES:
            return tf.gather(_concatenated(blocks), self._inverse, axis=-1)
        ordered: list[tf.Tensor] = [None] * len(self._lengths)
        for block, pieces, places in zip(blocks, self._pieces, self._places, strict=True):
            lengths = [length for _, length in pieces]
            for place, piece in zip(
                places, [block] if len(pieces) == 1 else tf.split(block, lengths, axis=-1), strict=True
            ):
                ordered[place] = piece
        return _concatenated(ordered)


def _pieces(block: np.ndarray) -> list[tuple[int, int]]:
    """The runs of consecutive indices of a block, as (first, length)."""
    ends = [*(np.flatnonzero(np.diff(block) != 1) + 1), len(block)]
    begins = [0, *ends[:-1]]
    return [(int(block[begin]), int(end - begin)) for begin, end in zip(begins, ends, strict=True)]


def _concatenated(pieces: Sequence[tf.Tensor]) -> tf.Tensor:
    return pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis=-1)


class KineticTerms(NamedTuple):
    """The derivatives of the sum K of the K_b of a group of blocks.

    Attributes:
      velocities: `dK/dp_b = G_b^-1 p_b: [batch..., d_b]`, for each block of the group.
      pulls: `dK/dq_j: [batch..., d_j]` for each block j of all; None where K does not depend on it.
    """

    velocities: list[tf.Tensor]
    pulls: list[tf.Tensor | None]


class Separation(abc.ABC):
    """A separable metric, block by block.

    Attributes:
      partition: of the coordinates into blocks.
    """

    partition: Partition

    @abc.abstractmethod
    def groups(self, positions: Sequence[tf.Tensor]) -> list[list[int]]:
        """The blocks' numbers in groups, in the order in which an integrator lets them move.

        No block of a group depends on another one of it, so their flows commute and can be made together. The last group is
        the dearest: a symmetric composition moves it once and the others twice. The answer depends on the structure
        of the metric alone, not on values.
        """

    @abc.abstractmethod
    def terms(self, group: Sequence[int], positions: Sequence[tf.Tensor], momenta: Sequence[tf.Tensor]) -> KineticTerms:
        """The derivatives of a group's kinetic energy.

        Args:
          group: the blocks' numbers.
          positions: of all blocks, `[batch..., d_b]`.
          momenta: likewise.
        """
