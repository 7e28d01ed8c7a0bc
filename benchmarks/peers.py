"""The same work in other libraries, where they can be imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ['blackjax_funnel_transition', 'has']


def has(name: str) -> bool:
    """Whether a library can be imported."""
    return importlib.util.find_spec(name) is not None


def blackjax_funnel_transition(num_chains: int, step_size: float, num_steps: int) -> tuple[Callable[[], Any], float]:
    """One compiled transition of BlackJAX's rmhmc on the 11-D funnel for `num_chains`, and its mean acceptance.

    The diagonal of the Hessian is jittered by 1e-4 arange(D): with repeated eigenvalues its gradient is NaN and nothing is
    accepted.
    """
    import blackjax
    import jax
    import jax.numpy as jnp

    jax.config.update('jax_enable_x64', True)
    from benchmarks import targets

    def log_prob(q: Any) -> Any:
        v, x = q[0], q[1:]
        return -(v**2) / 18.0 + 5.0 * v - 0.5 * jnp.exp(v) * jnp.sum(x**2)

    def metric(q: Any) -> Any:
        eigenvalues, vectors = jnp.linalg.eigh(-jax.hessian(log_prob)(q) + jnp.diag(1e-4 * jnp.arange(11)))
        return (vectors * (eigenvalues / jnp.tanh(1e6 * eigenvalues))) @ vectors.T

    kernel = blackjax.rmhmc(log_prob, step_size, metric, num_integration_steps=num_steps)
    states = jax.vmap(kernel.init)(jnp.array(targets.funnel(11).draws(num_chains, 3)))
    step = jax.jit(jax.vmap(kernel.step))
    keys = jax.random.split(jax.random.PRNGKey(0), num_chains)
    _, info = step(keys, states)
    return lambda: step(keys, states)[0].position, float(np.mean(info.acceptance_rate))
