"""The scales that a joint distribution sets for its variables.

A variable's scale given all others follows from its own distribution and from those of its children, observed ones
included. With the mean m_c and the variance v_c of every coordinate c of the model, its conditional precision is

    G_ii = 1 / v_i + sum_c [ (dm_c/dq_i)^2 / v_c + 1/2 (d log v_c/dq_i)^2 ]

the prior precision and the Fisher information of the children, which is exact for normal distributions (and its first term
for exponential families). The derivatives are taken once, at the origin of the unconstrained space. What depends on the
position are the variances: v_i, and for each child one factor, the geometric mean of its coordinates' precisions relative
to the origin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc import autodiff
from tfp_rmhmc.model import PinnedModel

__all__ = ['PriorScales']


class _Moments(NamedTuple):
    """Mean and log standard deviation of a variable given its parents, which broadcast to `[chains, event...]`."""

    mean: tf.Tensor
    log_deviation: tf.Tensor


class PriorScales:
    """The log scales of a model's free variables, as a function of the unconstrained state parts.

    Args:
      model: the joint distribution with its pinned values.

    Attributes:
      constants: the names of free variables whose own distribution sets no scale, because they are constrained or have no
        variance; their prior precision is taken as 1 in the unconstrained space.
    """

    def __init__(self, model: PinnedModel):
        self._model = model
        shapes = [shape.as_list() for shape in model.shapes]
        origin = [tf.zeros([1, *shape], dtype) for shape, dtype in zip(shapes, model.dtypes, strict=True)]
        self._at_origin = _moments_of(model.distributions(origin))
        self.constants = [
            name
            for name, is_free in zip(model.names, _are_unconstrained(model, shapes), strict=True)
            if not is_free or name not in self._at_origin
        ]
        sizes = [int(np.prod(shape)) for shape in shapes]

        def outputs(flat: tf.Tensor) -> tf.Tensor:
            """Means and log deviations of all variables that have them, `[1, K]`."""
            columns = tf.split(flat, sizes, axis=-1)
            parts = [tf.reshape(x, [1, *shape]) for x, shape in zip(columns, shapes, strict=True)]
            found = _moments_of(model.distributions(parts), self._at_origin)
            return tf.concat([tf.reshape(x, [1, -1]) for moments in found.values() for x in moments], axis=1)

        squares = np.zeros([0, sum(sizes)])
        if self._at_origin:
            _, jacobian = autodiff.jacobian(outputs, tf.zeros([1, sum(sizes)], model.dtypes[0]))
            squares = np.square(jacobian[0].numpy())
        self._location, self._scale = self._information(squares, sizes, shapes)

    def _information(
        self, squares: np.ndarray, sizes: list[int], shapes: list[list[int]]
    ) -> tuple[dict[tuple[str, str], np.ndarray], dict[str, np.ndarray]]:
        """What children say of a variable at the origin: through their means, by (child, variable), and their scales.

        Args:
          squares: of the derivatives of means and log deviations, `[K, D]`.
          sizes, shapes: of the state parts.
        """
        location: dict[tuple[str, str], np.ndarray] = {}
        scale = {name: np.zeros(shape) for name, shape in zip(self._model.names, shapes, strict=True)}
        begin = 0
        for child, (mean, log_deviation) in self._at_origin.items():
            num = log_deviation.shape.num_elements()
            precision = np.exp(-2.0 * np.ravel(np.broadcast_to(log_deviation, mean.shape)))
            of_mean, of_deviation = squares[begin : begin + num], squares[begin + num : begin + 2 * num]
            begin += 2 * num
            through_mean, through_scale = precision @ of_mean, 2.0 * np.sum(of_deviation, axis=0)
            ends = np.cumsum(sizes)
            for name, shape, size, end in zip(self._model.names, shapes, sizes, ends, strict=True):
                if np.any(through_mean[end - size : end] > 0.0):
                    location[child, name] = np.reshape(through_mean[end - size : end], shape)
                scale[name] += np.reshape(through_scale[end - size : end], shape)
        return location, scale

    def __call__(self, *parts: tf.Tensor) -> list[tf.Tensor]:
        """Log scales that broadcast to each unconstrained part, `[chains..., event...]`."""
        moments = _moments_of(self._model.distributions(parts), self._at_origin)
        batch_rank = parts[0].shape.rank - self._model.shapes[0].rank
        log_scales = []
        for name, part in zip(self._model.names, parts, strict=True):
            precision = tf.constant(self._scale[name], part.dtype)
            if name in self.constants:
                precision += 1.0
            else:
                precision += tf.exp(-2.0 * moments[name].log_deviation)
            for (child, parent), information in self._location.items():
                if parent == name:
                    factor = self._relative_precision(child, moments[child], batch_rank)
                    event_rank = part.shape.rank - batch_rank
                    factor = tf.reshape(factor, tf.concat([tf.shape(factor), [1] * event_rank], axis=0))
                    precision += factor * tf.constant(information, part.dtype)
            log_scales.append(-0.5 * tf.math.log(precision))
        return log_scales

    def _relative_precision(self, child: str, moments: _Moments, batch_rank: int) -> tf.Tensor:
        """The geometric mean of a child's precisions relative to the origin: `[chains...]`, or a scalar where constant."""
        change = moments.log_deviation - self._at_origin[child].log_deviation[0]
        axes = list(range(min(batch_rank, change.shape.rank), change.shape.rank))
        return tf.exp(-2.0 * tf.reduce_mean(change, axis=axes))

    def __repr__(self) -> str:
        by_prior = [name for name in self._model.names if name not in self.constants]
        return f'scales of {by_prior} by their distributions, constant prior scales of {self.constants}'


def _moments_of(
    distributions: dict[str, tfp.distributions.Distribution], known: dict[str, _Moments] | None = None
) -> dict[str, _Moments]:
    """The moments of the variables that have a mean and a finite, positive variance at the origin.

    Args:
      distributions: of all variables, by name.
      known: the moments at the origin, if these are not they: the same variables are taken, and in the same shapes.
    """
    found = {}
    for name, distribution in distributions.items():
        if known is not None and name not in known:
            continue
        try:
            mean, deviation = distribution.mean(), distribution.stddev()
        except NotImplementedError:  # as TFP says that there is none
            continue
        if known is None:
            shape = [1, *distribution.event_shape] if deviation.shape.rank == distribution.event_shape.rank else None
            mean = tf.broadcast_to(mean, shape or tf.broadcast_static_shape(mean.shape, deviation.shape))
            deviation = tf.broadcast_to(deviation, mean.shape)
            if not np.all(np.isfinite(mean)) or not np.all(np.isfinite(deviation)) or not np.all(deviation > 0.0):
                continue
        found[name] = _Moments(mean, tf.math.log(deviation))
    return found


def _are_unconstrained(model: PinnedModel, shapes: list[list[int]]) -> list[bool]:
    """For each free variable whether its default bijector is the identity."""
    rng = np.random.default_rng(0)
    points = [tf.constant(rng.normal(size=[2, *shape]), dtype) for shape, dtype in zip(shapes, model.dtypes, strict=True)]
    images = tf.nest.flatten(model.constrain(points))
    return [
        bool(image.shape == point.shape and np.array_equal(image, point))
        for image, point in zip(images, points, strict=True)
    ]
