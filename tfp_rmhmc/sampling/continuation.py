"""From a run of the default kernel to its result, and on from there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_rmhmc.sampling.automatic import AutomaticRun
from tfp_rmhmc.sampling.engine import Stretch
from tfp_rmhmc.sampling.problem import Problem
from tfp_rmhmc.sampling.result import PosteriorDraws, least_bulk_ess
from tfp_rmhmc.sampling.runner import progress_bar
from tfp_rmhmc.sampling.scales import LearnedScales

__all__ = ['drawn', 'show_chunk', 'shown_by']


def drawn(
    run: AutomaticRun,
    problem: Problem,
    num_draws: int,
    chunk_size: int,
    target_ess: float | None,
    bar: Any,
    begin: float,
) -> PosteriorDraws:
    """The result of a run after it has drawn until there are `num_draws`, or enough."""

    def is_enough() -> bool:
        if target_ess is None:
            return False
        states, _ = run.joined()
        return least_bulk_ess(states) >= target_ess

    assert run.tuned is not None
    scales = LearnedScales.of(run.tuned.fit, problem.coordinate_names())
    choice = (
        f'learned separable metric ({scales}), step size {run.tuned.step_size:.3g}, '
        f'trajectory length {run.tuned.length:.3g}'
        + (f', {run.tuned.transitions_per_draw} transitions a draw' if run.tuned.transitions_per_draw > 1 else '')
    )
    bar.set_description(choice if len(choice) < 100 else f'{choice[:97]}...')
    warm = time.perf_counter()
    is_whole = run.draw(num_draws, chunk_size, shown_by(bar), is_enough)
    bar.close()
    states, traced = run.joined()
    if len(states[0]) > num_draws:  # a checkpoint may hold more
        states, traced = [x[:num_draws] for x in states], {key: value[:num_draws] for key, value in traced.items()}

    def extend(num_more: int, progress: bool | None) -> PosteriorDraws:
        more = progress_bar(num_more, progress)
        return drawn(run, problem, run.num_draws + num_more, chunk_size, None, more, time.perf_counter())

    return PosteriorDraws(
        draws=problem.constrain([tf.constant(part) for part in states]),
        trace=traced,
        warmup=run.tuned.trace,
        names=problem.names,
        seconds={
            'warmup': warm - begin,
            'sampling': time.perf_counter() - warm,
            'total': time.perf_counter() - begin,
        },
        is_compiled=run.is_compiled,
        is_partial=not is_whole,
        gradients={'warmup': run.tuned.gradients, 'sampling': int(traced['n_steps'].sum())},
        choice=choice,
        remarks=list(run.remarks),
        scales=scales,
        extend_fn=extend,
    )


def shown_by(bar: Any) -> Callable[[str, Stretch], None]:
    """What tells a progress bar of each stretch: phase, step size, gradients a draw, acceptance, divergences so far."""
    diverged = 0

    def show(phase: str, stretch: Stretch) -> None:
        nonlocal diverged
        diverged += int(stretch.trace['diverging'].sum())
        show_chunk(bar, phase, stretch.trace, diverged)

    return show


def show_chunk(bar: Any, phase: str, trace: dict[str, np.ndarray], diverged: int, is_compiled: bool | None = None) -> None:
    """Moves a progress bar on by a chunk of transitions."""
    bar.update(len(trace['lp']))
    bar.set_description(phase if is_compiled is None else f'{phase} ({"XLA" if is_compiled else "graph"})')
    bar.set_postfix(
        step=f'{trace["step_size"][-1].mean():.3g}',
        gradients=f'{trace["n_steps"].mean():.1f}',
        accept=f'{trace["acceptance_rate"].mean():.2f}',
        diverged=diverged,
    )
