"""Split HMC: a Gaussian approximation of the target is followed exactly, and kicks make up for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_order, check_precision, shown, static_real
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.base import Integrator, Leg, composition, is_shared
from tfp_rmhmc.integrator.status import Ledger
from tfp_rmhmc.linalg import captured
from tfp_rmhmc.metric import EuclideanMetric, Evaluation, Metric
from tfp_rmhmc.state import is_list_like, state_parts

__all__ = ['GaussianSplit']

# How far from the mode an optimiser may end, in standard deviations: any approximation is exact, a near one is fast.
_FAR_FROM_MODE = 0.1


class _Evaluated(NamedTuple):
    """A point, with the log density `[batch...]` and its gradient `[batch..., D]` there.

    Attributes:
      position, momentum, ledger: as in `Point`; while it travels, the momentum is z.
      log_prob, gradient: of the log density; while it travels, there is no value.
      mode_position: y, while it travels.
      rest: the force `-dU_1/dq` on z, while it travels.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    ledger: Ledger
    log_prob: tf.Tensor
    gradient: tf.Tensor
    mode_position: Any = ()
    rest: Any = ()


class GaussianSplit(Integrator):
    """Splits `H = H_0 + U_1` into a Gaussian's Hamiltonian, whose flow is a rotation, and the rest of the potential.

    With the approximation N(mu, P^-1) of the target and the mass M of an `EuclideanMetric`,

        H_0 = 1/2 (q - mu)' P (q - mu) + 1/2 p' M^-1 p        U_1 = -l - 1/2 (q - mu)' P (q - mu)
        step:  p -= h/2 dU_1/dq,   the flow of H_0 over h,   p -= h/2 dU_1/dq

    In the basis W with `W'MW = I` and `W'PW = diag(w^2)`, where `q = mu + W y` and `p = M W z`, the flow turns each (y, z)
    at its frequency w:

        y' = cos(w h) y + sin(w h) z / w        z' = cos(w h) z - w sin(w h) y

    Second order, symmetric, symplectic in the original phase space. Exact for the approximation itself at any step size, so
    steps may be as long as the target is Gaussian: errors are of the rest alone. No approximation is wrong, since the
    accept step knows the target; a poor one is slow. Cost of a step: one gradient of the log density and two products with
    W, O(D^2), or O(D) where precision and mass are diagonal. Reference: Shahbaba, Lan, Johnson and Neal 2014, "Split
    Hamiltonian Monte Carlo", section 3.1.

    The natural mass is the approximation's precision, `metric=split.metric`: all directions then turn at one frequency,
    `w = 1`, and a trajectory of length pi/2 forgets where it began in all of them at once. With another mass the slowest
    direction needs the longest trajectory, while the fastest goes round many times. Steps near a multiple of half a period,
    `w h = pi`, resonate with the kicks: keep `h` below about 1.5 with the natural mass.

        split = tfp_rmhmc.GaussianSplit.laplace(target_log_prob_fn, start)
        kernel = tfp_rmhmc.RiemannianHMC(target_log_prob_fn, 0.5, 3, metric=split.metric, integrator=split)

    Args:
      mean: of the approximation: a scalar, `[D]`, or a list of state parts. The D coordinates are those of the flattened
        and concatenated state parts.
      precision: its inverse covariance: a positive scalar, `[D]` for a diagonal, or positive definite `[D, D]`.
      covariance: in place of `precision`; one of the two must be given.
      order: 2, or 4 by composition, at three gradients a step.
    """

    point_type = _Evaluated
    is_explicit = True
    ends_are_cheap = True
    is_infallible = True

    def __init__(self, mean: Any, precision: Any = None, covariance: Any = None, order: int = 2):
        check_order(order)
        if (precision is None) == (covariance is None):
            raise ValueError(
                f'Either `precision` or `covariance` must be given, got {shown(precision)} and {shown(covariance)}.'
            )
        self.order = order
        self._mean = _flat(mean)
        given = _spread('precision', precision) if covariance is None else _spread('covariance', covariance)
        self._precision = given if covariance is None else (1.0 / given if given.ndim < 2 else _symmetric_inverse(given))
        self._modes: dict[Any, _Modes] = {}

    @classmethod
    def laplace(
        cls, target_log_prob_fn: Callable[..., tf.Tensor], start: Any, order: int = 2, max_iterations: int = 200
    ) -> GaussianSplit:
        """The approximation at a mode: its mean is the mode, its precision the Hessian of `-l` there.

        Runs `tfp.optimizer.lbfgs_minimize`, eagerly. Cost: some tens of gradients and one Hessian.

        Args:
          target_log_prob_fn: takes the state parts.
          start: the state of one chain, without batch dimensions, from which the mode is looked for.
          order: as in the constructor.
          max_iterations: of the optimiser.
        """
        if not tf.executing_eagerly():
            raise RuntimeError('`GaussianSplit.laplace` must be called eagerly, before a function is traced.')
        parts = state_parts(start, 'start')
        density = LogDensity.at_state(target_log_prob_fn, parts)
        if density.layout.batch_rank:
            raise ValueError(f'`start` must be the state of one chain, got a batch of rank {density.layout.batch_rank}.')

        @tf.function(autograph=False)
        def descent(q: tf.Tensor) -> list[tf.Tensor]:
            return [-x for x in density.apply(autodiff.value_and_gradient, q)]

        found = tfp.optimizer.lbfgs_minimize(descent, density.layout.flatten(parts), max_iterations=max_iterations)
        _, gradient, second = (x.numpy().astype(np.float64) for x in density.apply(autodiff.hessian, found.position))
        precision = -second
        is_mode = bool(np.all(np.isfinite(precision)) and np.all(np.linalg.eigvalsh(precision) > 0.0))
        if not is_mode or np.sqrt(gradient @ np.linalg.solve(precision, gradient)) > _FAR_FROM_MODE:
            raise ValueError(
                f'`start` must lead to a mode of the target with a positive definite Hessian of -l in {max_iterations} '
                f'iterations, got to {found.position.numpy()!r}.'
            )
        return cls(found.position.numpy(), precision, order=order)

    @classmethod
    def from_draws(cls, draws: Any, sample_ndims: int = 2, order: int = 2) -> GaussianSplit:
        """The approximation with the mean and covariance of draws, such as those of a warm-up.

        Args:
          draws: a tensor, or a list with one per state part, each `[sample..., event...]`.
          sample_ndims: how many leading dimensions count draws: 2 for `[num_draws, num_chains, event...]`.
          order: as in the constructor.
        """
        parts = [np.asarray(part, np.float64) for part in (draws if is_list_like(draws) else [draws])]
        num = int(np.prod(parts[0].shape[:sample_ndims]))
        flat = np.concatenate([part.reshape(num, -1) for part in parts], axis=1)
        dimension = flat.shape[1]
        if num <= dimension:
            raise ValueError(f'`draws` must be more than the {dimension} dimensions of the state, got {num}.')
        return cls(np.mean(flat, axis=0), covariance=np.cov(flat, rowvar=False).reshape(dimension, dimension), order=order)

    @property
    def mean(self) -> np.ndarray:
        """Of the approximation: a scalar or `[D]`."""
        return self._mean

    @property
    def precision(self) -> np.ndarray:
        """The inverse covariance of the approximation: a scalar, `[D]` or `[D, D]`."""
        return self._precision

    @property
    def metric(self) -> EuclideanMetric:
        """The natural metric: a mass that is the approximation's precision, under which all directions have one period."""
        return EuclideanMetric(self._precision)

    def check_metric(self, metric: Metric) -> None:
        if not isinstance(metric, EuclideanMetric):
            raise TypeError(
                f'`metric` must be an EuclideanMetric for GaussianSplit, such as `split.metric`; got {metric!r}.'
            )

    def blank(
        self, hamiltonian: Hamiltonian, position: tf.Tensor, step_size: tf.Tensor, known: Evaluation | None
    ) -> _Evaluated:
        del step_size
        log_prob, gradient = hamiltonian.evaluate(position) if known is None else known
        return _Evaluated(position, tf.zeros_like(position), Ledger.new(position), log_prob, gradient)

    def known(self, point: _Evaluated) -> Evaluation:
        return Evaluation(point.log_prob, point.gradient)

    def begin(
        self, local: LocalHamiltonian, position: tf.Tensor, momentum: tf.Tensor, step_size: tf.Tensor, ledger: Ledger
    ) -> _Evaluated:
        del step_size
        return _Evaluated(position, momentum, ledger, local.log_prob, local.gradient)

    def step(self, hamiltonian: Hamiltonian, point: _Evaluated, step_size: tf.Tensor) -> _Evaluated:
        entered = self.enter(hamiltonian, point, step_size)
        return self.leave(hamiltonian, self.advance(hamiltonian, entered, step_size), step_size)

    def enter(self, hamiltonian: Hamiltonian, point: _Evaluated, step_size: tf.Tensor) -> _Evaluated:
        """With y and z, the force of the rest, and no log density, which is needed at the end only."""
        modes = self._modes_of(hamiltonian, point.position)
        _check_shared(modes, step_size)
        y = modes.position(point.position)
        z, rest = modes.pull(point.momentum), modes.rest(y, point.gradient)
        return point._replace(momentum=z, log_prob=(), mode_position=y, rest=rest)

    def advance(self, hamiltonian: Hamiltonian, point: _Evaluated, step_size: tf.Tensor) -> _Evaluated:
        modes = self._modes_of(hamiltonian, point.position)
        half = 0.5 * step_size
        z = point.momentum + half * point.rest
        d_y, d_z = modes.turn(point.mode_position, z, step_size)
        # Of the displacement, so that a step of zero moves nothing.
        position, y = point.position + modes.push(d_y), point.mode_position + d_y
        gradient = hamiltonian.evaluate(position).gradient
        rest = modes.rest(y, gradient)
        return point._replace(
            position=position, momentum=z + d_z + half * rest, gradient=gradient, mode_position=y, rest=rest
        )

    def leave(self, hamiltonian: Hamiltonian, point: _Evaluated, step_size: tf.Tensor) -> _Evaluated:
        del step_size
        momentum = self._modes_of(hamiltonian, point.position).momentum(point.momentum)
        log_prob = hamiltonian.density(point.position)
        return point._replace(momentum=momentum, log_prob=log_prob, mode_position=(), rest=())

    def travel(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Any, leg: Leg) -> Any:
        """Nothing can fail on the way, so that the gradients of all steps are counted at once, and not by `step`."""
        end = super().travel(hamiltonian, local, point, leg)
        gradients = end.ledger.metric_evaluations + leg.num_steps * len(composition(self.order))
        return end._replace(ledger=end.ledger._replace(metric_evaluations=gradients))

    def _modes_of(self, hamiltonian: Hamiltonian, position: tf.Tensor) -> _Modes:
        metric, dimension = hamiltonian.metric, position.shape[-1]
        if not isinstance(metric, EuclideanMetric):  # a kernel has checked it
            raise TypeError(f'`metric` must be an EuclideanMetric for GaussianSplit, got {metric!r}.')
        if (metric, dimension) not in self._modes:
            self._modes[metric, dimension] = _Modes(self._mean, self._precision, metric, dimension)
        return self._modes[metric, dimension]

    def __repr__(self) -> str:
        shape = self._precision.shape
        return f'{type(self).__name__}(order={self.order}, precision of shape {shape})'


class _Modes:
    """The directions in which a Gaussian's flow under a mass decouples. See `GaussianSplit` for y, z and W.

    Diagonal precisions and masses have W diagonal, `[D]`.
    """

    def __init__(self, mean: np.ndarray, precision: np.ndarray, metric: EuclideanMetric, dimension: int):
        for name, value in (('mean', mean), ('precision', precision)):
            if value.ndim and value.shape[-1] != dimension:
                raise ValueError(f'`{name}` must fit the {dimension} coordinates of the state, got shape {value.shape}.')
        mass = tf.get_static_value(tf.convert_to_tensor(1.0 if metric.mass is None else metric.mass))
        if mass is None:
            raise TypeError(f'The mass of `metric` must be known while tracing for GaussianSplit, got {metric!r}.')
        self._mean = mean + np.zeros(dimension)
        mass = np.asarray(mass, np.float64)
        self.is_diagonal = mass.ndim < 2 and precision.ndim < 2
        if self.is_diagonal:
            self._basis = 1.0 / np.sqrt(mass + np.zeros(dimension))
            self._inverse = 1.0 / self._basis
            self._frequency = np.sqrt(precision) * self._basis
            return
        lower = np.linalg.cholesky(mass if mass.ndim == 2 else np.diag(mass + np.zeros(dimension)))
        dense = precision if precision.ndim == 2 else np.diag(precision + np.zeros(dimension))
        half = np.linalg.solve(lower, dense)
        squares, vectors = np.linalg.eigh(np.linalg.solve(lower, half.T))
        self._basis = np.linalg.solve(lower.T, vectors)  # W
        self._inverse = lower @ vectors  # W^-T = M W
        self._frequency = np.sqrt(squares)

    def position(self, q: tf.Tensor) -> tf.Tensor:
        """y of q."""
        return self._product(q - captured(self._mean, q.dtype), self._inverse)

    def push(self, d_y: tf.Tensor) -> tf.Tensor:
        """The change of q by a change of y: `W dy`."""
        return self._product(d_y, self._basis.T)

    def pull(self, covector: tf.Tensor) -> tf.Tensor:
        """z of p: `W' p`."""
        return self._product(covector, self._basis)

    def momentum(self, z: tf.Tensor) -> tf.Tensor:
        """p of z: `M W z`."""
        return self._product(z, self._inverse.T)

    def rest(self, y: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """The force `-dU_1/dq` on z at y, where the log density has that gradient: `W' g + w^2 y`."""
        return self.pull(gradient) + captured(self._frequency**2, y.dtype) * y

    def turn(self, y: tf.Tensor, z: tf.Tensor, step_size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The displacements `(y' - y, z' - z)` by the flow of H_0."""
        frequency = captured(self._frequency, y.dtype)
        sine = tf.sin(frequency * step_size)
        less = -2.0 * tf.square(tf.sin(0.5 * frequency * step_size))  # cos - 1, to the last digit
        return less * y + sine * z / frequency, less * z - frequency * sine * y

    def _product(self, x: tf.Tensor, matrix: np.ndarray) -> tf.Tensor:
        """`x A` of rows `[batch..., D]`."""
        constant = captured(matrix, x.dtype)
        return x * constant if self.is_diagonal else tf.tensordot(x, constant, 1)


def _check_shared(modes: _Modes, step_size: tf.Tensor) -> None:
    if not modes.is_diagonal and not is_shared(step_size):
        raise ValueError(
            '`step_size` must be a scalar where GaussianSplit or its metric is dense: its directions are not the '
            f'coordinates; got shape {step_size.shape}.'
        )


def _flat(mean: Any) -> np.ndarray:
    """A mean as a scalar or a vector; raises unless it is finite and known."""
    what = 'a finite scalar, a vector [D] or a list of state parts, known while tracing'
    is_list = is_list_like(mean) and any(np.ndim(part) for part in mean)
    known = [x for x in (static_real('mean', part, what) for part in (mean if is_list else [mean])) if x is not None]
    is_whole = len(known) == (len(mean) if is_list else 1) and all(x.size and np.all(np.isfinite(x)) for x in known)
    if not is_whole or (not is_list and known[0].ndim > 1):
        raise ValueError(f'`mean` must be {what}, got {shown(mean)}.')
    return np.concatenate([np.ravel(x) for x in known]).astype(np.float64) if is_list else known[0].astype(np.float64)


def _spread(name: str, value: Any) -> np.ndarray:
    """A precision or covariance as an array, if it is one."""
    check_precision(name, value)
    array = static_real(name, value)
    if array is None:
        raise ValueError(f'`{name}` must be known while tracing, got {shown(value)}.')
    return np.asarray(array, np.float64)


def _symmetric_inverse(matrix: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(matrix)
    return 0.5 * (inverse + inverse.T)
