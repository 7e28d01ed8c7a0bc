"""The Metric protocol: a description of G(q), to which the log density is passed where it is used."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc import autodiff
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.metric.connection import Connection, DenseConnection
from tfp_rmhmc.metric.factor import CholeskyFactor, DenseFactor, Factor
from tfp_rmhmc.metric.separation import Separation
from tfp_rmhmc.state import StateLayout
from tfp_rmhmc.xla import is_compiled_by_xla

__all__ = ['DenseMetric', 'Evaluation', 'LocalMetric', 'MatrixMetric', 'Metric']


class Evaluation(NamedTuple):
    """The log density `[batch...]` and its gradient `[batch..., D]` at a position."""

    log_prob: tf.Tensor
    gradient: tf.Tensor


@dataclasses.dataclass(frozen=True)
class LocalMetric:
    """A metric at one position, beside the log density there.

    Attributes:
      log_prob: `[batch...]`, the log density l(q).
      gradient: `[batch..., D]`, dl/dq.
      factor: G(q) in factored form.
      energy_gradient: maps a momentum `p: [batch..., D]` to `d/dq [1/2 log det G(q) + 1/2 p' G(q)^-1 p]`.
    """

    log_prob: tf.Tensor
    gradient: tf.Tensor
    factor: Factor
    energy_gradient: Callable[[tf.Tensor], tf.Tensor]


class Metric(abc.ABC):
    """A position-dependent positive definite matrix G(q), described without reference to a target.

    A metric holds no target. The kernel passes its current log density with each call of `at`, so a kernel that is rebuilt
    around another target (by `TransformedTransitionKernel` or `ReplicaExchangeMC`) has the right geometry. A metric must be
    a deterministic function of the position; randomness in it would break reversibility.

    A subclass says what G is made of (`parameters`, which is differentiated) and how to factor it (`factorize`, which is
    not). The gradient of the energy then is one reverse pass through the parameters. For a metric that is given by its
    matrix, subclass `DenseMetric` instead and write `matrix`.

    Attributes:
      follows_curvature: whether a unit of length is about a local standard deviation of the target, in every direction.
        Only speed depends on it: with such a metric `MetricCoupling` holds its copies together more tightly.
      is_separable: whether `separation` gives the metric in blocks that depend on each other only.
      has_connection: whether `connection` gives its Christoffel symbols.
      differentiates_target: whether it takes more derivatives of the target than the gradient.
    """

    follows_curvature = False
    differentiates_target = True
    is_separable = False
    has_connection = False

    @abc.abstractmethod
    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Log density `[batch...]`, its gradient `[batch..., D]`, and the tensor that G is a function of."""

    @abc.abstractmethod
    def factorize(self, parameters: tf.Tensor) -> Factor:
        """G in factored form."""

    def at(self, density: LogDensity, position: tf.Tensor, known: Evaluation | None = None) -> LocalMetric:
        """The metric of `density` at `position: [batch..., D]`. Cost: one `parameters`, one factorisation.

        Args:
          density: the log density.
          position: `[batch..., D]`.
          known: log density and gradient there, if they are known. A metric that is not made of these saves an evaluation;
            others make their own, through which they differentiate.
        """
        del known
        # Persistent: the implicit integrators ask for the energy gradient of many momenta at one position.
        with tf.GradientTape(persistent=True) as tape, self._explaining():
            tape.watch(position)
            log_prob, gradient, parameters = self.parameters(density, position)
        return self._local(tape, position, Evaluation(log_prob, gradient), parameters)

    def separation(self, layout: StateLayout) -> Separation:
        """The metric in blocks that depend on each other only, for a state of this layout."""
        del layout
        raise TypeError(f'The metric must be separable, got {self!r}.')

    def connection(self, density: LogDensity, position: tf.Tensor) -> Connection:
        """The Christoffel symbols of the metric at `position: [batch..., D]`."""
        del density, position
        raise TypeError(f'The metric must have a connection, got {self!r}.')

    def _local(self, tape: tf.GradientTape, position: tf.Tensor, known: Evaluation, parameters: Any) -> LocalMetric:
        """The metric whose parameters, a tensor or a list, were recorded by a persistent tape."""
        factor = self.factorize(parameters)

        def energy_gradient(momentum: tf.Tensor) -> tf.Tensor:
            with self._explaining():
                gradient = tape.gradient(
                    parameters,
                    position,
                    output_gradients=factor.energy_cotangent(momentum),
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
            gradient.set_shape(position.shape)  # which broadcasting inside a metric may have lost
            return gradient

        return LocalMetric(known.log_prob, known.gradient, factor, energy_gradient)

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turns TensorFlow's error of an operation without a derivative into a sentence that says what to do."""
        try:
            yield
        except LookupError as error:
            if type(error) is not LookupError:  # such as a KeyError of the target's own
                raise
            where, instead = (
                ('under XLA', 'a plain `tf.function`, or a metric')
                if is_compiled_by_xla()
                else ('for this target', 'a metric')
            )
            raise NotImplementedError(
                f'{self!r} differentiates the target more than once, which TensorFlow cannot do {where} '
                f'({str(error).strip().splitlines()[0]}); take {instead} that needs first derivatives only: '
                '`SeparableMetric`, `FisherMetric` or `EuclideanMetric`.'
            ) from error

    def __repr__(self) -> str:
        given = {name.lstrip('_'): value for name, value in vars(self).items() if value is not None}
        return f'{type(self).__name__}({", ".join(f"{name}={value!r}" for name, value in given.items())})'


class MatrixMetric(Metric):
    """A metric whose parameters are a matrix `[batch..., D, D]`, and so is its factor."""

    has_connection = True

    @abc.abstractmethod
    def factorize(self, parameters: tf.Tensor) -> DenseFactor:
        """G in factored form."""

    def connection(self, density: LogDensity, position: tf.Tensor) -> Connection:
        return DenseConnection.of(lambda q: self.parameters(density, q), self.factorize, position)


class DenseMetric(MatrixMetric):
    """A metric given by its matrix, positive definite wherever the chain goes; factored by Cholesky.

    Where the matrix is not positive definite the factor is NaN and the kernel rejects that chain's proposal. Of a matrix
    that is not symmetric the symmetric part `(A + A') / 2` is the metric. A subclass writes `matrix`. Cost of an
    evaluation: O(D^3) and whatever `matrix` costs.
    """

    @abc.abstractmethod
    def matrix(self, density: LogDensity, position: tf.Tensor) -> tf.Tensor:
        """G(q) as `[batch..., D, D]`, differentiable in `position`."""

    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        log_prob, gradient = density.apply(autodiff.value_and_gradient, position)
        return log_prob, gradient, self.matrix(density, position)

    def factorize(self, parameters: tf.Tensor) -> DenseFactor:
        return CholeskyFactor(parameters)
