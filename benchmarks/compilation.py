"""Time from import to the first draw, and how compilation depends on L and D."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from benchmarks import targets

FIRST_DRAW = """
import time
begin = time.perf_counter()
import numpy as np, tensorflow as tf, tensorflow_probability as tfp, tfp_rmhmc as rm
from benchmarks import targets
imported = time.perf_counter()
target = targets.funnel(11)
kernel = rm.ExplicitRiemannianHMC(target.log_prob, np.float64(0.2), 25, metric=rm.SoftAbsMetric(structure='arrowhead'))
start = tf.constant(target.draws(4, 1))
run = tf.function(
    lambda: tfp.mcmc.sample_chain(1, start, kernel=kernel, trace_fn=None, seed=(1, 2)), autograph=False, jit_compile={jit}
)
run()
print(imported - begin, time.perf_counter() - imported)
"""


def run(quick: bool = False) -> dict:
    """Tables of seconds."""
    found: dict = {}
    for jit in (False, True):
        command = [sys.executable, '-c', FIRST_DRAW.format(jit=jit)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        found[f'first draw, {"XLA" if jit else "graph"}'] = [float(value) for value in output]
        print(f'{"XLA" if jit else "graph":6} import {float(output[0]):4.1f} s, first draw after {float(output[1]):4.1f} s')
    print('\nseconds to trace, compile and run one transition under XLA, and calls of the target while tracing')
    cases = [(11, 1), (11, 10), (11, 100)] + ([] if quick else [(11, 1000), (25, 10), (51, 10)])
    for dimension, num_steps in cases:
        calls = []
        target = targets.funnel(dimension)

        def counted(q, target=target, calls=calls):
            calls.append(1)
            return target.log_prob(q)

        @tf.function(autograph=False, jit_compile=True)
        def transition(q, counted=counted, num_steps=num_steps):
            metric = rm.SoftAbsMetric(structure='arrowhead')
            kernel = rm.ExplicitRiemannianHMC(counted, np.float64(0.01), num_steps, metric=metric)
            return tfp.mcmc.sample_chain(1, q, kernel=kernel, trace_fn=None, seed=(1, 2))

        start = tf.constant(target.draws(1, 1))
        begin = time.perf_counter()
        transition(start)
        first = time.perf_counter() - begin
        begin = time.perf_counter()
        transition(start)
        again = time.perf_counter() - begin
        found[f'D={dimension} L={num_steps}'] = {'compile': first - again, 'run': again, 'traces': len(calls)}
        print(
            f'D = {dimension:3d}  L = {num_steps:5d}  compile {first - again:5.1f} s  run {again:7.4f} s  {len(calls)}',
            flush=True,
        )
    return found
