"""The implicit midpoint rule."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.fixed_point import Weigh
from tfp_rmhmc.integrator.implicit import ImplicitIntegrator, join, split
from tfp_rmhmc.integrator.status import Ledger

__all__ = ['ImplicitMidpoint']


class _Continued(NamedTuple):
    """A point and the slope by which the first guess of the next midpoint goes on, all `[batch..., D]`."""

    position: tf.Tensor
    momentum: tf.Tensor
    ledger: Ledger
    velocity: tf.Tensor
    force: tf.Tensor


class ImplicitMidpoint(ImplicitIntegrator):
    """One implicit equation a step, for position and momentum together.

    One step of size h from z = (q, p) to z', through the midpoint Z = (z + z') / 2:

        Z = z + h/2 (velocity, force)(Z)                 implicit in Z
        z' = 2 Z - z

    Second order, symmetric, symplectic (Hairer, Lubich and Wanner 2006, section VI.4). The first guess of a step continues
    the step before. Cost of a step: a force evaluation for each iteration, of which it takes 6 to 9.

    Args:
      tolerance: of the solves, in units of the metric; by default 1e-6 in float64 and 1e-4 in float32.
      max_iterations: of each solve. A chain that needs more is rejected and says so in its status.
      order: 2, or 4 by composition.
      reversibility_tolerance: if given, each trajectory is integrated back, at twice the cost, and rejected if it misses
        its start by more than this, in units of the metric there. Set it where solves often fail: see `ImplicitIntegrator`.
    """

    point_type = _Continued
    is_explicit = False

    def begin(
        self, local: LocalHamiltonian, position: tf.Tensor, momentum: tf.Tensor, step_size: tf.Tensor, ledger: Ledger
    ) -> _Continued:
        del step_size
        return _Continued(position, momentum, ledger, *local.slope(momentum))

    def step(self, hamiltonian: Hamiltonian, point: _Continued, step_size: tf.Tensor) -> _Continued:
        z, slope = join(point.position, point.momentum), join(point.velocity, point.force)
        half = 0.5 * (step_size if step_size.shape.rank == 0 else join(step_size, step_size))

        def midpoint_map(x: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
            q, p = split(x)
            local = hamiltonian.at(q)

            def weigh(residual: tf.Tensor) -> tf.Tensor:
                dq, dp = split(residual)
                return join(local.factor.multiply(dq), local.factor.solve(dp))

            return z + half * join(*local.slope(p)), weigh

        middle, ledger = self.solve(midpoint_map, z + half * slope, point.ledger, evaluations_per_iteration=1)
        moves = ledger.is_ok[..., tf.newaxis]
        displacement = middle.value - z
        safe_half = tf.where(tf.equal(half, 0.0), tf.ones_like(half), half)
        velocity, force = split(tf.where(moves, displacement / safe_half, slope))
        position, momentum = split(tf.where(moves, z + 2.0 * displacement, z))
        return _Continued(position, momentum, ledger, velocity, force)
