"""Metrics made of the Hessian of the log density."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_choice, check_positive
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.linalg import STRUCTURES
from tfp_rmhmc.metric.base import DenseMetric, MatrixMetric
from tfp_rmhmc.metric.factor import DenseFactor, SoftAbsFactor

__all__ = ['HessianMetric', 'SoftAbsMetric']


class HessianMetric(DenseMetric):
    """`G(q) = -d2l/dq2`, for a log-concave target.

    Where the Hessian is not positive definite the proposal is rejected; use `SoftAbsMetric` for such targets.
    Cost of an evaluation: one Hessian, one Cholesky, and for the force one reverse pass through the Hessian.
    """

    follows_curvature = True

    def matrix(self, density: LogDensity, position: tf.Tensor) -> tf.Tensor:
        return self.parameters(density, position)[2]

    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        log_prob, gradient, second = density.apply(autodiff.hessian, position)
        return log_prob, gradient, -second


class SoftAbsMetric(MatrixMetric):
    """`G(q) = Q f(lam) Q'` of the Hessian `Q lam Q'` of `-l`, with `f(lam) = lam coth(alpha lam)`.

    Positive definite for every smooth target. Cost of an evaluation: one Hessian, one eigendecomposition, and for the
    force one reverse pass through the Hessian. References: Betancourt 2013, "A general metric for Riemannian manifold
    Hamiltonian Monte Carlo"; Cobb et al. 2019, appendix C.

    Args:
      alpha: positive scalar. Eigenvalues of size below `1 / alpha` are lifted to it; the limit of large `alpha` is the
        absolute value. The default is the value of both references.
      structure: what you know of the Hessian. `'arrowhead'`: one parameter scales all others alike, as in a funnel. XLA
        programs then decompose it in closed form, five times faster. Where it turns out not to be an arrowhead, they
        use the usual Jacobi sweeps. `None`, the default: nothing.
    """

    follows_curvature = True

    def __init__(self, alpha: Any = 1e6, structure: str | None = None):
        check_positive('alpha', alpha)
        if structure is not None:
            check_choice('structure', structure, [name for name in STRUCTURES if name is not None], also='None or ')
        self._alpha = alpha
        self._structure = structure

    @property
    def structure(self) -> str | None:
        """What is known of the Hessian."""
        return self._structure

    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        log_prob, gradient, second = density.apply(autodiff.hessian, position)
        return log_prob, gradient, -second

    def factorize(self, parameters: tf.Tensor) -> DenseFactor:
        return SoftAbsFactor(parameters, self._alpha, self._structure)
