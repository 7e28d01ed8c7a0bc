"""The doubled phase space of the explicit integrators.

The state (q, p) is doubled to (q, p, q~, p~), and `H(q, p~) + H(q~, p)` splits into two parts whose flows are shears
(Pihajoki 2015; Tao 2016; the paper's eq. 8):

    A(h): p += h force(q, p~),  q~ += h velocity(q, p~)        B(h): p~ += h force(q~, p),  q += h velocity(q~, p)

We write them in the mean `m = (z + z~)/2` and the difference `d = z - z~` of the copies, a linear change of variables. A
and B then are one map that differs in a sign, a coupling that moves the difference alone leaves the mean untouched to
the last bit, and the proposal is the mean.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian

__all__ = ['A', 'B', 'Extended', 'Slope', 'kick', 'slope_at']

A, B = 1.0, -1.0


class Extended(NamedTuple):
    """A point of the doubled phase space, all `[batch..., D]`.

    Attributes:
      position: mean `(q + q~) / 2`.
      momentum: mean `(p + p~) / 2`.
      position_gap: `q - q~`.
      momentum_gap: `p - p~`.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    position_gap: tf.Tensor
    momentum_gap: tf.Tensor


class Slope(NamedTuple):
    """Velocity and force at one point, both `[batch..., D]`."""

    velocity: tf.Tensor
    force: tf.Tensor


def slope_at(hamiltonian: Hamiltonian, state: Extended, side: float) -> Slope:
    """The slope at `(q, p~)` for side A, at `(q~, p)` for side B. Cost: one force evaluation."""
    local = hamiltonian.at(state.position + 0.5 * side * state.position_gap)
    momentum = state.momentum - 0.5 * side * state.momentum_gap
    return Slope(local.velocity(momentum), local.force(momentum))


def kick(state: Extended, slope: Slope, step: tf.Tensor, side: float | tf.Tensor) -> Extended:
    """The shear A(step) or B(step) with a slope from that side: volume-preserving whatever the slope's accuracy."""
    d_position, d_momentum = step * slope.velocity, step * slope.force
    return Extended(
        position=state.position + 0.5 * d_position,
        momentum=state.momentum + 0.5 * d_momentum,
        position_gap=state.position_gap - side * d_position,
        momentum_gap=state.momentum_gap + side * d_momentum,
    )
