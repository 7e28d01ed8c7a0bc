"""Time and memory of a call."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = [
    'exponent',
    'growth_during',
    'microseconds_of_step',
    'peak_megabytes',
    'resident_megabytes',
    'seconds_in_turns',
    'seconds_of',
]


def seconds_of(fn: Callable[[], Any], least_seconds: float = 1.0, most_calls: int = 200) -> tuple[float, float]:
    """First call (tracing and compilation), and the fastest of the calls that follow for `least_seconds`."""
    first = _seconds(fn)
    best, spent, calls = float('inf'), 0.0, 0
    while spent < least_seconds and calls < most_calls:
        took = _seconds(fn)
        best, spent, calls = min(best, took), spent + took, calls + 1
    return first, best


def seconds_in_turns(fns: list[Callable[[], Any]], least_seconds: float = 10.0, most_rounds: int = 60) -> np.ndarray:
    """Of calls in turns for `least_seconds`, after one call of each that is not counted: `[rounds, len(fns)]`.

    The machine's speed varies by a half within minutes, and both sides of a turn see the same: the median of their ratios
    is known to some hundredths where the ratio of two minima is not.
    """
    for fn in fns:
        _finish(fn())
    rows: list[list[float]] = []
    while len(rows) < most_rounds and (len(rows) < 5 or np.sum(rows) < least_seconds):
        rows.append([_seconds(fn) for fn in fns])
    return np.array(rows)


def _seconds(fn: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    _finish(fn())
    return time.perf_counter() - begin


def microseconds_of_step(
    kernel: tfp.mcmc.TransitionKernel, start: tf.Tensor, num_steps: int, jit: bool, least_seconds: float = 1.5
) -> float:
    """Of a transition, for each chain and step, in a chain that has begun already."""
    results = kernel.bootstrap_results(start)
    transition = tf.function(
        lambda q, results: kernel.one_step(q, results, seed=(1, 2))[0], autograph=False, jit_compile=jit
    )
    return 1e6 * seconds_of(lambda: transition(start, results), least_seconds)[1] / start.shape[0] / num_steps


def _finish(result: Any) -> None:
    """Waits for a result that is computed in the background, as JAX's are."""
    if hasattr(result, 'block_until_ready'):
        result.block_until_ready()


def peak_megabytes(module: str, expression: str) -> float:
    """What the first run of a function takes on top of what was there, in MB, in a process of its own.

    In a process that has run before, TensorFlow's allocator has memory left over and nothing would grow.

    Args:
      module: that is imported.
      expression: on that module's names, giving a function of no arguments that has been traced but not run.
    """
    script = f'from {module} import *; from benchmarks.measure import growth_during; print(growth_during({expression}))'
    environment = os.environ | {'TF_CPP_MIN_LOG_LEVEL': '3'}
    ran = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, env=environment, check=False)
    return float(ran.stdout.split()[-1]) if ran.returncode == 0 else float('nan')


def growth_during(fn: Callable[[], Any]) -> float:
    """The growth of the process's largest resident memory during a call, in MB."""
    gc.collect()
    with open('/proc/self/clear_refs', 'w') as file:
        file.write('5')  # forget the largest so far
    before = _status('VmRSS')
    _finish(fn())
    return (_status('VmHWM') - before) / 1024.0


def resident_megabytes() -> float:
    """The process's resident memory, in MB."""
    return _status('VmRSS') / 1024.0


def _status(key: str) -> float:
    with open('/proc/self/status') as file:
        return float(next(line for line in file if line.startswith(key)).split()[1])


def exponent(sizes: list[float], values: list[float]) -> float:
    """The power with which values grow, fitted to the upper half of the sizes."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(values[half:]), 1)[0])
