"""The default of `sample_posterior`: a learned separable metric, `SeparableLeapfrog`, a tuned trajectory length."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_rmhmc.data_sum import SumOverData
from tfp_rmhmc.metric import MAX_LEARNED, Fit, ScaleHint, ScaleStructure, scale_hint
from tfp_rmhmc.sampling.checkpoint import Checkpoint
from tfp_rmhmc.sampling.compilation import Compiler, has_long_loops
from tfp_rmhmc.sampling.engine import Engine, Stretch, Tuning
from tfp_rmhmc.sampling.problem import Problem
from tfp_rmhmc.sampling.reuse import engine_of, graph_key, keep
from tfp_rmhmc.sampling.run import Run, Show, under
from tfp_rmhmc.sampling.runner import Chunk
from tfp_rmhmc.sampling.scales import LearnedScales
from tfp_rmhmc.sampling.warmup import MAX_STEPS, STRETCH, RunStretch, Tuned, warm_up

__all__ = ['AutomaticRun']

# Steps of all draws together from which on XLA, which takes some seconds to compile, pays. A step in a graph takes about
# 0.1 ms to start its operations. If so many draws need them, XLA compiles from the end of the warm-up on; else as soon as
# so many steps have been made.
_MIN_STEPS_FOR_XLA, _USUAL_DRAWS = 25_000, 1500
# Of sampling; warm-ups have numbers below it.
_FIRST_DRAW = 2**24


class AutomaticRun(Run):
    """A run of the default kernel.

    Args:
      problem, seed, compiler, checkpoint: as any run takes them.
      num_burnin, num_adaptation: transitions of the warm-up.
      step_size: the first one; None for a usual one.
      target_accept_prob: at which the step size aims; None to choose by what was learned.
      trajectory_length: None to find it.
    """

    kernel = 'auto'

    def __init__(
        self,
        problem: Problem,
        seed: tf.Tensor,
        compiler: Compiler,
        checkpoint: Checkpoint,
        num_burnin: int,
        num_adaptation: int,
        step_size: float | None,
        target_accept_prob: float | None,
        trajectory_length: float | None,
    ):
        super().__init__(problem, seed, compiler, checkpoint)
        self._plan = (num_burnin, num_adaptation, step_size, target_accept_prob, trajectory_length)
        self._engines: dict[Any, _TimedEngine] = {}
        self._found: Tuned | None = None

    @property
    def tuned(self) -> Tuned:
        """What the warm-up found."""
        assert self._found is not None
        return self._found

    def choice(self) -> str:
        tuned = self.tuned
        told = f'step size {tuned.step_size:.3g}, trajectory length {tuned.length:.3g}'
        if tuned.transitions_per_draw > 1:
            told += f', {tuned.transitions_per_draw} transitions a draw'
        return f'learned separable metric ({self.scales()}), {told}'

    def scales(self) -> LearnedScales:
        return LearnedScales.of(self.tuned.fit, self.problem.coordinate_names())

    def warmup_trace(self) -> dict[str, np.ndarray]:
        return self.tuned.trace

    def warmup_gradients(self) -> int:
        return self.tuned.gradients

    def _warm_up(self, saved: dict[str, np.ndarray], show: Show) -> None:
        """Finds metric, step size and length, unless a checkpoint has them."""
        if saved:
            self._found = _restored(saved)
            return

        if self._may_compile():
            self.compiler.prefer(self._traced_target[0])

        def run_of(structure: ScaleStructure, steps: float) -> RunStretch:
            self.compiler.prefer(
                self.compiler.is_xla or (_USUAL_DRAWS * steps >= _MIN_STEPS_FOR_XLA and self._may_compile())
            )
            return lambda *arguments: self.compiler.call(
                lambda is_xla: self._engine(structure, STRETCH, is_xla).run(*arguments)
            )

        self._found = warm_up(
            self.problem.start,
            *self._plan,
            self._seed,
            run_of,
            lambda phase, stretch: show(phase, stretch.trace),
            self._hint(),
        )
        self.save()

    def _hint(self) -> ScaleHint | None:
        """What the model says of scales at the start, if it says anything."""
        if self.problem.model_metric is None or self.problem.dimension > MAX_LEARNED:
            return None
        try:
            return scale_hint(self.problem.model_metric(), self.problem.start)
        except Exception:  # a model may be anything, and the draws tell all that is needed
            return None

    def _stretch(self, count: int, chunk_size: int) -> Chunk:
        tuned = self.tuned
        steps = tuned.transitions_per_draw * max(1.0, tuned.length / tuned.step_size)
        if not self.compiler.is_xla and self._may_compile():
            # From a draw on that does not depend on how many are asked for, so that a run and its extension agree.
            first = 0 if steps * _USUAL_DRAWS >= _MIN_STEPS_FOR_XLA else int(_MIN_STEPS_FOR_XLA / steps)
            self.compiler.prefer(self.num_draws >= first)
            if not self.compiler.is_xla:
                count = min(count, first - self.num_draws) if first > self.num_draws else count
        arguments = (
            [parts[-1] for parts in self.chunks[-1].states] if self.chunks else tuned.state,
            tuned.fit.parameters,
            Tuning.fixed(tuned.step_size),
            np.full(count * tuned.transitions_per_draw, tuned.length),
            _FIRST_DRAW + self.num_draws * tuned.transitions_per_draw,
            self._seed,
            False,
            MAX_STEPS,
        )
        structure = tuned.fit.structure
        stretch = self.compiler.call(lambda is_xla: self._engine(structure, chunk_size, is_xla).run(*arguments))
        draws = stretch.thinned(tuned.transitions_per_draw)
        return Chunk(draws.states, draws.trace)

    def _may_compile(self) -> bool:
        return not self._is_sum() and not tf.config.list_physical_devices('GPU')

    def _is_sum(self) -> bool:
        return isinstance(self.problem.target_log_prob_fn, SumOverData)

    @functools.cached_property
    def _traced_target(self) -> tuple[bool, bytes | None]:
        """Whether the log density goes through long loops; and the key of its programs, if it has one."""
        looks: list[bool] = []

        def value_and_gradient(*parts: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(parts)
                value = tf.convert_to_tensor(self.problem.target_log_prob_fn(*parts))
            looks.append(has_long_loops(value.graph))
            return value, tape.gradient(value, parts)

        traced = tf.function(value_and_gradient, autograph=False).get_concrete_function(*self.problem.start)
        return looks[-1], graph_key(traced)

    def _engine(self, structure: ScaleStructure, size: int, is_xla: bool) -> _TimedEngine:
        key = (structure, size, is_xla)
        if key not in self._engines:
            target_key = None if self._is_sum() else self._traced_target[1]
            lasting = None if target_key is None else (target_key, *key)
            engine = engine_of(lasting) or Engine(self.problem.target_log_prob_fn, structure, size, is_xla)
            self._engines[key] = _TimedEngine(engine, self.compiler, lasting)
        return self._engines[key]

    def _compiling(self) -> dict[str, float]:
        """Seconds that the first calls of programs took longer than others did for as many steps."""
        calls = [(key[-1], call) for key, engine in self._engines.items() for call in engine.calls]
        found = {'warmup': 0.0, 'sampling': 0.0}
        for is_xla, call in calls:
            if call.is_first:
                others = [c.seconds / c.steps for kind, c in calls if kind == is_xla and not c.is_first]
                rate = float(np.median(others)) if others else 0.0
                found[call.phase] += max(0.0, call.seconds - rate * call.steps)
        return found

    def _saved(self) -> dict[str, np.ndarray]:
        """What the warm-up found, as arrays."""
        tuned = self.tuned
        structure = tuned.fit.structure
        described = {
            'blocks': structure.blocks,
            'setters': structure.setters,
            'has_directions': structure.has_directions,
            'exponents': [[*key, value] for key, value in tuned.fit.exponents.items()],
            'gain': tuned.fit.gain,
            'residual': tuned.fit.residual,
            'residual_coordinates': tuned.fit.residual_coordinates,
            'step_size': tuned.step_size,
            'length': tuned.length,
            'transitions_per_draw': tuned.transitions_per_draw,
            'gradients': tuned.gradients,
        }
        saved = {'tuned': np.array(json.dumps(described))}
        saved |= {f'start.{i}': np.asarray(part) for i, part in enumerate(tuned.state)}
        saved |= {f'warmup.{key}': value for key, value in tuned.trace.items()}
        for b, parameters in enumerate(tuned.fit.parameters):
            saved |= {f'metric.{b}.{key}': value for key, value in parameters.items()}
        return saved


def _restored(saved: dict[str, np.ndarray]) -> Tuned:
    """The inverse of `_saved`."""
    described = json.loads(str(saved['tuned']))
    blocks, setters = (tuple(map(tuple, described[key])) for key in ('blocks', 'setters'))
    structure = ScaleStructure(blocks, setters, tuple(described['has_directions']))
    where = described['residual_coordinates']
    fit = Fit(
        structure,
        [under(saved, f'metric.{b}.') for b in range(len(structure.blocks))],
        {(i, j): value for i, j, value in described['exponents']},
        described['gain'],
        described['residual'],
        None if where is None else tuple(where),
    )
    start = under(saved, 'start.')
    state = [start[str(i)] for i in range(len(start))]
    numbers = {key: described[key] for key in ('step_size', 'length', 'transitions_per_draw', 'gradients')}
    return Tuned(state=state, fit=fit, trace=under(saved, 'warmup.'), **numbers)


class _Call(NamedTuple):
    phase: str
    is_first: bool
    seconds: float
    steps: int


class _TimedEngine:
    """An engine that remembers how long its calls took, and that later runs can take.

    Args:
      engine: that makes the transitions.
      compiler: that knows the phase.
      key: of its program, for later runs; None if it is for this run alone.
    """

    def __init__(self, engine: Engine, compiler: Compiler, key: Hashable | None):
        self._engine, self._compiler, self._key = engine, compiler, key
        self.calls: list[_Call] = []

    def run(self, *arguments: Any) -> Stretch:
        is_first = not self._engine.has_program
        begin = time.perf_counter()
        stretch = self._engine.run(*arguments)
        seconds = time.perf_counter() - begin
        keep(self._key, self._engine)
        steps = max(1, int(stretch.trace['n_steps'][:, 0].sum()))
        self.calls.append(_Call(self._compiler.phase, is_first, seconds, steps))
        return stretch
