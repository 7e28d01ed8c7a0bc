"""Whether XLA should compile a run."""

from __future__ import annotations

import tensorflow as tf

from tfp_rmhmc.metric import DenseMetric, Metric, SoftAbsMetric

__all__ = ['prefers_xla']

# On a CPU, XLA saves the millisecond that a graph's operations cost to start, each evaluation, and loses where it factors
# matrices: `jacobi_eigh` at D = 11 takes twice LAPACK's time and grows faster with D, and XLA's Cholesky decomposition and
# batched products take several times as long (`python -m benchmarks step`). Largest value of `num_chains (D / 11)^3.1`
# where it still wins:
_BREAK_EVEN = {SoftAbsMetric: 200.0, DenseMetric: 30.0}
# Beyond this an operation takes longer than to start it.
_MAX_DIMENSION = 10_000


def prefers_xla(metric: Metric | None, num_chains: int, dimension: int) -> bool:
    """Whether XLA is expected to run a kernel with this metric faster than a plain `tf.function` does.

    On a GPU never: there a graph calls the vendor's batched factorisations, which XLA replaces by loops.
    """
    if tf.config.list_physical_devices('GPU') or dimension > _MAX_DIMENSION:
        return False
    load = num_chains * (dimension / 11.0) ** 3.1
    return all(load <= limit for kind, limit in _BREAK_EVEN.items() if isinstance(metric, kind))
