"""What is to be sampled: a model, a log density or a posterior, as one unconstrained target with a start."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.argument import shown
from tfp_rmhmc.data_sum import SumOverData
from tfp_rmhmc.metric import PriorScales, SeparableMetric
from tfp_rmhmc.model import PinnedModel, names_of
from tfp_rmhmc.sampling.compilation import Compiler, said_of_singular_matrix

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
      log_prob_parts: each variable's share of the log density at unconstrained parts, by name, where that is known.
      labels: of the unconstrained parts, where they are not the names: `log tau` for a positive variable.
      model_metric: the separable metric that the model itself gives, at a call; None where it gives none.
    """

    target_log_prob_fn: Callable[..., tf.Tensor]
    start: list[tf.Tensor]
    constrain: Callable[[list[tf.Tensor]], Any]
    names: list[str]
    log_prob_parts: Callable[[list[tf.Tensor]], dict[str, tf.Tensor]] | None = None
    labels: list[str] | None = None
    model_metric: Callable[[], SeparableMetric] | None = None

    @property
    def dimension(self) -> int:
        """Of the flat unconstrained state."""
        return sum(int(np.prod(part.shape[1:])) for part in self.start)

    def part_names(self) -> list[str]:
        """A name for each unconstrained part."""
        return self.names if len(self.names) == len(self.start) else [f'x{i}' for i in range(len(self.start))]

    def coordinate_names(self) -> list[str]:
        """A name for each coordinate of the flat unconstrained state: `mu`, `log tau`, `theta[0]`, ..."""
        found = []
        for name, part in zip(self.labels or self.part_names(), self.start, strict=True):
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


def problem_of(
    model: Any,
    num_chains: int,
    initial_state: Any,
    seed: tf.Tensor,
    pins: dict[str, Any],
    bijector: Any = None,
    names: Any = None,
) -> Problem:
    """The problem that `sample_posterior`'s arguments describe; raises an error of one sentence if they are wrong."""
    if isinstance(model, tfp.distributions.JointDistribution):
        if bijector is not None or names is not None:
            name, value = ('names', names) if bijector is None else ('bijector', bijector)
            raise ValueError(f'`{name}` is for log densities, got {value!r} with a joint distribution, which has its own.')
        problem = _from_joint_distribution(model, num_chains, initial_state, seed, pins)
    elif pins:
        raise ValueError(
            f'Values are pinned for a joint distribution only, got {sorted(pins)} with a {type(model).__name__}.'
        )
    elif hasattr(model, 'target_log_prob_fn') and hasattr(model, 'initial_state'):
        start = model.initial_state(num_chains, seed) if initial_state is None else initial_state
        problem = _from_log_density(model.target_log_prob_fn, num_chains, start, bijector)
        has_metric = getattr(model, 'has_separable_metric', False)
        problem = dataclasses.replace(
            problem,
            names=list(getattr(model, 'names', problem.names)),
            model_metric=model.separable_metric if has_metric else None,
        )
    elif callable(model):
        if initial_state is None:
            raise ValueError('`initial_state` must be given with a log density, shaped [num_chains, ...]; got None.')
        problem = _from_log_density(model, num_chains, initial_state, bijector)
    else:
        raise TypeError(f'`model` must be a joint distribution, a log density or a posterior, got {model!r}.')
    if names is not None:
        is_list = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
        if not is_list or len(names) != len(problem.start) or len(set(names)) != len(names):
            raise ValueError(
                f'`names` must be {len(problem.start)} different names, one for each state part, got {shown(names)}.'
            )
        problem = dataclasses.replace(problem, names=[str(name) for name in names])
    _check_start(problem)
    return problem


def _from_log_density(log_prob_fn: Callable[..., tf.Tensor], num_chains: int, initial_state: Any, bijector: Any) -> Problem:
    try:
        parts = [tf.convert_to_tensor(part) for part in tf.nest.flatten(initial_state)]
    except ValueError:  # TensorFlow's words for a number that single precision does not hold
        raise ValueError(
            f'`initial_state` must be made of tensors, or of numbers that they can hold, got {shown(initial_state)}.'
        ) from None
    for part in parts:
        if part.shape.rank == 0 or part.shape[0] != num_chains:
            raise ValueError(
                f'`initial_state` must have {num_chains} chains as its first dimension, got a part of shape {part.shape}.'
            )
    names = names_of(initial_state)
    if bijector is None:
        return Problem(log_prob_fn, parts, lambda y: tf.nest.pack_sequence_as(initial_state, y), names)
    bijectors = _bijectors_of(bijector, initial_state)
    ndims = [b.inverse_event_ndims(part.shape.rank - 1) for b, part in zip(bijectors, parts, strict=True)]

    def forward(parts: Any) -> list[tf.Tensor]:
        return [b.forward(part) for b, part in zip(bijectors, parts, strict=True)]

    def log_jacobian(*parts: tf.Tensor) -> tf.Tensor:
        return tf.add_n(
            [
                # A constant Jacobian comes without the chains' dimension.
                b.forward_log_det_jacobian(part, event_ndims=n)
                + tf.zeros(tf.shape(part)[: part.shape.rank - n], part.dtype)
                for b, part, n in zip(bijectors, parts, ndims, strict=True)
            ]
        )

    def target(*parts: tf.Tensor) -> tf.Tensor:
        return log_prob_fn(*forward(parts)) + log_jacobian(*parts)

    return Problem(
        log_prob_fn.of(forward, log_jacobian) if isinstance(log_prob_fn, SumOverData) else target,
        [tf.identity(b.inverse(part)) for b, part in zip(bijectors, parts, strict=True)],
        lambda y: tf.nest.pack_sequence_as(initial_state, forward(y)),
        names,
    )


def _bijectors_of(bijector: Any, initial_state: Any) -> list[Any]:
    """One for each part of a state; None stands for the identity."""
    try:
        bijectors = [bijector] if isinstance(bijector, tfp.bijectors.Bijector) else tf.nest.flatten(bijector)
    except TypeError:  # a dict whose keys cannot be sorted
        bijectors = [bijector]
    is_known = all(b is None or isinstance(b, tfp.bijectors.Bijector) for b in bijectors)
    has_names = not isinstance(initial_state, dict) or (isinstance(bijector, dict) and set(bijector) == set(initial_state))
    if not is_known or not has_names or len(bijectors) != len(tf.nest.flatten(initial_state)):
        raise ValueError(
            '`bijector` must be a `tfb.Bijector` for each part of `initial_state`, in the same structure, with None where '
            f'there is no constraint; got {shown(bijector)}.'
        )
    return [tfp.bijectors.Identity() if b is None else b for b in bijectors]


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
    return Problem(
        pinned.target_log_prob_fn,
        start,
        pinned.constrain,
        pinned.names,
        pinned.log_prob_parts,
        pinned.labels,
        lambda: SeparableMetric(PriorScales(pinned)),
    )


def _near_zero(
    log_prob_fn: Callable[..., tf.Tensor], num_chains: int, shapes: list[Any], dtypes: list[tf.DType], seed: tf.Tensor
) -> list[tf.Tensor]:
    """Uniform on (-2, 2) in the unconstrained space, drawn again for chains that start where the density is not finite."""
    is_good = np.zeros(num_chains, bool)
    start = [
        np.zeros([num_chains, *shape.as_list()], dtype.as_numpy_dtype) for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    # Traced once: eagerly, an auto-batched model would be traced in each attempt.
    specs = [tf.TensorSpec(part.shape, part.dtype) for part in start]

    @functools.cache
    def log_prob(is_xla: bool) -> Callable[..., tf.Tensor]:
        traced = tf.function(lambda *parts: tf.convert_to_tensor(log_prob_fn(*parts)), autograph=False, jit_compile=is_xla)
        return traced.get_concrete_function(*specs)

    compiler = Compiler(None)
    for attempt in range(_MAX_TRIES):
        rng = np.random.default_rng([*np.asarray(seed).view(np.uint32), attempt])
        for part in start:
            part[~is_good] = rng.uniform(-2.0, 2.0, size=part[~is_good].shape)
        tried = [tf.constant(part) for part in start]
        is_good |= np.isfinite(compiler.call(lambda is_xla: log_prob(is_xla)(*tried)).numpy())  # noqa: B023 (at once)
        if is_good.all():
            break
    return [tf.constant(part) for part in start]


def _check_start(problem: Problem) -> None:
    """Raises an error of one sentence that names the variable if a chain cannot leave its start."""
    for name, part in zip(problem.part_names(), problem.start, strict=True):
        chain = _first_bad_chain(part)
        if chain is not None:
            raise ValueError(
                f'`initial_state` must be finite and inside the support of every variable; that of `{name}` is not in '
                f'chain {chain}.'
            )
    try:
        with tf.GradientTape() as tape:
            tape.watch(problem.start)
            log_prob = tf.convert_to_tensor(problem.target_log_prob_fn(*problem.start))
        all_gradients = tape.gradient(log_prob, problem.start)
    except tf.errors.InvalidArgumentError as error:
        said = said_of_singular_matrix(error)
        if said is None:
            raise
        raise ValueError(f'The log density has no value or gradient at the start of one of the chains: {said}.') from error
    if log_prob.shape != problem.start[0].shape[:1]:
        raise ValueError(
            f'The log density must be one value for each of {problem.start[0].shape[0]} chains, got shape {log_prob.shape}.'
        )
    gradients = {}
    for name, gradient in zip(problem.part_names(), all_gradients, strict=True):
        if gradient is None:
            raise ValueError(f'The log density has no gradient with respect to `{name}`.')
        gradients[name] = tf.convert_to_tensor(gradient)  # that of `tf.gather` is none
    chain = _first_bad_chain(log_prob)
    if chain is not None:
        shares = problem.log_prob_parts(problem.start) if problem.log_prob_parts is not None else {}
        culprits = [
            name for name, share in shares.items() if not np.isfinite(np.broadcast_to(share, log_prob.shape)[chain])
        ]
        reason = f': that of {_quoted(culprits)} is not'
        if not culprits:
            culprits = [name for name, gradient in gradients.items() if not np.all(np.isfinite(gradient[chain]))]
            reason = f', nor is its gradient with respect to {_quoted(culprits)}'
        raise ValueError(
            f'The log density at the start of chain {chain} is {log_prob.numpy()[chain]}, not finite'
            f'{reason if culprits else ""}.'
        )
    for name, gradient in gradients.items():
        chain = _first_bad_chain(gradient)
        if chain is not None:
            raise ValueError(
                f'The gradient of the log density with respect to `{name}` is not finite at the start of chain {chain}, '
                'which could never leave it.'
            )


def _first_bad_chain(x: tf.Tensor) -> int | None:
    """The first chain of `[chains, ...]` with a number that is not finite, if there is one."""
    bad = np.flatnonzero(~np.all(np.isfinite(np.reshape(x, [len(x), -1])), axis=-1))
    return int(bad[0]) if bad.size else None


def _quoted(names: list[str]) -> str:
    return ', '.join(f'`{name}`' for name in names)
