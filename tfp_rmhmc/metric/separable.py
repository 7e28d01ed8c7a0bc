"""Metrics whose blocks depend on each other only: explicit RMHMC at one gradient a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc import autodiff
from tfp_rmhmc.argument import check_callable, check_finite_array, check_instance, is_integral, shown, static_real
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.linalg import correlation_of, directions_of
from tfp_rmhmc.metric.base import Evaluation, LocalMetric, Metric
from tfp_rmhmc.metric.factor import Factor
from tfp_rmhmc.metric.hint import scale_hint
from tfp_rmhmc.metric.prior import PriorScales
from tfp_rmhmc.metric.scaled_blocks import LogScaleFn, ScaledBlocks
from tfp_rmhmc.metric.separable_factor import BlockShape, SeparableFactor
from tfp_rmhmc.metric.separation import Partition, Separation
from tfp_rmhmc.model import PinnedModel
from tfp_rmhmc.state import StateLayout, check_parts, is_list_like, state_parts

__all__ = ['SeparableMetric']


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
        log_scale_fn: LogScaleFn,
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
    def learn(draws: Any, scores: Any, setters: Sequence[Sequence[int]] | None = None) -> SeparableMetric:
        """The separable metric of a flat state that describes scores best: blocks, scales and correlations.

        Who sets whose scale is found by regressing squared scores on the coordinates; each structure that comes into
        question is judged by how well it predicts the scores of draws that it was not fitted to. Where none is better than
        a constant metric, that is the result. `metric.fit` says what was found. A fit of 1,000 draws in 200 dimensions
        takes about a second.

        Args:
          draws: positions, flat, `[n, chains, D]` or `[n, D]`, close to the target's distribution.
          scores: gradients of the log density there.
          setters: for each of the D coordinates those that may set its scale, such as a model says by `setters_at`; to be
            judged beside what is found. None if nothing is known.
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
        hint = None if setters is None else _checked_setters(setters, draws.shape[-1])
        fit = fit_metric(draws, scores, hint=hint)
        return LearnedMetric(fit.structure, fit.parameters, fit)

    def setters_at(self, state: Any) -> list[tuple[int, ...]]:
        """For each flat coordinate those that set its scale, seen by moving each of them a little way from a state.

        With `from_prior` it is what a model says of who sets whose scale, for `learn`.

        Args:
          state: a tensor or list of parts of one chain, without leading dimensions.
        """
        check_parts('state', state)
        parts = [part[tf.newaxis] for part in state_parts(state)]
        hint = scale_hint(self, parts)
        if hint is None:
            raise ValueError(f'The log scales must be finite around `state`, got {shown(state)}.')
        return hint.setters

    def __repr__(self) -> str:
        given = [f'log_scale_fn={self._log_scale_fn!r}']
        given += [] if self._correlation is None else [f'correlation={[np.shape(c) or None for c in self._correlation]}']
        given += [] if self._directions is None else [f'directions={[np.shape(w) or None for w in self._directions]}']
        given += [] if self._blocks is None else [f'blocks={self._blocks!r}']
        return f'{type(self).__name__}({", ".join(given)})'

    def parameters(self, density: LogDensity, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """Log density, gradient, and the log scales of each block, `[batch..., d_b]`."""
        evaluation = density.apply(autodiff.value_and_gradient, position)
        return evaluation[0], evaluation[1], self.log_scales(density.layout, position)

    def at(self, density: LogDensity, position: tf.Tensor, known: Evaluation | None = None) -> LocalMetric:
        if known is None:
            known = Evaluation(*density.apply(autodiff.value_and_gradient, position))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(position)
            log_scales = self.log_scales(density.layout, position)
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
            self._separations[key] = ScaledBlocks(self._log_scale_fn, partition, events, shapes)
        return self._separations[key]

    def log_scales(self, layout: StateLayout, position: tf.Tensor) -> list[tf.Tensor]:
        """Of each block, `[batch..., d_b]`, at flat positions `[batch..., D]`."""
        separation = self.separation(layout)
        assert isinstance(separation, ScaledBlocks)
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


def _checked_setters(setters: Any, dimension: int) -> list[tuple[int, ...]]:
    """One tuple of other coordinates for each coordinate."""
    sentence = f'`setters` must be None or, for each of {dimension} coordinates, a list of others, got {shown(setters)}.'
    try:
        given = [tuple(chosen) for chosen in setters]
    except TypeError:
        raise TypeError(sentence) from None
    if not all(is_integral(s) for chosen in given for s in chosen):
        raise TypeError(sentence)
    if len(given) != dimension or any(s == i or not 0 <= s < dimension for i, chosen in enumerate(given) for s in chosen):
        raise ValueError(sentence)
    return [tuple(sorted({int(s) for s in chosen})) for chosen in given]


def _finite_draws(name: str, value: Any) -> np.ndarray:
    """`[n, chains, D]` or `[n, D]`, as float64."""
    what = 'an array [n, chains, D] or [n, D]'
    array = static_real(name, value, what)
    return check_finite_array(name, value, 3 if array is not None and array.ndim == 3 else 2, what)
