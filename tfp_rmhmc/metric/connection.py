"""How geodesics bend at a position: what a metric says about velocities, where the derivatives of G are at hand.

In velocities `v = G^-1 p` the dynamics of a metric are (Lan et al. 2015, eq. 10)

    dq/dt = v        dv/dt = -Gamma(v, v) - G^-1 dphi/dq,        phi = -l + 1/2 log det G

with the Christoffel symbols `Gamma(u, v)_k = sum_ij Gamma^k_ij u_i v_j`, symmetric in u and v. A kick keeps q and takes v
to the v' with

    v' = v - h Gamma(v, v') - h G^-1 dphi/dq

This is linear in v' and, but for the sign of h, symmetric in v and v'. So it is solved without iterations, and undone by
the kick of -h. Its determinant is `det(I - h Gamma(v', .)) / det(I + h Gamma(v, .))`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.linalg import solve_and_log_det
from tfp_rmhmc.metric.factor import DenseFactor

__all__ = ['Connection', 'DenseConnection', 'Kick', 'RankOneConnection']


class Kick(NamedTuple):
    """A velocity `[batch..., D]` after a kick, and the kick's log determinant `[batch...]`; NaN where there is none."""

    velocity: tf.Tensor
    log_determinant: tf.Tensor


class Connection(abc.ABC):
    """The Christoffel symbols of a metric at one position, and the force there."""

    @abc.abstractmethod
    def kick(self, velocity: tf.Tensor, step_size: tf.Tensor) -> Kick:
        """The velocity after a kick at the position.

        A chain one of whose two determinants is not positive has left the range in which a kick approximates the dynamics.
        It gets NaN. The kick back has the same two, so that to reject the chain is reversible.

        Args:
          velocity: `[batch..., D]`.
          step_size: a scalar, or a tensor that broadcasts with the velocity.
        """


class DenseConnection(Connection):
    """Of a metric with a dense matrix, from its derivatives `dG/dq_i`.

    With `S = diag(step_size)`, `C(v)_kj = sum_i v_i (s_i dG_kj/dq_i + s_j dG_ki/dq_j - s_k dG_ij/dq_k)` is twice G times
    the matrix `Gamma(v, .)`, scaled, and a kick is

        (G + C(v) / 2) v' = G v - S dphi/dq,    log determinant: log det (G - C(v') / 2) - log det (G + C(v) / 2)

    Cost of a kick: two eliminations, O(D^3). Memory: D^3 numbers a chain.

    Args:
      factor: G(q).
      derivatives: `dG/dq_i: [batch..., i, D, D]`.
      slope: `dphi/dq: [batch..., D]`.
    """

    def __init__(self, factor: DenseFactor, derivatives: tf.Tensor, slope: tf.Tensor):
        self._matrix = factor.matrix()
        self._derivatives = derivatives
        self._slope = slope

    @classmethod
    def of(
        cls,
        parameters_fn: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
        factorize: Callable[[tf.Tensor], DenseFactor],
        position: tf.Tensor,
    ) -> DenseConnection:
        """The connection at a position. Cost: one evaluation, and D vectorised passes through it.

        Args:
          parameters_fn: from a position to log density, gradient, and the matrix `[batch..., D, D]` that G is made of.
          factorize: from that matrix to G.
          position: `[batch..., D]`.
        """
        dimension, kept = position.shape[-1], []

        def flat_matrix(q: tf.Tensor) -> tf.Tensor:
            _, gradient, matrix = parameters_fn(q)
            kept.extend([gradient, matrix])
            flat = tf.reshape(matrix, tf.concat([tf.shape(q)[:-1], [dimension * dimension]], axis=0))
            return tf.ensure_shape(flat, q.shape[:-1] + [dimension * dimension])

        _, rows = autodiff.jacobian(flat_matrix, position)
        gradient, matrix = kept
        factor = factorize(matrix)
        batch = tf.shape(position)[:-1]
        columns = tf.reshape(tf.linalg.matrix_transpose(rows), tf.concat([batch, [dimension] * 3], axis=0))
        columns = tf.ensure_shape(columns, position.shape + [dimension, dimension])
        # d(1/2 log det G)/dq_i: the energy of no momentum.
        cotangent = factor.energy_cotangent(tf.zeros_like(position))
        pull = tf.reduce_sum(cotangent[..., tf.newaxis, :, :] * columns, axis=[-2, -1])
        return cls(factor, factor.tangent(columns), pull - gradient)

    def kick(self, velocity: tf.Tensor, step_size: tf.Tensor) -> Kick:
        scaled = step_size + tf.zeros_like(velocity)
        right = tf.linalg.matvec(self._matrix, velocity) - scaled * self._slope
        kicked, opening = solve_and_log_det(self._matrix + 0.5 * self._bend(velocity, scaled), right)
        _, closing = solve_and_log_det(self._matrix - 0.5 * self._bend(kicked, scaled), right)
        return Kick(kicked, closing - opening)

    def _bend(self, velocity: tf.Tensor, scaled: tf.Tensor) -> tf.Tensor:
        """`C(v): [batch..., D, D]`."""
        along = tf.einsum('...ikj,...i->...kj', self._derivatives, scaled * velocity)
        # Entry (k, j) is s_j d(G v)_k / dq_j.
        across = tf.linalg.matrix_transpose(tf.linalg.matvec(self._derivatives, velocity[..., tf.newaxis, :]))
        across = across * scaled[..., tf.newaxis, :]
        return along + across - tf.linalg.matrix_transpose(across)


class RankOneConnection(Connection):
    """Of `G = I + alpha^2 g g'` with the gradient `g = dl/dq` and the Hessian H of l, in closed form.

    With `n = 1 + alpha^2 g'g` and `c = alpha^2 / n`, `Gamma(u, v) = c g u'Hv` (Hartmann et al. 2022, eq. 9), so that

        a = g / n - c (H g - c (g'Hg) g)
        v' = x - h c g (x'Hv) / (1 + h c g'Hv),    x = v + h a
        determinant: (1 - h c g'Hv') / (1 + h c g'Hv)

    in which g'Hv' is a product with Hg. Cost of a kick: two Hessian-vector products, Hg and Hv, and O(D).

    Args:
      alpha: positive scalar, in the dtype of the gradient.
      gradient: `g: [batch..., D]`.
      hessian_product: from a vector u to `H u`, both `[batch..., D]`.
    """

    def __init__(self, alpha: tf.Tensor, gradient: tf.Tensor, hessian_product: Callable[[tf.Tensor], tf.Tensor]):
        self._gradient = gradient
        self._hessian_product = hessian_product
        self._norm = 1.0 + alpha * alpha * _dot(gradient, gradient)
        self._curvature = alpha * alpha / self._norm

    def kick(self, velocity: tf.Tensor, step_size: tf.Tensor) -> Kick:
        if step_size.shape.rank != 0 and step_size.shape[-1] != 1:
            raise ValueError(
                '`step_size` must be a scalar where the metric is a MongeMetric and the integrator Lagrangian: steps of '
                f'each coordinate have no closed form; got shape {step_size.shape}.'
            )
        g, c = self._gradient, self._curvature
        h_g, h_v = self._hessian_product(g), self._hessian_product(velocity)
        x = velocity + step_size * (g / self._norm - c * (h_g - c * _dot(g, h_g) * g))
        opening = step_size * c * _dot(h_g, velocity)
        kicked = x - step_size * c * g * (_dot(h_v, x) / (1.0 + opening))
        closing = -step_size * c * _dot(h_g, kicked)
        return Kick(kicked, (_log1p(closing) - _log1p(opening))[..., 0])


def _log1p(x: tf.Tensor) -> tf.Tensor:
    """`log(1 + x)`, NaN where there is none; of -1 too."""
    return tf.where(x > -1.0, tf.math.log1p(x), tf.constant(float('nan'), x.dtype))


def _dot(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(a * b, axis=-1, keepdims=True)
