"""A constant metric: ordinary HMC with a mass matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_precision
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.metric.base import Evaluation, LocalMetric, Metric
from tfp_rmhmc.metric.factor import CholeskyFactor, DiagonalFactor, Factor, IdentityFactor
from tfp_rmhmc.metric.separation import KineticTerms, Partition, Separation
from tfp_rmhmc.state import StateLayout

__all__ = ['EuclideanMetric']


class _OneBlock(Separation):
    """All coordinates in one block of constant metric."""

    def __init__(self, metric: EuclideanMetric, dimension: int):
        self._metric = metric
        self.partition = Partition.contiguous([dimension])

    def groups(self, positions: Sequence[tf.Tensor]) -> list[list[int]]:
        del positions
        return [[0]]

    def terms(self, group: Sequence[int], positions: Sequence[tf.Tensor], momenta: Sequence[tf.Tensor]) -> KineticTerms:
        return KineticTerms([self._metric.velocity(momenta[0])], [None])


class EuclideanMetric(Metric):
    """`G(q) = M`, the same everywhere: identity, diagonal or dense.

    Args:
      mass: `None` for the identity, a positive scalar or vector `[D]` for a diagonal, a symmetric positive definite
        `[D, D]` matrix.
        The D coordinates are those of the flattened and concatenated state parts.
    """

    is_separable = True
    differentiates_target = False

    def __init__(self, mass: Any = None):
        self._mass = mass
        if mass is None:
            return
        check_precision('mass', mass)

    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        log_prob, gradient = density.apply(autodiff.value_and_gradient, position)
        return log_prob, gradient, self._mass_for(position)

    def factorize(self, parameters: tf.Tensor) -> Factor:
        return DiagonalFactor(parameters) if self._is_diagonal else CholeskyFactor(parameters)

    def at(self, density: LogDensity, position: tf.Tensor, known: Evaluation | None = None) -> LocalMetric:
        if known is None:
            known = Evaluation(*density.apply(autodiff.value_and_gradient, position))
        factor = IdentityFactor(position.dtype) if self._mass is None else self.factorize(self._mass_for(position))
        return LocalMetric(known.log_prob, known.gradient, factor, tf.zeros_like)

    def separation(self, layout: StateLayout) -> Separation:
        return _OneBlock(self, layout.dimension)

    @property
    def mass(self) -> Any:
        """As given."""
        return self._mass

    def velocity(self, momentum: tf.Tensor) -> tf.Tensor:
        """`M^-1 p: [batch..., D]`."""
        return momentum if self._mass is None else self.factorize(self._mass_for(momentum)).solve(momentum)

    def matrix(self, density: LogDensity, position: tf.Tensor) -> tf.Tensor:
        """M as `[batch..., D, D]`."""
        del density
        mass = self._mass_for(position)
        return tf.linalg.diag(mass) if self._is_diagonal else mass

    @property
    def _is_diagonal(self) -> bool:
        return self._mass is None or tf.convert_to_tensor(self._mass).shape.rank < 2

    def _mass_for(self, position: tf.Tensor) -> tf.Tensor:
        """The mass in the position's dtype and batch: `[batch..., D]` or `[batch..., D, D]`."""
        if self._mass is None:
            return tf.ones_like(position)
        mass = tf.cast(self._mass, position.dtype)
        dimension = position.shape[-1]
        if mass.shape.rank > 0 and mass.shape[-1] != dimension:
            raise ValueError(f'`mass` must fit the {dimension} coordinates of the state, got shape {mass.shape}.')
        if self._is_diagonal:
            return mass * tf.ones_like(position)
        return mass * tf.ones_like(position)[..., tf.newaxis]
