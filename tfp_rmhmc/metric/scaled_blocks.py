"""The kinetic energies of blocks whose scales a function gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfp_rmhmc.metric.separable_factor import BlockShape
from tfp_rmhmc.metric.separation import KineticTerms, Partition, Separation
from tfp_rmhmc.state import is_list_like

__all__ = ['LogScaleFn', 'ScaledBlocks']

# From all blocks to the log scales of each.
LogScaleFn = Callable[..., Sequence[Any]]


class ScaledBlocks(Separation):
    """The kinetic energies `K_b = -sum log_scale_b + 1/2 u' C_b^-1 u` with `u = exp(log_scale_b) W_b^-T p_b`.

    Args:
      log_scale_fn: as `SeparableMetric` takes it.
      partition: of the flat coordinates.
      event_shapes: in which the function takes each block.
      shapes: one for each block.
    """

    def __init__(
        self,
        log_scale_fn: LogScaleFn,
        partition: Partition,
        event_shapes: Sequence[Sequence[int]],
        shapes: list[BlockShape],
    ):
        self.partition = partition
        self._log_scale_fn = log_scale_fn
        self._event_shapes = event_shapes
        self._shapes = shapes
        self._groups: list[list[int]] | None = None

    def log_scales(self, group: Sequence[int], positions: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The log scales of a group's blocks, which broadcast to `[batch..., d_b]`.

        The function sees zeros in place of the coordinates of the whole group, so that no block of it can depend on itself.
        """
        arguments = [tf.zeros_like(x) if j in group else x for j, x in enumerate(positions)]
        batch = tf.shape(arguments[0])[:-1]
        parts = [
            x if len(event) == 1 else tf.reshape(x, tf.concat([batch, tf.constant(event, tf.int32)], axis=0))
            for x, event in zip(arguments, self._event_shapes, strict=True)
        ]
        self._check_arguments(parts)
        returned = self._log_scale_fn(*parts)
        if not is_list_like(returned) or len(returned) != len(parts):
            raise ValueError(
                f'`log_scale_fn` must return a list with the log scales of each of {len(parts)} blocks, got {returned!r}.'
            )
        return [self._flat_log_scale(b, returned[b], parts[b], positions[b]) for b in group]

    def _check_arguments(self, parts: Sequence[tf.Tensor]) -> None:
        """Raises if the function does not take as many blocks as there are, a flat state being one of them."""
        try:
            signature = inspect.signature(self._log_scale_fn)
        except ValueError:  # not every callable has one
            return
        try:
            signature.bind(*parts)
        except TypeError as error:
            raise TypeError(
                f'`log_scale_fn` must take {len(parts)} arguments, the blocks of the state (give `blocks` to divide a flat '
                f'state), got a function of {signature}.'
            ) from error

    def _flat_log_scale(self, block: int, returned: Any, part: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        if tf.is_tensor(returned) and returned.dtype != part.dtype:
            raise TypeError(
                f'`log_scale_fn` must return log scales of dtype {part.dtype.name} for block {block}, got dtype '
                f'{returned.dtype.name}.'
            )
        log_scale = tf.convert_to_tensor(returned, part.dtype)
        try:
            is_broadcast = tf.broadcast_static_shape(log_scale.shape, part.shape).is_compatible_with(part.shape)
        except ValueError:
            is_broadcast = False
        if not is_broadcast:
            raise ValueError(
                f'`log_scale_fn` must return log scales that broadcast to shape {part.shape} for block {block}, got shape '
                f'{log_scale.shape}.'
            )
        if len(self._event_shapes[block]) == 1 or log_scale.shape.rank == 0:
            return log_scale
        return tf.reshape(tf.broadcast_to(log_scale, tf.shape(part)), tf.shape(position))

    def groups(self, positions: Sequence[tf.Tensor]) -> list[list[int]]:
        """A greedy colouring of who depends on whom, constant blocks first, then the largest group last."""
        if self._groups is None:
            depends_on = [
                {j for j, pull in enumerate(self.terms([b], positions, positions).pulls) if pull is not None}
                for b in range(len(positions))
            ]
            self._groups = _coloured(depends_on, self.partition.sizes)
        return self._groups

    def terms(self, group: Sequence[int], positions: Sequence[tf.Tensor], momenta: Sequence[tf.Tensor]) -> KineticTerms:
        with tf.GradientTape() as tape:
            tape.watch(positions)
            log_scales = self.log_scales(group, positions)
        velocities, varying, cotangents = [], [], []
        for b, log_scale in zip(group, log_scales, strict=True):
            directions = self._shapes[b].directions
            momentum = directions.covector_components(momenta[b])
            velocity = self._velocity(b, log_scale, momentum)
            velocities.append(directions.vector(velocity))
            if log_scale.shape.rank > 0:  # a number has no derivative
                varying.append(log_scale)
                cotangents.append(_scale_cotangent(momentum, velocity, log_scale))
        # None where a group has nothing to do with a block: constant scales cost no derivative.
        pulls = [None] * len(positions)
        if varying:
            pulls = tape.gradient(varying, list(positions), output_gradients=cotangents)
        return KineticTerms(velocities, pulls)

    def _velocity(self, block: int, log_scale: tf.Tensor, momentum: tf.Tensor) -> tf.Tensor:
        """`S^-1 C^-1 S^-1 p` of a block, in its directions. A scale that all of them share commutes with C."""
        solve = self._shapes[block].correlation.solve
        if log_scale.shape.rank == 0 or log_scale.shape[-1] == 1:
            return tf.exp(2.0 * log_scale) * solve(momentum)
        scale = tf.exp(log_scale)
        return scale * solve(scale * momentum)


def _coloured(depends_on: Sequence[set[int]], sizes: Sequence[int]) -> list[list[int]]:
    """Groups of blocks none of which depends on another of its group.

    Args:
      depends_on: for each block the blocks that set its scales.
      sizes: of the blocks.
    """
    constants = [b for b, parents in enumerate(depends_on) if not parents]
    neighbours = [
        set(parents) | {c for c, others in enumerate(depends_on) if b in others} for b, parents in enumerate(depends_on)
    ]
    groups: list[list[int]] = []
    for b in sorted(set(range(len(sizes))) - set(constants), key=lambda b: -len(neighbours[b])):
        free = [group for group in groups if not neighbours[b] & set(group)]
        if free:
            free[0].append(b)
        else:
            groups.append([b])
    groups.sort(key=lambda group: sum(sizes[b] for b in group))
    return ([constants] if constants else []) + groups


def _scale_cotangent(momentum: tf.Tensor, velocity: tf.Tensor, log_scale: tf.Tensor) -> tf.Tensor:
    """The derivative of K_b with respect to log scales, `p_i v_i - 1` for each coordinate, in the log scales' shape.

    Args:
      momentum: `p: [batch..., d]`.
      velocity: `v = G_b^-1 p`.
      log_scale: which broadcasts to that shape.
    """
    products = momentum * velocity
    if log_scale.shape == products.shape:
        return products - 1.0
    if log_scale.shape == products.shape[:-1] + [1]:  # shared by all coordinates, as a rule
        return tf.reduce_sum(products, axis=-1, keepdims=True) - float(products.shape[-1])
    _, axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(products), s1=tf.shape(log_scale))
    return tf.reshape(tf.reduce_sum(products - 1.0, axis=axes), tf.shape(log_scale))
