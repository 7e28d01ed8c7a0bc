"""The same work in other libraries, where they can be imported."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = [
    'BLACKJAX_CASES',
    'blackjax_draws',
    'blackjax_funnel_transition',
    'funnel_in_torch',
    'hamiltorch_draws',
    'hamiltorch_funnel_steps',
    'hamiltorch_network_steps',
    'has',
    'mici_funnel_steps',
]


def has(name: str) -> bool:
    """Whether a library can be imported."""
    return importlib.util.find_spec(name) is not None


# What BlackJAX samples here: `(target, step sizes to try, integration time)`.
BLACKJAX_CASES = {
    'funnel 11': (('funnel', 11), (0.2, 0.4), 7.0),
    'funnel 51': (('funnel', 51), (0.2,), 7.0),
    'logistic 1000 x 25': (('logistic', 25), (0.4, 0.8), 1.6),
}


def _blackjax_target(kind: str, dimension: int) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Log density and metric in JAX: SoftAbs with alpha = 1e6 on the funnel, the Hessian itself on the log-concave one.

    The diagonal of the funnel's Hessian is jittered by 1e-4 arange(D): with repeated eigenvalues its gradient is NaN and
    nothing is accepted.
    """
    import jax
    import jax.numpy as jnp

    from benchmarks import targets

    jax.config.update('jax_enable_x64', True)
    if kind == 'logistic':
        data = targets.logistic(1000, dimension)
        x, y = jnp.array(data.inputs), jnp.array(data.labels)

        def logistic_log_prob(w: Any) -> Any:
            logits = x @ w
            return jnp.sum(y * logits - jax.nn.softplus(logits)) - 0.5 * jnp.sum(w**2)

        return logistic_log_prob, lambda w: -jax.hessian(logistic_log_prob)(w)

    def log_prob(q: Any) -> Any:
        v, x = q[0], q[1:]
        return -(v**2) / 18.0 + 0.5 * (dimension - 1) * v - 0.5 * jnp.exp(v) * jnp.sum(x**2)

    def metric(q: Any) -> Any:
        eigenvalues, vectors = jnp.linalg.eigh(-jax.hessian(log_prob)(q) + jnp.diag(1e-4 * jnp.arange(dimension)))
        return (vectors * (eigenvalues / jnp.tanh(1e6 * eigenvalues))) @ vectors.T

    return log_prob, metric


def blackjax_funnel_transition(num_chains: int, step_size: float, num_steps: int) -> tuple[Callable[[], Any], float]:
    """One compiled transition of BlackJAX's rmhmc on the 11-D funnel for `num_chains`, and its mean acceptance."""
    import blackjax
    import jax
    import jax.numpy as jnp

    from benchmarks import targets

    kernel = blackjax.rmhmc(*_with_step(_blackjax_target('funnel', 11), step_size), num_integration_steps=num_steps)
    states = jax.vmap(kernel.init)(jnp.array(targets.funnel(11).draws(num_chains, 3)))
    step = jax.jit(jax.vmap(kernel.step))
    keys = jax.random.split(jax.random.PRNGKey(0), num_chains)
    _, info = step(keys, states)
    return lambda: step(keys, states)[0].position, float(np.mean(info.acceptance_rate))


def blackjax_draws(case: str, start: np.ndarray, num_draws: int) -> Iterator[tuple[float, np.ndarray, float, float]]:
    """Step size, draws `[num_draws, chains, D]`, acceptance and seconds of BlackJAX's rmhmc, for each step size to try.

    It has no adaptation of its own for this kernel, and its trajectories are of one length.
    """
    import blackjax
    import jax
    import jax.numpy as jnp

    target, step_sizes, length = BLACKJAX_CASES[case]
    for step_size in step_sizes:
        kernel = blackjax.rmhmc(
            *_with_step(_blackjax_target(*target), step_size), num_integration_steps=round(length / step_size)
        )

        @jax.jit
        def run(states: Any, key: Any, kernel: Any = kernel) -> Any:
            def transition(states: Any, key: Any) -> Any:
                states, info = jax.vmap(kernel.step)(jax.random.split(key, len(start)), states)
                return states, (states.position, info.acceptance_rate)

            return jax.lax.scan(transition, states, jax.random.split(key, num_draws))[1]

        begin = time.perf_counter()
        draws, acceptance = run(jax.vmap(kernel.init)(jnp.array(start)), jax.random.PRNGKey(0))
        draws.block_until_ready()
        yield step_size, np.asarray(draws), float(np.mean(acceptance)), time.perf_counter() - begin


def _with_step(target: tuple[Any, Any], step_size: float) -> tuple[Any, float, Any]:
    """The first arguments of `blackjax.rmhmc`."""
    return target[0], step_size, target[1]


def mici_funnel_steps(step_size: float, num_steps: int, jitter: float, num_chains: int = 20) -> tuple[float, float]:
    """Seconds for each step of Mici's implicit leapfrog on the 11-D funnel, and the share of trajectories that raise.

    Mici runs one chain at a time. Derivatives are written out, so that only its own work is measured. `jitter` times
    arange(D) is added to the diagonal of the Hessian; with repeated eigenvalues its gradient is NaN.
    """
    import mici

    from benchmarks import targets

    def energy(q: np.ndarray) -> float:
        return q[0] ** 2 / 18.0 - 5.0 * q[0] + 0.5 * np.exp(q[0]) * (q[1:] @ q[1:])

    def gradient(q: np.ndarray) -> np.ndarray:
        x, precision = q[1:], np.exp(q[0])
        return np.append(q[0] / 9.0 - 5.0 + 0.5 * precision * (x @ x), precision * x)

    def hessian(q: np.ndarray) -> np.ndarray:
        x, precision = q[1:], np.exp(q[0])
        matrix = precision * np.eye(11)
        matrix[0, 0] = 1.0 / 9.0 + 0.5 * precision * (x @ x)
        matrix[0, 1:] = matrix[1:, 0] = precision * x
        return matrix + np.diag(jitter * np.arange(11))

    def third_derivative_product(q: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        x, precision = q[1:], np.exp(q[0])

        def product(m: np.ndarray) -> np.ndarray:
            along_v = 0.5 * m[0, 0] * (x @ x) + 2.0 * (m[0, 1:] @ x) + np.trace(m[1:, 1:])
            return precision * np.append(along_v, m[0, 0] * x + 2.0 * m[0, 1:])

        return product

    system = mici.systems.SoftAbsRiemannianMetricSystem(
        energy,
        grad_neg_log_dens=gradient,
        hess_neg_log_dens=hessian,
        mtp_neg_log_dens=third_derivative_product,
        softabs_coeff=1e6,
    )
    integrator = mici.integrators.ImplicitLeapfrogIntegrator(system, step_size)
    rng = np.random.default_rng(0)
    seconds, steps, failures = 0.0, 0, 0
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        for start in targets.funnel(11).draws(num_chains, 3):
            state = mici.states.ChainState(pos=start, mom=None, dir=1)
            state.mom = system.sample_momentum(state, rng)
            begin = time.perf_counter()
            try:
                for _ in range(num_steps):
                    state = integrator.step(state)
                    steps += 1
            except mici.errors.Error:
                failures += 1
            seconds += time.perf_counter() - begin
    return seconds / steps if steps else float('nan'), failures / num_chains


def funnel_in_torch(q: Any) -> Any:
    """The log density of the 11-D funnel at one point, a tensor of PyTorch."""
    import torch

    v, x = q[0], q[1:]
    return -(v**2) / 18.0 + 5.0 * v - 0.5 * torch.exp(v) * torch.sum(x**2)


def hamiltorch_draws(
    log_prob: Callable[[Any], Any], start: Any, integrator: str, step_size: float, num_steps: int, num_draws: int
) -> np.ndarray:
    """Draws `[num_draws, D]` of one chain of hamiltorch's RMHMC, with the paper's settings.

    Args:
      log_prob: of PyTorch's tensors.
      start: `[D]`.
      integrator: `'EXPLICIT'` or `'IMPLICIT'`.
      step_size, num_steps: of a trajectory.
      num_draws: how many.
    """
    import hamiltorch

    draws = _silently(
        hamiltorch.sample,
        log_prob_func=log_prob,
        params_init=start,
        num_samples=num_draws + 1,  # the first one is the start
        num_steps_per_sample=num_steps,
        step_size=step_size,
        jitter=0.01,
        softabs_const=1e6,
        explicit_binding_const=10,
        sampler=hamiltorch.Sampler.RMHMC,
        integrator=getattr(hamiltorch.Integrator, integrator),
        metric=hamiltorch.Metric.SOFTABS,
    )
    return np.stack([draw.detach().numpy() for draw in draws[-num_draws:]])


def _silently(function: Callable[..., Any], **arguments: Any) -> Any:
    """Calls a function that would print its progress, and warn of itself."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return function(**arguments)


def hamiltorch_funnel_steps(integrator: str, step_size: float, num_steps: int, num_draws: int = 4) -> float:
    """Seconds for each step of hamiltorch's RMHMC on the 11-D funnel, one chain, with the paper's settings."""
    import torch

    from benchmarks import targets

    start = torch.tensor(targets.funnel(11).draws(1, 3)[0])
    begin = time.perf_counter()
    hamiltorch_draws(funnel_in_torch, start, integrator, step_size, num_steps, num_draws)
    return (time.perf_counter() - begin) / ((num_draws + 1) * num_steps)


def hamiltorch_network_steps(
    weights: list[np.ndarray], x: np.ndarray, y: np.ndarray, step_size: float, num_steps: int, num_draws: int = 4
) -> float:
    """Seconds for each step of hamiltorch's HMC on the network of `benchmarks.network.lenet`.

    Args:
      weights: Keras's: two convolutions and two dense layers, kernel and bias of each.
      x: images `[N, 28, 28, 1]`.
      y: labels `[N]`.
      step_size, num_steps: of a trajectory.
      num_draws: trajectories that are timed.
    """
    import hamiltorch
    import torch
    from torch.nn import functional

    # Keras's filters are [height, width, in, out], torch's [out, in, height, width].
    torch_weights = [w.transpose(3, 2, 0, 1) if w.ndim == 4 else w for w in weights]
    shapes = [w.shape for w in torch_weights]
    sizes = [w.size for w in torch_weights]
    images, labels = torch.tensor(x.transpose(0, 3, 1, 2)), torch.tensor(y)

    def log_prob(flat: Any) -> Any:
        parts = [part.reshape(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True)]
        hidden = images
        for kernel, bias in (parts[0:2], parts[2:4]):
            hidden = functional.max_pool2d(torch.relu(functional.conv2d(hidden, kernel, bias)), 2)
        hidden = torch.relu(hidden.flatten(1) @ parts[4] + parts[5])
        logits = hidden @ parts[6] + parts[7]
        return -functional.cross_entropy(logits, labels, reduction='sum') - 0.5 * torch.sum(flat**2)

    start = torch.tensor(np.concatenate([w.ravel() for w in torch_weights]))
    begin = time.perf_counter()
    _silently(
        hamiltorch.sample,
        log_prob_func=log_prob,
        params_init=start,
        num_samples=num_draws,
        num_steps_per_sample=num_steps,
        step_size=step_size,
        sampler=hamiltorch.Sampler.HMC,
    )
    return (time.perf_counter() - begin) / (num_draws * num_steps)
