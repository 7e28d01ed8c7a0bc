"""A joint distribution with pinned values, as functions of unconstrained state parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc import positive
from tfp_rmhmc.argument import static_real
from tfp_rmhmc.state import is_list_like

__all__ = ['PinnedModel', 'names_of']


class PinnedModel:
    """The posterior of a `tfd.JointDistribution*` given some of its variables, in its unconstrained space.

    That is the space of its default bijectors, but for positive variables, which are there by their logarithms where TFP
    would have a softplus.

    Args:
      model: a joint distribution: named, sequential or coroutine, auto-batched or not.
      pins: observed values by name.

    Attributes:
      names: of the free variables, in the order of the state parts.
      dtypes: of the free variables.
      shapes: of the unconstrained parts, without chains.
      labels: of the unconstrained parts: the names, with a `log` where a part is a logarithm.
    """

    def __init__(self, model: Any, pins: dict[str, Any]):
        known = _variable_names(model)
        for name in pins:
            if name not in known:
                raise ValueError(f'`{name}` is not a variable of the model, whose variables are {known}.')
            if not _is_bool(pins[name]):
                static_real(name, pins[name], 'an array of real numbers')
        if len(pins) == len(known):
            raise ValueError(f'All variables of the model are pinned, {sorted(pins)}: nothing is left to sample.')
        pinned = model.experimental_pin(**pins) if pins else model
        self.model, self._pins, self._all_names = model, pins, known
        self.names = names_of(pinned.dtype) if _has_names(pinned.dtype) else [name for name in known if name not in pins]
        self.structure = pinned.dtype
        self.dtypes = tf.nest.flatten(pinned.dtype)
        for name, dtype in zip(self.names, self.dtypes, strict=True):
            if not dtype.is_floating:
                raise ValueError(
                    f'`{name}` is of dtype {dtype.name}, which has no gradient: pin it or sum it out of the model.'
                )
        self._log_prob_fn = pinned.unnormalized_log_prob if pins else pinned.log_prob
        self._bijector = pinned.experimental_default_event_space_bijector()
        shapes = self._bijector.inverse_event_shape(pinned.event_shape)
        self._event_ndims = tf.nest.map_structure(lambda shape: shape.rank, shapes)
        self.shapes = tf.nest.flatten(shapes)
        self._positives, self.labels = self._logarithms()
        self._correlations = self._which_are_correlations()

    def target_log_prob_fn(self, *parts: tf.Tensor) -> tf.Tensor:
        """The log density of unconstrained parts."""
        y = self._structured(parts)
        log_det = self._bijector.forward_log_det_jacobian(y, event_ndims=self._event_ndims)
        for i, sign in self._positives.items():
            log_det += _sum_over_event(positive.log_jacobian(sign * parts[i]), len(self.shapes[i]))
        log_det -= sum(self._excess_of_correlations(parts[i], len(self.shapes[i])) for i in self._correlations)
        return self._log_prob_fn(self._bijector.forward(y)) + log_det

    def _which_are_correlations(self) -> list[int]:
        """The parts whose variables have `tfd.LKJ` for a distribution; raises for what TFP has no right bijector for."""
        zeros = [tf.zeros(shape, dtype) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]
        with tf.init_scope():
            distributions = self.distributions(zeros)
        laws = [_innermost(distributions[name]) for name in self.names]
        for name, law in zip(self.names, laws, strict=True):
            if isinstance(law, tfp.distributions.WishartLinearOperator):
                raise ValueError(
                    f"`{name}` is a Wishart matrix, of which TFP's default bijector leaves out those whose Cholesky factor "
                    'has a diagonal entry below log 2, so draws would be biased: give scales and correlations (LKJ) apart, '
                    'or a log density with `bijector`.'
                )
        return [i for i, law in enumerate(laws) if isinstance(law, tfp.distributions.LKJ)]

    def _logarithms(self) -> tuple[dict[int, int], list[str]]:
        """The parts that TFP's default bijectors map by a softplus, or with the sign -1 by its reciprocal; all labels."""
        rng = np.random.default_rng(0)
        points = [
            tf.constant(2.0 * rng.normal(size=[4, *shape]), dtype)
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]
        with tf.init_scope():
            images = tf.nest.flatten(self._bijector.forward(tf.nest.pack_sequence_as(self.structure, points)))
        pairs = list(zip(points, images, strict=True))
        signs = {i: sign for i, pair in enumerate(pairs) if (sign := positive.sign_of_softplus(*pair))}
        are_logs = [i in signs or positive.is_exponential(*pair) for i, pair in enumerate(pairs)]
        return signs, [f'log {name}' if is_log else name for name, is_log in zip(self.names, are_logs, strict=True)]

    @staticmethod
    def _excess_of_correlations(part: tf.Tensor, event_ndims: int) -> tf.Tensor:
        """What TFP's log Jacobian of a correlation matrix is too large by, up to a constant.

        TFP goes by the Cholesky factor L to `C = L L'`, and takes the Jacobian of any lower triangular matrix, whose
        diagonal is free: a product of `(2 L_ii)^(d - i + 1)`. That of a correlation follows from the rest, so that the
        exponent is one less. Without this, LKJ(eta) is sampled as LKJ(eta + 1/2).
        """
        root = tfp.bijectors.CorrelationCholesky().forward(part)
        logs = tf.math.log(tf.linalg.diag_part(root))
        return _sum_over_event(logs, event_ndims)

    def constrain(self, parts: Any) -> Any:
        """Unconstrained parts, with any leading dimensions, in the model's own structure and space."""
        return self._bijector.forward(self._structured(parts))

    def unconstrain(self, values: Any) -> list[tf.Tensor]:
        """The inverse of `constrain`."""
        parts = [tf.identity(part) for part in tf.nest.flatten(self._bijector.inverse(values))]
        signs = self._positives
        return [signs[i] * positive.to_logarithm(y) if i in signs else y for i, y in enumerate(parts)]

    def distributions(self, parts: Any) -> dict[str, tfp.distributions.Distribution]:
        """Each variable's distribution given its parents, at unconstrained parts `[chains..., event...]`, by name."""
        found, _ = self.model.sample_distributions(value=self._all_values(parts))
        return dict(zip(self._all_names, _flatten_like(self.model.dtype, found), strict=True))

    def log_prob_parts(self, parts: Any) -> dict[str, tf.Tensor]:
        """Each variable's share of the model's log density, `[chains...]`, by name; without the bijectors' Jacobians."""
        found = self.model.log_prob_parts(self._all_values(parts))
        return dict(zip(self._all_names, _flatten_like(self.model.dtype, found), strict=True))

    def _all_values(self, parts: Any) -> Any:
        """Free and pinned variables in the model's structure, at unconstrained parts `[chains..., event...]`."""
        values = dict(zip(self.names, tf.nest.flatten(self.constrain(parts)), strict=True))
        batch = tf.shape(parts[0])[: parts[0].shape.rank - self.shapes[0].rank]
        for name, pin in self._pins.items():
            # An auto-batched model wants every value in the shape of its chains.
            pin = tf.convert_to_tensor(pin, dtype_hint=parts[0].dtype)
            values[name] = tf.broadcast_to(pin, tf.concat([batch, tf.shape(pin)], axis=0))
        return tf.nest.pack_sequence_as(self.model.dtype, [values[name] for name in self._all_names])

    def _structured(self, parts: Any) -> Any:
        """What TFP's bijector takes."""
        signs = self._positives
        y = [positive.to_softplus(signs[i] * part) if i in signs else part for i, part in enumerate(parts)]
        return tf.nest.pack_sequence_as(self.structure, y)


def _sum_over_event(x: tf.Tensor, event_ndims: int) -> tf.Tensor:
    return tf.reduce_sum(x, axis=list(range(-event_ndims, 0))) if event_ndims else x


def _innermost(distribution: Any) -> Any:
    """The distribution that wrappers such as `tfd.Sample` and `tfd.Independent` are around."""
    while isinstance(
        distribution, (tfp.distributions.Sample, tfp.distributions.Independent, tfp.distributions.BatchBroadcast)
    ):
        distribution = distribution.distribution
    return distribution


def _is_bool(value: Any) -> bool:
    """Whether a value is made of truth values, which some distributions take."""
    return isinstance(value, (bool, np.bool_)) or getattr(value, 'dtype', None) in (np.dtype(bool), tf.bool)


def names_of(structure: Any) -> list[str]:
    """Names for the tensors of a nest, in `tf.nest.flatten` order."""
    if isinstance(structure, dict):
        return [str(key) for key in sorted(structure)]
    if hasattr(structure, '_fields'):
        return list(structure._fields)
    return [f'x{i}' for i in range(len(structure))] if is_list_like(structure) else ['x']


def _flatten_like(structure: Any, nest: Any) -> list[Any]:
    """The entries of a nest of distributions, which `tf.nest.flatten` might take apart."""
    if isinstance(structure, dict):
        return [nest[key] for key in sorted(structure)]
    return list(nest)


def _has_names(structure: Any) -> bool:
    return isinstance(structure, dict) or hasattr(structure, '_fields')


def _variable_names(model: Any) -> list[str]:
    """In `tf.nest.flatten` order where the model's structure has names, else in the model's own."""
    return names_of(model.dtype) if _has_names(model.dtype) else [name for name, _ in model.resolve_graph()]
