"""Metrics whose blocks depend on each other only: explicit RMHMC at one gradient a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_callable, check_finite_array, check_instance, is_integral, shown, static_real
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.linalg import Correlation, Directions, coordinate_directions, correlation_of, directions_of
from tfp_rmhmc.metric.base import Evaluation, LocalMetric, Metric
from tfp_rmhmc.metric.factor import Factor
from tfp_rmhmc.metric.prior import PriorScales
from tfp_rmhmc.metric.separation import KineticTerms, Partition, Separation
from tfp_rmhmc.model import PinnedModel
from tfp_rmhmc.state import StateLayout, is_list_like

__all__ = ['BlockShape', 'SeparableFactor', 'SeparableMetric']

_LogScaleFn = Callable[..., Sequence[Any]]


class SeparableMetric(Metric):
    """A block diagonal metric in which each block's scales are set by the other blocks.

        G(q) = blockdiag(G_1(q_-1), ..., G_B(q_-B)),        G_b = S_b C_b S_b,    S_b = diag(exp(-log_scale_b(q_-b)))

    A scale is the standard deviation that a coordinate has where the other blocks are what they are; C_b is a constant
    correlation. With `directions` W_b the scales are those of `y_b = W_b q_b`, so that `G_b = W_b' S_b S_b W_b`: scales may
    then change in some directions and not in others, and correlations change with them. Most posteriors that defeat HMC
    have this form: the scale of some variables is set by others. Then no Hessian is needed, and `SeparableLeapfrog` makes a
    step for the price of one gradient. For the funnel, with state parts v and x:

        # x_i ~ N(0, exp(-v)), v: [..., 1], x: [..., 10]
        metric = tfp_rmhmc.SeparableMetric(lambda v, x: [-0.8, -0.5 * v])
        kernel = tfp_rmhmc.RiemannianHMC(log_prob, step_size=0.6, num_leapfrog_steps=23, metric=metric)

    A block that sets the scale of n coordinates is pinned down by them: give it the information that they carry too. In the
    funnel v has the scale `(1/9 + n/2)^(-1/2)`, -0.8 as a logarithm for n = 10, and not its prior's 3.

    Block b is evaluated with its own coordinates replaced by zeros. So it cannot depend on them, whatever function is
    given, and the kernel is exact for every function. The function lives in the space in which the kernel moves: inside
    `TransformedTransitionKernel` it receives the transformed state.

    Cost of an evaluation: B calls of the function, O(D), and O(d_b^2) for a dense correlation or directions. Blocks of
    constant scale are not differentiated. References: Zhang and Sutton 2014, "Semi-separable Hamiltonian Monte Carlo for
    inference in Bayesian hierarchical models".

    Args:
      log_scale_fn: takes the state parts (or the blocks, each `[batch..., d_b]`, if `blocks` are given) and returns a list
        with the log scales of each, which broadcast to it: a tensor, or a number for a constant scale.
      correlation: None for the identity in every block; or a list with one entry per block: None, a symmetric positive
        definite matrix `[d_b, d_b]`, or a matrix W, `[d_b, k]` with `k < d_b`, for `I + W W'`. A block's coordinates are
        flattened.
      directions: None for the coordinates themselves in every block; or a list with one entry per block: None, or an
        invertible matrix W, `[d_b, d_b]`, whose rows are the directions. The function's log scales are then those of
        `W q_b`, in that order. A block has directions or a correlation, not both.
      blocks: None where the state parts are the blocks; or a partition of the D flat coordinates, a list of lists of
        indices.
    """

    follows_curvature = True
    is_separable = True
    differentiates_target = False

    def __init__(
        self,
        log_scale_fn: _LogScaleFn,
        correlation: Sequence[Any] | None = None,
        blocks: Sequence[Sequence[int]] | None = None,
        directions: Sequence[Any] | None = None,
    ):
        check_callable('log_scale_fn', log_scale_fn)
        _check_matrices('correlation', correlation)
        _check_matrices('directions', directions)
        for b, (first, second) in enumerate(zip(correlation or (), directions or (), strict=False)):
            if first is not None and second is not None:
                raise ValueError(f'`directions[{b}]` must be None, for `correlation[{b}]` is given, got {shown(second)}.')
        self._log_scale_fn = log_scale_fn
        self._correlation, self._directions = correlation, directions
        self._blocks = None if blocks is None else _checked_blocks(blocks)
        self._separations: dict[Any, Separation] = {}  # by the state's layout
        self._shapes: dict[Any, list[BlockShape]] = {}  # by the blocks' sizes

    @classmethod
    def from_prior(cls, model: Any, **pins: Any) -> SeparableMetric:
        """The metric that a `tfd.JointDistribution*` sets for its free variables, in `sample_posterior`'s unconstrained
        space.

        The scale of a variable given the others is that of its own distribution given its parents, narrowed by the
        information that its children carry about it, observed ones included:

            G_ii = 1 / v_i + sum_c [ (dm_c/dq_i)^2 / v_c + 1/2 (d log v_c/dq_i)^2 ]

        with m_c and v_c the means and variances of all coordinates of the model. The derivatives are taken once, at the
        origin; the variances follow the position. A variable that is constrained, or that has no variance, gets a constant
        in place of `1 / v_i`; the metric's repr says which did. It is a first guess of the posterior's scales, not a fit to
        it. Cost of an evaluation: the distributions of the model, and O(D).

        Args:
          model: named, sequential or coroutine, auto-batched or not. Positive variables are there by their logarithms.
          **pins: observed values of the model's variables.
        """
        check_instance('model', model, tfp.distributions.JointDistribution, 'a joint distribution')
        return cls(PriorScales(PinnedModel(model, pins)))

    @staticmethod
    def learn(draws: Any, scores: Any) -> SeparableMetric:
        """The separable metric of a flat state that describes scores best: blocks, scales and correlations.

        Who sets whose scale is found by regressing squared scores on the coordinates; each structure that comes into
        question is judged by how well it predicts the scores of draws that it was not fitted to. Where none is better than
        a constant metric, that is the result. `metric.fit` says what was found. A fit of 1,000 draws in 200 dimensions
        takes about a second.

        Args:
          draws: positions, flat, `[n, chains, D]` or `[n, D]`, close to the target's distribution.
          scores: gradients of the log density there.
        """
        from tfp_rmhmc.metric.learned import LearnedMetric
        from tfp_rmhmc.metric.learning import fit_metric

        draws, scores = (_finite_draws(name, x) for name, x in (('draws', draws), ('scores', scores)))
        if draws.shape != scores.shape:
            raise ValueError(
                f'`draws` and `scores` must have one shape, [n, chains, D] or [n, D], got {draws.shape} and {scores.shape}.'
            )
        if draws.ndim == 2:
            draws, scores = draws[:, np.newaxis], scores[:, np.newaxis]
        if draws.shape[0] * draws.shape[1] < 10:
            raise ValueError(f'`draws` must be at least 10, got {draws.shape[0] * draws.shape[1]}.')
        fit = fit_metric(draws, scores)
        return LearnedMetric(fit.structure, fit.parameters, fit)

    def __repr__(self) -> str:
        given = [f'log_scale_fn={self._log_scale_fn!r}']
        given += [] if self._correlation is None else [f'correlation={[np.shape(c) or None for c in self._correlation]}']
        given += [] if self._directions is None else [f'directions={[np.shape(w) or None for w in self._directions]}']
        given += [] if self._blocks is None else [f'blocks={self._blocks!r}']
        return f'{type(self).__name__}({", ".join(given)})'

    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """Log density, gradient, and the log scales of each block, `[batch..., d_b]`."""
        evaluation = density.apply(autodiff.value_and_gradient, position)
        return evaluation[0], evaluation[1], self._log_scales(density.layout, position)

    def at(self, density: LogDensity, position: tf.Tensor, known: Evaluation | None = None) -> LocalMetric:
        if known is None:
            known = Evaluation(*density.apply(autodiff.value_and_gradient, position))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(position)
            log_scales = self._log_scales(density.layout, position)
        return self._local(tape, position, known, log_scales)

    def factorize(self, parameters: list[tf.Tensor]) -> Factor:
        sizes = tuple(log_scale.shape[-1] for log_scale in parameters)
        return SeparableFactor(parameters, self._partition(sizes), self._block_shapes(sizes))

    def separation(self, layout: StateLayout) -> Separation:
        key = (tuple(map(tuple, layout.event_shapes)), layout.batch_rank)
        if key not in self._separations:
            partition = self._partition(tuple(layout.sizes))
            events = layout.event_shapes if self._blocks is None else [[size] for size in partition.sizes]
            shapes = self._block_shapes(tuple(partition.sizes))
            self._separations[key] = _ScaledBlocks(self._log_scale_fn, partition, events, shapes)
        return self._separations[key]

    def _log_scales(self, layout: StateLayout, position: tf.Tensor) -> list[tf.Tensor]:
        """Of each block, `[batch..., d_b]`."""
        separation = self.separation(layout)
        assert isinstance(separation, _ScaledBlocks)
        positions = separation.partition.split(position)
        found: dict[int, tf.Tensor] = {}
        for group in separation.groups(positions):
            found |= dict(zip(group, separation.log_scales(group, positions), strict=True))
        return [tf.broadcast_to(found[b], tf.shape(block)) for b, block in enumerate(positions)]

    def _partition(self, sizes: tuple[int, ...]) -> Partition:
        """The blocks of a state whose parts have these sizes."""
        if self._blocks is None:
            return Partition.contiguous(sizes)
        if sum(map(len, self._blocks)) != sum(sizes):
            raise ValueError(
                f'`blocks` must hold each of the {sum(sizes)} coordinates of the state, got {sum(map(len, self._blocks))}.'
            )
        return Partition(self._blocks)

    def _block_shapes(self, sizes: tuple[int, ...]) -> list[BlockShape]:
        """One for each block, of these sizes."""
        if sizes not in self._shapes:
            correlations, directions = (
                self._for_each_block(name, given, sizes)
                for name, given in (('correlation', self._correlation), ('directions', self._directions))
            )
            self._shapes[sizes] = [
                BlockShape(
                    correlation_of(f'correlation[{b}]', correlations[b], size),
                    directions_of(f'directions[{b}]', directions[b], size),
                )
                for b, size in enumerate(sizes)
            ]
        return self._shapes[sizes]

    @staticmethod
    def _for_each_block(name: str, given: Sequence[Any] | None, sizes: tuple[int, ...]) -> list[Any]:
        if given is not None and len(given) != len(sizes):
            raise ValueError(f'`{name}` must have an entry for each of {len(sizes)} blocks, got {len(given)}.')
        return [None] * len(sizes) if given is None else list(given)


class BlockShape(NamedTuple):
    """What of `G_b = W' S C S W` does not depend on the position: C and W, of which one at least is the identity."""

    correlation: Correlation
    directions: Directions = coordinate_directions()

    @property
    def half_log_det(self) -> Any:
        """Of `W' C W`."""
        return self.correlation.half_log_det + self.directions.log_det

    def solve(self, scale: tf.Tensor, covector: tf.Tensor) -> tf.Tensor:
        """`G^-1 p`, where S is the inverse of `scale`."""
        components = self.directions.covector_components(covector)
        return self.directions.vector(scale * self.correlation.solve(scale * components))

    def multiply(self, scale: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
        """`G v`."""
        components = self.directions.components(vector)
        return self.directions.covector(self.correlation.multiply(components / scale) / scale)

    def sqrt_multiply(self, scale: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """A covector with covariance G, of standard normal noise."""
        return self.directions.covector(self.correlation.sqrt_multiply(noise) / scale)

    def diagonal(self, scale: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        """Of G, shaped like a vector."""
        return self.directions.diagonal(self.correlation.diagonal(like) / tf.square(scale))

    def scale_cotangent(self, scale: tf.Tensor, covector: tf.Tensor) -> tf.Tensor:
        """Of `1/2 log det G + 1/2 p' G^-1 p` with respect to log scales: `u (C^-1 u) - 1`, `u = S^-1 W^-T p`."""
        components = scale * self.directions.covector_components(covector)
        return components * self.correlation.solve(components) - 1.0


class SeparableFactor(Factor):
    """`G = blockdiag(W_b' S_b C_b S_b W_b)` with `S_b = diag(exp(-log_scale_b))`. O(D), and O(d_b^2) for dense C_b or W_b.

    Args:
      log_scales: `[batch..., d_b]` for each block.
      partition: of the flat coordinates.
      shapes: one for each block.
    """

    def __init__(self, log_scales: list[tf.Tensor], partition: Partition, shapes: list[BlockShape]):
        self._scales = [tf.exp(log_scale) for log_scale in log_scales]
        self._partition = partition
        self._shapes = shapes
        constant = sum(shape.half_log_det for shape in shapes)
        self.half_log_det = constant - tf.add_n([tf.reduce_sum(log_scale, axis=-1) for log_scale in log_scales])

    def diagonal(self, like: tf.Tensor) -> tf.Tensor:
        return self._each(lambda one, scale, shape: shape.diagonal(scale, one), tf.ones_like(like))

    def solve(self, covector: tf.Tensor) -> tf.Tensor:
        return self._each(lambda p, scale, shape: shape.solve(scale, p), covector)

    def multiply(self, vector: tf.Tensor) -> tf.Tensor:
        return self._each(lambda v, scale, shape: shape.multiply(scale, v), vector)

    def sqrt_multiply(self, noise: tf.Tensor) -> tf.Tensor:
        return self._each(lambda z, scale, shape: shape.sqrt_multiply(scale, z), noise)

    def energy_cotangent(self, covector: tf.Tensor) -> list[tf.Tensor]:
        blocks = zip(self._partition.split(covector), self._scales, self._shapes, strict=True)
        return [shape.scale_cotangent(scale, p) for p, scale, shape in blocks]

    def _each(self, fn: Callable[[tf.Tensor, tf.Tensor, BlockShape], tf.Tensor], flat: tf.Tensor) -> tf.Tensor:
        blocks = zip(self._partition.split(flat), self._scales, self._shapes, strict=True)
        return self._partition.join([fn(*block) for block in blocks])


class _ScaledBlocks(Separation):
    """The kinetic energies `K_b = -sum log_scale_b + 1/2 u' C_b^-1 u` with `u = exp(log_scale_b) W_b^-T p_b`.

    Args:
      log_scale_fn: as `SeparableMetric` takes it.
      partition: of the flat coordinates.
      event_shapes: in which the function takes each block.
      shapes: one for each block.
    """

    def __init__(
        self,
        log_scale_fn: _LogScaleFn,
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


def _check_matrices(name: str, given: Any) -> None:
    """Raises unless it is None or a list with None or a finite matrix for each block."""
    if given is not None and not (is_list_like(given) and given):
        raise TypeError(f'`{name}` must be None or a list with one entry per block, got {shown(given)}.')
    for b, entry in enumerate(given or ()):
        if entry is not None:
            check_finite_array(f'{name}[{b}]', entry, 2, 'None or a matrix')


def _checked_blocks(blocks: Sequence[Sequence[int]]) -> list[list[int]]:
    """The blocks as lists of ints; raises unless they are a partition of 0, ..., D - 1."""
    sentence = f'`blocks` must hold each flat coordinate exactly once, and no block may be empty, got {shown(blocks)}.'
    try:
        given = [list(block) for block in blocks]
    except TypeError:
        raise TypeError(sentence) from None
    indices = [index for block in given for index in block]
    if not all(is_integral(index) for index in indices):
        raise TypeError(sentence)
    if not given or not all(given) or sorted(indices) != list(range(len(indices))):
        raise ValueError(sentence)
    return [[int(index) for index in block] for block in given]


def _finite_draws(name: str, value: Any) -> np.ndarray:
    """`[n, chains, D]` or `[n, D]`, as float64."""
    what = 'an array [n, chains, D] or [n, D]'
    array = static_real(name, value, what)
    return check_finite_array(name, value, 3 if array is not None and array.ndim == 3 else 2, what)
