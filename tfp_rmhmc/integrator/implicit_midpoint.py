"""The implicit midpoint rule."""

from __future__ import annotations

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian
from tfp_rmhmc.integrator.base import Point, is_shared
from tfp_rmhmc.integrator.fixed_point import Weigh
from tfp_rmhmc.integrator.implicit import ImplicitIntegrator, join, split

__all__ = ['ImplicitMidpoint']


class ImplicitMidpoint(ImplicitIntegrator):
    """One implicit equation a step, for position and momentum together.

    One step of size h from z = (q, p) to z', through the midpoint Z = (z + z') / 2:

        Z = z + h/2 (velocity, force)(Z)                 implicit in Z
        z' = 2 Z - z

    Second order, symmetric, symplectic (Hairer, Lubich and Wanner 2006, section VI.4). Cost of a step: a force evaluation
    for each iteration, of which it takes 7 to 10, and the same on the way back.

    Args:
      tolerance, max_iterations, order, reversibility_tolerance: as in `ImplicitIntegrator`.
    """

    is_explicit = False

    def attempt(self, hamiltonian: Hamiltonian, point: Point, step_size: tf.Tensor) -> Point:
        z = join(point.position, point.momentum)
        half = 0.5 * (step_size if is_shared(step_size) else join(step_size, step_size))

        def midpoint_map(x: tf.Tensor) -> tuple[tf.Tensor, Weigh]:
            q, p = split(x)
            local = hamiltonian.at(q)

            def weigh(residual: tf.Tensor) -> tf.Tensor:
                dq, dp = split(residual)
                return join(local.factor.multiply(dq), local.factor.solve(dp))

            return z + half * join(*local.slope(p)), weigh

        middle, ledger = self.solve(midpoint_map, z, point.ledger, evaluations_per_iteration=1)
        position, momentum = split(tf.where(ledger.is_ok[..., tf.newaxis], 2.0 * middle.value - z, z))
        return Point(position, momentum, ledger)
