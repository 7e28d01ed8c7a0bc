"""What is to be sampled: a model, a log density or a posterior, as one unconstrained target with a start."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.data_sum import SumOverData
from tfp_rmhmc.model import PinnedModel, names_of

__all__ = ['Problem', 'problem_of']

# Number of attempts to find a start of finite log density before giving up.
_MAX_TRIES = 100


@dataclasses.dataclass(frozen=True)
class Problem:
    """A target on unconstrained state parts.

    Attributes:
      target_log_prob_fn: of the unconstrained parts.
      start: list of parts, each `[num_chains, event...]`.
      constrain: maps parts (with any leading dimensions before the chains') to the model's own structure and space.
      names: one for each tensor of that structure, in `tf.nest.flatten` order.
    """

    target_log_prob_fn: Callable[..., tf.Tensor]
    start: list[tf.Tensor]
    constrain: Callable[[list[tf.Tensor]], Any]
    names: list[str]

    def coordinate_names(self) -> list[str]:
        """A name for each coordinate of the flat unconstrained state: `mu`, `theta[0]`, ..."""
        found = []
        names = self.names if len(self.names) == len(self.start) else [f'x{i}' for i in range(len(self.start))]
        for name, part in zip(names, self.start, strict=True):
            event = part.shape[1:].as_list()
            found += [f'{name}[{",".join(map(str, index))}]' if event else name for index in np.ndindex(*event)]
        return found

    def scaled(self, scale: list[np.ndarray], start: list[tf.Tensor]) -> Problem:
        """The same problem in coordinates `y / scale`, from a start given in `y`, without the constant log Jacobian."""
        scale = [tf.constant(s, part.dtype) for s, part in zip(scale, start, strict=True)]

        def stretch(parts: Any) -> list[tf.Tensor]:
            return [s * part for s, part in zip(scale, parts, strict=True)]

        target = self.target_log_prob_fn
        return Problem(
            target.of(stretch) if isinstance(target, SumOverData) else lambda *parts: target(*stretch(parts)),
            [part / s for s, part in zip(scale, start, strict=True)],
            lambda parts: self.constrain(stretch(parts)),
            self.names,
        )


def problem_of(model: Any, num_chains: int, initial_state: Any, seed: tf.Tensor, pins: dict[str, Any]) -> Problem:
    """The problem that `sample_posterior`'s arguments describe; raises an error of one sentence if they are wrong."""
    if isinstance(model, tfp.distributions.JointDistribution):
        problem = _from_joint_distribution(model, num_chains, initial_state, seed, pins)
    elif pins:
        raise ValueError(
            f'Values are pinned for a joint distribution only, got {sorted(pins)} with a {type(model).__name__}.'
        )
    elif hasattr(model, 'target_log_prob_fn') and hasattr(model, 'initial_state'):
        start = model.initial_state(num_chains, seed) if initial_state is None else initial_state
        problem = _from_log_density(model.target_log_prob_fn, num_chains, start)
        problem = dataclasses.replace(problem, names=list(getattr(model, 'names', problem.names)))
    elif callable(model):
        if initial_state is None:
            raise ValueError('`initial_state` must be given with a log density, shaped [num_chains, ...]; got None.')
        problem = _from_log_density(model, num_chains, initial_state)
    else:
        raise TypeError(f'`model` must be a joint distribution, a log density or a posterior, got {model!r}.')
    _check_start(problem)
    return problem


def _from_log_density(log_prob_fn: Callable[..., tf.Tensor], num_chains: int, initial_state: Any) -> Problem:
    structure = initial_state
    parts = [tf.convert_to_tensor(part) for part in tf.nest.flatten(initial_state)]
    for part in parts:
        if part.shape.rank == 0 or part.shape[0] != num_chains:
            raise ValueError(
                f'`initial_state` must have {num_chains} chains as its first dimension, got a part of shape {part.shape}.'
            )
    return Problem(log_prob_fn, parts, lambda y: tf.nest.pack_sequence_as(structure, y), names_of(structure))


def _from_joint_distribution(
    model: Any, num_chains: int, initial_state: Any, seed: tf.Tensor, pins: dict[str, Any]
) -> Problem:
    pinned = PinnedModel(model, pins)
    if initial_state is None:
        start = _near_zero(pinned.target_log_prob_fn, num_chains, pinned.shapes, pinned.dtypes, seed)
    else:
        tf.nest.assert_same_structure(initial_state, pinned.structure)
        initial = tf.nest.map_structure(lambda x, dtype: tf.convert_to_tensor(x, dtype), initial_state, pinned.structure)
        start = pinned.unconstrain(initial)
        if any(part.shape.rank == 0 or part.shape[0] != num_chains for part in start):
            raise ValueError(
                f'`initial_state` must have {num_chains} chains as its first dimension, got shapes '
                f'{[part.shape.as_list() for part in tf.nest.flatten(initial)]}.'
            )
    return Problem(pinned.target_log_prob_fn, start, pinned.constrain, pinned.names)


def _near_zero(
    log_prob_fn: Callable[..., tf.Tensor], num_chains: int, shapes: list[Any], dtypes: list[tf.DType], seed: tf.Tensor
) -> list[tf.Tensor]:
    """Uniform on (-2, 2) in the unconstrained space, drawn again for chains that start where the density is not finite."""
    is_good = np.zeros(num_chains, bool)
    start = [
        np.zeros([num_chains, *shape.as_list()], dtype.as_numpy_dtype) for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    for attempt in range(_MAX_TRIES):
        rng = np.random.default_rng([*np.asarray(seed).view(np.uint32), attempt])
        for part in start:
            part[~is_good] = rng.uniform(-2.0, 2.0, size=part[~is_good].shape)
        is_good |= np.isfinite(tf.convert_to_tensor(log_prob_fn(*start)).numpy())
        if is_good.all():
            break
    return [tf.constant(part) for part in start]


def _check_start(problem: Problem) -> None:
    if not all(np.all(np.isfinite(part)) for part in problem.start):
        raise ValueError('`initial_state` must be finite and inside the support of every variable; it is not.')
    with tf.GradientTape() as tape:
        tape.watch(problem.start)
        log_prob = tf.convert_to_tensor(problem.target_log_prob_fn(*problem.start))
    if log_prob.shape != problem.start[0].shape[:1]:
        raise ValueError(
            f'The log density must be one value for each of {problem.start[0].shape[0]} chains, got shape {log_prob.shape}.'
        )
    for name, gradient in zip(problem.names, tape.gradient(log_prob, problem.start), strict=False):
        if gradient is None:
            raise ValueError(f'The log density has no gradient with respect to `{name}`.')
    bad = np.flatnonzero(~np.isfinite(log_prob.numpy()))
    if bad.size:
        raise ValueError(f'The log density at the start of chain {bad[0]} is {log_prob.numpy()[bad[0]]}, not finite.')
