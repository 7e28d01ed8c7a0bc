"""From a run to its result, and on from there."""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from tfp_rmhmc.sampling.progress import progress_bar, shown_by
from tfp_rmhmc.sampling.result import PosteriorDraws, least_bulk_ess
from tfp_rmhmc.sampling.run import Run

__all__ = ['drawn']


def drawn(run: Run, num_draws: int, chunk_size: int, target_ess: float | None, bar: Any) -> PosteriorDraws:
    """The result of a run after it has drawn until there are `num_draws`, or enough."""

    def is_enough() -> bool:
        return target_ess is not None and least_bulk_ess(run.joined().states) >= target_ess

    choice = run.choice()
    bar.set_description(choice if len(choice) < 100 else f'{choice[:97]}...')
    is_whole = run.draw(num_draws, chunk_size, shown_by(bar), is_enough)
    # A checkpoint, or an extension of this result, may have more.
    states, traced = run.joined()
    states, traced = [x[:num_draws] for x in states], {key: value[:num_draws] for key, value in traced.items()}
    num_drawn = len(states[0])

    def extend(num_more: int, progress: bool | None) -> PosteriorDraws:
        with contextlib.closing(progress_bar(num_more, progress)) as more, run.checkpoint.held():
            return drawn(run, num_drawn + num_more, chunk_size, None, more)

    return PosteriorDraws(
        draws=run.problem.constrain([tf.constant(part) for part in states]),
        trace=traced,
        warmup=run.warmup_trace(),
        names=run.problem.names,
        seconds=run.times(),
        is_compiled=run.compiler.is_xla,
        is_partial=not is_whole,
        gradients={'warmup': run.warmup_gradients(), 'sampling': int(traced['n_steps'].sum())},
        kernel=run.kernel,
        choice=choice,
        remarks=run.remarks(),
        scales=run.scales(),
        extend_fn=extend,
    )
