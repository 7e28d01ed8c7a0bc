"""The doubled phase space of the explicit integrators.

The state (q, p) is doubled to (q, p, q~, p~). Then `H(q, p~) + H(q~, p)` splits into two parts whose flows are shears
(Pihajoki 2015; Tao 2016; the paper's eq. 8):

    A(h): p += h force(q, p~),  q~ += h velocity(q, p~)        B(h): p~ += h force(q~, p),  q += h velocity(q~, p)

Written in the mean `m = (z + z~)/2` of the copies and their gap `d = z - z~`, which is a linear change of variables, A and
B are one map that differs in a sign. A coupling that turns the gap leaves the mean untouched to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian, Slope
from tfp_rmhmc.integrator.status import Ledger

__all__ = ['Doubled', 'Side', 'kick', 'look']

Side: TypeAlias = float | tf.Tensor  # 1 for the shear A, -1 for the shear B


class Doubled(NamedTuple):
    """A point of the doubled phase space. Vectors are `[batch..., D]`.

    Attributes:
      position, momentum: of the point that carries the target: the copies' mean, or for `MetricCoupling` the base.
      ledger: of the chains.
      position_gap, momentum_gap: `q - q~` and `p - p~`, or for `MetricCoupling` the companion less the base.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    ledger: Ledger
    position_gap: tf.Tensor
    momentum_gap: tf.Tensor


def look(hamiltonian: Hamiltonian, point: Doubled, side: Side) -> tuple[LocalHamiltonian, Slope]:
    """The Hamiltonian and the slope at `(q, p~)` for the shear A, at `(q~, p)` for B. Cost: one force evaluation."""
    local = hamiltonian.at(point.position + 0.5 * side * point.position_gap)
    return local, local.slope(point.momentum - 0.5 * side * point.momentum_gap)


def kick(point: Doubled, slope: Slope, step: tf.Tensor, side: Side) -> Doubled:
    """The shear A(step) or B(step) with a slope from that side. It preserves volume however accurate the slope is."""
    d_position, d_momentum = step * slope.velocity, step * slope.force
    return point._replace(
        position=point.position + 0.5 * d_position,
        momentum=point.momentum + 0.5 * d_momentum,
        position_gap=point.position_gap - side * d_position,
        momentum_gap=point.momentum_gap + side * d_momentum,
    )
