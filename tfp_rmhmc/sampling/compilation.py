"""Whether XLA should compile a run."""

from __future__ import annotations

import tensorflow as tf

from tfp_rmhmc.metric import DenseMetric, Metric, SoftAbsMetric

__all__ = ['prefers_xla']

# On a CPU, XLA saves the millisecond that a graph's operations cost to start, each evaluation, and runs on one core. Where
# it factors matrices it loses: `jacobi_eigh` keeps up with LAPACK to 14 rows or so and falls behind quickly from there, and
# XLA's Cholesky decomposition takes several times as long (`python -m benchmarks step`). The largest number of chains with
# which XLA still wins, in 11 dimensions, and the power of D by which it falls:
_BREAK_EVEN = {SoftAbsMetric: (5000.0, 8.0), DenseMetric: (30.0, 3.1)}
# Beyond these an operation takes longer than to start it: 20,000 chains in 5 dimensions took XLA six times a graph's time.
_MAX_CHAINS = 5_000
_MAX_DIMENSION = 10_000


def prefers_xla(metric: Metric | None, num_chains: int, dimension: int) -> bool:
    """Whether XLA is expected to run a kernel with this metric faster than a plain `tf.function` does.

    On a GPU never: there a graph calls the vendor's batched factorisations, which XLA replaces by loops.
    """
    if tf.config.list_physical_devices('GPU') or num_chains > _MAX_CHAINS or dimension > _MAX_DIMENSION:
        return False
    return all(
        num_chains * (dimension / 11.0) ** power <= limit
        for kind, (limit, power) in _BREAK_EVEN.items()
        if isinstance(metric, kind)
    )
