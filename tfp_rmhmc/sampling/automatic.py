"""The default of `sample_posterior`: a learned separable metric, `SeparableLeapfrog`, a tuned trajectory length."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.data_sum import SumOverData
from tfp_rmhmc.metric import Fit, ScaleStructure
from tfp_rmhmc.sampling.engine import Engine, Stretch, Tuning
from tfp_rmhmc.sampling.problem import Problem
from tfp_rmhmc.sampling.runner import Checkpoint
from tfp_rmhmc.sampling.warmup import MAX_STEPS, STRETCH, Tuned, warm_up

__all__ = ['AutomaticRun']

# Steps of all draws together from which on XLA, which takes some seconds to compile, pays. A step in a graph takes about
# 0.1 ms to start its operations.
_MIN_STEPS_FOR_XLA = 25_000
# Of sampling; warm-ups have numbers below it.
_FIRST_DRAW = 2**24


class AutomaticRun:
    """A run that has been warmed up, or will be, and goes on as long as one likes.

    The random numbers of draw n depend on the seed and on n alone, so that draws do not depend on how often a run was
    interrupted, continued or extended.

    Args:
      problem: the target and a start.
      seed: int32[2].
      target_accept_prob: at which the step size aims.
      jit_compile: whether XLA compiles the sampling; None for where it pays.
      checkpoint: where the run is saved.

    Attributes:
      states: draws so far, unconstrained, each part `[n, chains, event...]`.
      trace: of the draws, dict of `[n, chains]`.
      tuned: what the warm-up found.
      is_compiled: whether XLA compiled the sampling.
      remarks: what the user should know, one sentence each.
    """

    def __init__(
        self,
        problem: Problem,
        seed: tf.Tensor,
        target_accept_prob: float,
        jit_compile: bool | None,
        checkpoint: Checkpoint,
    ):
        self._problem, self._seed = problem, seed
        self._target_accept_prob, self._jit_compile = target_accept_prob, jit_compile
        self._checkpoint = checkpoint
        self._engines: dict[Any, Engine] = {}
        self.states: list[list[np.ndarray]] = []
        self.traces: list[dict[str, np.ndarray]] = []
        self.tuned: Tuned | None = None
        self.is_compiled = bool(jit_compile)
        self.remarks: list[str] = []

    @property
    def num_draws(self) -> int:
        """So far, of each chain."""
        return sum(len(parts[0]) for parts in self.states)

    def warm_up(
        self,
        num_burnin: int,
        num_adaptation: int,
        step_size: float | None,
        trajectory_length: float | None,
        show: Callable[[str, Stretch], None],
    ) -> None:
        """Finds metric, step size and length, unless a checkpoint has them."""
        saved = self._checkpoint.load()
        if saved:
            self._restore(saved)
            return
        self.tuned = warm_up(
            self._problem.start,
            num_burnin,
            num_adaptation,
            step_size,
            trajectory_length,
            self._seed,
            lambda structure: self._engine(structure, STRETCH, bool(self._jit_compile)),
            show,
        )
        self._save()

    def draw(
        self, num_draws: int, chunk_size: int, show: Callable[[str, Stretch], None], is_enough: Callable[[], bool]
    ) -> bool:
        """Goes on until there are `num_draws` of each chain, or enough; returns False if it was interrupted."""
        assert self.tuned is not None
        tuned = self.tuned
        steps = num_draws * tuned.transitions_per_draw * max(1.0, tuned.length / tuned.step_size)
        if self._jit_compile is None and not self.is_compiled:
            self.is_compiled = steps >= _MIN_STEPS_FOR_XLA and self._may_compile()
        try:
            while self.num_draws < num_draws and not (self.states and is_enough()):
                count = min(chunk_size, num_draws - self.num_draws)
                stretch = self._stretch(tuned, count, chunk_size)
                self.states.append(stretch.states)
                self.traces.append(stretch.trace)
                self._save()
                show('sampling', stretch)
        except KeyboardInterrupt:
            if not self.states:
                raise
            return False
        return True

    def _may_compile(self) -> bool:
        is_sum = isinstance(self._problem.target_log_prob_fn, SumOverData)
        return not is_sum and not tf.config.list_physical_devices('GPU')

    def _stretch(self, tuned: Tuned, count: int, chunk_size: int) -> Stretch:
        log_step = float(np.log(tuned.step_size))
        state = [parts[-1] for parts in self.states[-1]] if self.states else tuned.state
        arguments = (
            state,
            tuned.fit.parameters,
            Tuning(log_step, log_step, 0.0, 0.0, 0.0),
            np.full(count * tuned.transitions_per_draw, tuned.length),
            _FIRST_DRAW + self.num_draws * tuned.transitions_per_draw,
            self._seed,
            False,
            MAX_STEPS,
        )
        per_draw = tuned.transitions_per_draw
        try:
            return self._engine(tuned.fit.structure, chunk_size, self.is_compiled).run(*arguments).thinned(per_draw)
        except Exception as error:  # anything that XLA cannot do; if the target is at fault, the graph raises too
            if not self.is_compiled or self._jit_compile is not None:
                raise
            reason = str(error).strip().split('\n')[0][:200]
            self.remarks.append(f'XLA could not compile the target, so it ran in a graph: {reason}')
            self.is_compiled = False
            return self._engine(tuned.fit.structure, chunk_size, False).run(*arguments).thinned(per_draw)

    def _engine(self, structure: ScaleStructure, size: int, jit_compile: bool) -> Engine:
        key = (structure, size, jit_compile)
        if key not in self._engines:
            target = self._problem.target_log_prob_fn
            self._engines[key] = Engine(target, structure, size, jit_compile, self._target_accept_prob)
        return self._engines[key]

    def joined(self) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """All draws and their trace."""
        states = [np.concatenate([parts[i] for parts in self.states]) for i in range(len(self._problem.start))]
        return states, {key: np.concatenate([t[key] for t in self.traces]) for key in self.traces[0]}

    def _save(self) -> None:
        if self._checkpoint.is_wanted:
            self._checkpoint.save(self._saved())

    def _saved(self) -> dict[str, np.ndarray]:
        """The run as arrays."""
        tuned = self.tuned
        assert tuned is not None
        structure = tuned.fit.structure
        described = {
            'blocks': structure.blocks,
            'setters': structure.setters,
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
        if self.states:
            states, traced = self.joined()
            saved |= {f'state.{i}': part for i, part in enumerate(states)}
            saved |= {f'trace.{key}': value for key, value in traced.items()}
        return saved

    def _restore(self, saved: dict[str, np.ndarray]) -> None:
        def under(prefix: str) -> dict[str, np.ndarray]:
            return {key.removeprefix(prefix): value for key, value in saved.items() if key.startswith(prefix)}

        described = json.loads(str(saved['tuned']))
        structure = ScaleStructure(*[tuple(map(tuple, described[key])) for key in ('blocks', 'setters')])
        where = described['residual_coordinates']
        fit = Fit(
            structure,
            [under(f'metric.{b}.') for b in range(len(structure.blocks))],
            {(i, j): value for i, j, value in described['exponents']},
            described['gain'],
            described['residual'],
            None if where is None else tuple(where),
        )
        start = under('start.')
        state = [start[str(i)] for i in range(len(start))]
        self.tuned = Tuned(
            state,
            fit,
            described['step_size'],
            described['length'],
            described['transitions_per_draw'],
            described['gradients'],
            under('warmup.'),
        )
        parts = under('state.')
        if parts:
            self.states = [[parts[str(i)] for i in range(len(parts))]]
            self.traces = [under('trace.')]
