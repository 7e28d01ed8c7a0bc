"""Factored positive definite matrices, and the derivative of the energy with respect to what they were made of.

Each factor offers what the Hamiltonian needs: `solve`, `multiply`, `sqrt_multiply` and `half_log_det`; and
`energy_cotangent(p)`, the derivative of `E = 1/2 log det G + 1/2 p' G^-1 p` with respect to the factor's parameters, in
closed form. So no factorisation is ever differentiated. (TensorFlow's gradient of `eigh` is finite and wrong at repeated
eigenvalues.)

Vectors are `[batch..., D]`. A matrix that cannot be factored, because it is not finite or not positive definite, gives NaN
in its own chain and leaves the others alone; nothing raises. Whatever does not depend on a momentum is computed at
construction, so that a loop over momenta at one position does not repeat it. A compiled graph drops what is not used.
"""

from __future__ import annotations

import abc

import tensorflow as tf

from tfp_rmhmc.linalg import cholesky_and_inverse, eigh, softabs

__all__ = [
    'CholeskyFactor',
    'DenseFactor',
    'DiagonalFactor',
    'Factor',
    'IdentityFactor',
    'RankOneFactor',
    'SoftAbsFactor',
]


class Factor(abc.ABC):
    """A positive definite matrix G, factored."""

    half_log_det: tf.Tensor  # [batch...]

    @abc.abstractmethod
    def solve(self, covector: tf.Tensor) -> tf.Tensor:
        """G^-1 p."""

    @abc.abstractmethod
    def multiply(self, vector: tf.Tensor) -> tf.Tensor:
        """G v."""

    @abc.abstractmethod
    def sqrt_multiply(self, noise: tf.Tensor) -> tf.Tensor:
        """S z with S S' = G and S a function of G: standard normal noise becomes a momentum with covariance G."""

    @abc.abstractmethod
    def energy_cotangent(self, covector: tf.Tensor) -> tf.Tensor:
        """d(1/2 log det G + 1/2 p' G^-1 p) / d parameters, shaped like the parameters."""

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        """The diagonal of G, shaped like a vector `[batch..., D]`; by default from D products."""

        def entry(unit: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(unit * self.multiply(unit + tf.zeros_like(like)), axis=-1)

        entries = tf.map_fn(entry, tf.eye(like.shape[-1], dtype=like.dtype))
        found = tf.transpose(entries, [*range(1, like.shape.rank), 0])
        return tf.ensure_shape(found, like.shape)


class DenseFactor(Factor):
    """A matrix that is a function of a matrix `[batch..., D, D]`, its parameters."""

    @abc.abstractmethod
    def matrix(self) -> tf.Tensor:
        """G as `[batch..., D, D]`."""

    @abc.abstractmethod
    def tangent(self, d_parameters: tf.Tensor) -> tf.Tensor:
        """The changes of G, `[batch..., n, D, D]`, by n small changes of the parameters, as many."""


class CholeskyFactor(DenseFactor):
    """`G = L L'` given as a matrix A, `[batch..., D, D]`, with `G = (A + A') / 2`. One Cholesky decomposition, O(D^3).

    A decomposition reads one triangle of a matrix, a product reads both. So G is made symmetric here, once, and every verb
    is of the same G, whatever A is. The derivative with respect to A is that with respect to G, which is symmetric.
    """

    def __init__(self, matrix: tf.Tensor):
        self._matrix = 0.5 * (matrix + tf.linalg.matrix_transpose(matrix))
        self._lower, self._inverse = cholesky_and_inverse(self._matrix)
        self.half_log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(self._lower)), axis=-1)

    def matrix(self) -> tf.Tensor:
        return self._matrix

    def tangent(self, d_parameters: tf.Tensor) -> tf.Tensor:
        return 0.5 * (d_parameters + tf.linalg.matrix_transpose(d_parameters))

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        return tf.linalg.diag_part(self._matrix) + tf.zeros_like(like)

    def solve(self, covector: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(self._inverse, covector)

    def multiply(self, vector: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(self._matrix, vector)

    def sqrt_multiply(self, noise: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(self._lower, noise)

    def energy_cotangent(self, covector: tf.Tensor) -> tf.Tensor:
        """`M = 1/2 (G^-1 - v v')` with `v = G^-1 p`."""
        velocity = self.solve(covector)
        return 0.5 * (self._inverse - _outer(velocity, velocity))


class SoftAbsFactor(DenseFactor):
    """`G = Q f(diag(lam)) Q'` of a symmetric matrix `A = Q diag(lam) Q'`. One eigendecomposition, O(D^3).

    `f(lam) = lam coth(alpha lam)`, a smooth absolute value bounded below by 1 / alpha (Betancourt 2013, eq. 16; the
    paper's eq. 15).

    Args:
      matrix: `A: [batch..., D, D]`, symmetric, of any signature.
      alpha: positive scalar, the inverse width of the smoothing.
      structure: what is known of A, see `linalg.eigh`.
    """

    def __init__(self, matrix: tf.Tensor, alpha: tf.Tensor, structure: str | None = None):
        # LAPACK raises on non-finite input and takes the whole batch with it.
        is_finite = tf.reduce_all(tf.math.is_finite(matrix), axis=[-2, -1], keepdims=True)
        self._identity = tf.eye(matrix.shape[-1], dtype=matrix.dtype)
        eigenvalues, self._eigenvectors = eigh(tf.where(is_finite, matrix, self._identity), structure)
        nan = tf.constant(float('nan'), matrix.dtype)
        lam = tf.where(is_finite[..., 0], eigenvalues, nan)
        self._f, self._derivative, self._differences = softabs(lam, tf.convert_to_tensor(alpha, matrix.dtype))
        self.half_log_det = 0.5 * tf.reduce_sum(tf.math.log(self._f), axis=-1)

    def matrix(self) -> tf.Tensor:
        return tf.matmul(self._eigenvectors * self._f[..., tf.newaxis, :], self._eigenvectors, transpose_b=True)

    def tangent(self, d_parameters: tf.Tensor) -> tf.Tensor:
        """`Q [(Q' dA Q) o J] Q'` with J the divided differences of f."""
        basis = self._eigenvectors[..., tf.newaxis, :, :]
        inner = tf.matmul(tf.matmul(basis, d_parameters, transpose_a=True), basis)
        return tf.matmul(tf.matmul(basis, inner * self._differences[..., tf.newaxis, :, :]), basis, transpose_b=True)

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(tf.square(self._eigenvectors), self._f) + tf.zeros_like(like)

    def solve(self, covector: tf.Tensor) -> tf.Tensor:
        return self._from_eigenbasis(self._to_eigenbasis(covector) / self._f)

    def multiply(self, vector: tf.Tensor) -> tf.Tensor:
        return self._from_eigenbasis(self._to_eigenbasis(vector) * self._f)

    def sqrt_multiply(self, noise: tf.Tensor) -> tf.Tensor:
        # The symmetric root: it does not depend on the signs and order that an eigensolver chose.
        return self._from_eigenbasis(tf.sqrt(self._f) * self._to_eigenbasis(noise))

    def energy_cotangent(self, covector: tf.Tensor) -> tf.Tensor:
        """`M = Q [diag(f' / 2f) - 1/2 (u u') o J] Q'` with `u = Q'p / f` and J the divided differences of f."""
        u = self._to_eigenbasis(covector) / self._f
        # Not tf.linalg.diag: XLA wants some of its inputs at compile time, and would compile anew for every position.
        diagonal = self._identity * (self._derivative / (2.0 * self._f))[..., tf.newaxis]
        inner = diagonal - 0.5 * _outer(u, u) * self._differences
        return tf.matmul(tf.matmul(self._eigenvectors, inner), self._eigenvectors, transpose_b=True)

    def _to_eigenbasis(self, x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(self._eigenvectors, x, transpose_a=True)

    def _from_eigenbasis(self, x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(self._eigenvectors, x)


class DiagonalFactor(Factor):
    """`G = diag(d)` with `d: [batch..., D]` positive, else NaN. O(D)."""

    def __init__(self, diagonal: tf.Tensor):
        nan = tf.constant(float('nan'), diagonal.dtype)
        self._diagonal = tf.where(diagonal > 0.0, diagonal, nan)
        self.half_log_det = 0.5 * tf.reduce_sum(tf.math.log(self._diagonal), axis=-1)

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        return self._diagonal + tf.zeros_like(like)

    def solve(self, covector: tf.Tensor) -> tf.Tensor:
        return covector / self._diagonal

    def multiply(self, vector: tf.Tensor) -> tf.Tensor:
        return vector * self._diagonal

    def sqrt_multiply(self, noise: tf.Tensor) -> tf.Tensor:
        return noise * tf.sqrt(self._diagonal)

    def energy_cotangent(self, covector: tf.Tensor) -> tf.Tensor:
        """`1 / (2 d) - v^2 / 2` with `v = p / d`."""
        return 0.5 / self._diagonal - 0.5 * tf.square(self.solve(covector))


class IdentityFactor(Factor):
    """`G = I`, of no parameters."""

    def __init__(self, dtype: tf.DType):
        self.half_log_det = tf.zeros([], dtype)

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(like)

    def solve(self, covector: tf.Tensor) -> tf.Tensor:
        return covector

    def multiply(self, vector: tf.Tensor) -> tf.Tensor:
        return vector

    def sqrt_multiply(self, noise: tf.Tensor) -> tf.Tensor:
        return noise

    def energy_cotangent(self, covector: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(covector)


class RankOneFactor(Factor):
    """`G = I + w w'` given by `w: [batch..., D]`. O(D).

    With `n = 1 + w'w`: `G^-1 = I - w w' / n`, `det G = n`, and `S = I + w w' / (1 + sqrt(n))` squares to G.
    """

    def __init__(self, vector: tf.Tensor):
        self._vector = vector
        self._determinant = 1.0 + _dot(vector, vector)
        self.half_log_det = 0.5 * tf.math.log(self._determinant)[..., 0]

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        return 1.0 + tf.square(self._vector) + tf.zeros_like(like)

    def solve(self, covector: tf.Tensor) -> tf.Tensor:
        return covector - self._vector * (_dot(self._vector, covector) / self._determinant)

    def multiply(self, vector: tf.Tensor) -> tf.Tensor:
        return vector + self._vector * _dot(self._vector, vector)

    def sqrt_multiply(self, noise: tf.Tensor) -> tf.Tensor:
        return noise + self._vector * (_dot(self._vector, noise) / (1.0 + tf.sqrt(self._determinant)))

    def energy_cotangent(self, covector: tf.Tensor) -> tf.Tensor:
        """`w / n - c (p - c w)` with `c = w'p / n`."""
        c = _dot(self._vector, covector) / self._determinant
        return self._vector / self._determinant - c * (covector - c * self._vector)


def _dot(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(a * b, axis=-1, keepdims=True)


def _outer(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return a[..., :, tf.newaxis] * b[..., tf.newaxis, :]
