"""Samplers of this library and of others, as functions of a target: draws, what they cost, and how long they took."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.targets import Target

__all__ = ['NEEDS', 'SAMPLERS', 'Run', 'missing']

NUM_CHAINS = 4


class Run(NamedTuple):
    """What a sampler did.

    Attributes:
      draws: `[num_draws, chains, D]`.
      warmup_gradients, gradients: of all chains; a Hessian counts as D gradients.
      seconds, core_seconds: from the call to the result, compilation and warm-up counted: by the clock, and of work.
      sampling_seconds: of the kept draws alone, nothing compiled; NaN where the sampler does not tell.
      diverged: share of the kept transitions; NaN where the sampler does not tell.
    """

    draws: np.ndarray
    warmup_gradients: float
    gradients: float
    seconds: float
    core_seconds: float
    sampling_seconds: float = float('nan')
    diverged: float = float('nan')


def missing(sampler: str) -> str | None:
    """The library that a sampler needs and that cannot be imported, or None."""
    return next((name for name in NEEDS.get(sampler, ()) if importlib.util.find_spec(name) is None), None)


def ours(kernel: str, **options: Any) -> Callable[[Target, int, int], Run]:
    """`sample_posterior` with a kernel by name, everything else by default."""

    def sample(target: Target, num_draws: int, seed: int) -> Run:
        import tfp_rmhmc as rm

        clock = _Clock()
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            result = rm.sample_posterior(
                num_draws, target.log_prob, initial_state=_start(target, seed), kernel=kernel, seed=seed, **options
            )
        seconds, core_seconds = clock.read()
        draws = result.variables()['x']
        cost = {'warmup': float(result.gradients['warmup']), 'sampling': float(result.gradients['sampling'])}
        if kernel in ('explicit', 'implicit', 'rnuts'):  # their metric is made of Hessians
            cost['warmup'] += target.dimension * float(np.sum(result.warmup['metric_evaluations']))
            cost['sampling'] += target.dimension * float(np.sum(result.trace['metric_evaluations']))
        return Run(
            draws,
            cost['warmup'],
            cost['sampling'],
            seconds,
            core_seconds,
            result.seconds.get('sampling', float('nan')),
            float(np.mean(result.trace['diverging'])),
        )

    return sample


def integrator(name: str, step_size: float, **options: float) -> Callable[[Target, int, int], Run]:
    """`RiemannianHMC` with one of the integrators and SoftAbs (alpha = 1e6, as in the paper), a step size found by hand.

    It starts from `target.draws` and has no warm-up. Trajectories have an integration time of 7.
    """

    def sample(target: Target, num_draws: int, seed: int) -> Run:
        import tensorflow as tf
        import tensorflow_probability as tfp

        import tfp_rmhmc as rm

        kernel = rm.RiemannianHMC(
            target.log_prob,
            np.float64(step_size),
            round(7.0 / step_size),
            metric=rm.SoftAbsMetric(),
            integrator=getattr(rm, name)(**options),
        )

        @tf.function(autograph=False, jit_compile=True)
        def chain(start: tf.Tensor, seed: tf.Tensor) -> Any:
            return tfp.mcmc.sample_chain(num_draws, start, kernel=kernel, trace_fn=rm.default_trace_fn, seed=seed)

        clock = _Clock()
        draws, trace = chain(tf.constant(target.draws(NUM_CHAINS, seed)), tf.constant([0, seed]))
        seconds, core_seconds = clock.read()
        begin = time.perf_counter()
        chain(draws[-1], tf.constant([1, seed]))[0].numpy()
        evaluations = float(np.sum(trace['metric_evaluations']))
        return Run(
            draws.numpy(),
            0.0,
            (1.0 + target.dimension) * evaluations,
            seconds,
            core_seconds,
            time.perf_counter() - begin,
            float(np.mean(trace['diverging'])),
        )

    return sample


def numpyro_nuts(target: Target, num_draws: int, seed: int, num_warmup: int = 500) -> Run:
    """NumPyro's NUTS with its defaults (diagonal mass), each chain on a device of its own."""
    import jax
    import numpyro
    from numpyro.infer import MCMC, NUTS

    numpyro.set_host_device_count(NUM_CHAINS)
    log_prob = target.log_prob_in_jax
    clock = _Clock()
    mcmc = MCMC(
        NUTS(potential_fn=lambda q: -log_prob(q)),
        num_warmup=num_warmup,
        num_samples=num_draws,
        num_chains=NUM_CHAINS,
        progress_bar=False,
    )
    fields = ('num_steps', 'diverging')
    start = jax.numpy.asarray(_start(target, seed))
    mcmc.warmup(jax.random.PRNGKey(seed), init_params=start, extra_fields=fields, collect_warmup=True)
    warmup = float(np.sum(mcmc.get_extra_fields()['num_steps']))
    mcmc.run(mcmc.post_warmup_state.rng_key, extra_fields=fields)
    draws = np.swapaxes(np.asarray(mcmc.get_samples(group_by_chain=True)), 0, 1)
    seconds, core_seconds = clock.read()
    told = mcmc.get_extra_fields()
    diverged = float(np.mean(np.asarray(told['diverging'])))
    gradients = float(np.sum(np.asarray(told['num_steps'])))
    mcmc.post_warmup_state = mcmc.last_state
    begin = time.perf_counter()
    mcmc.run(mcmc.post_warmup_state.rng_key, extra_fields=fields)
    np.asarray(mcmc.get_samples())
    return Run(draws, warmup, gradients, seconds, core_seconds, time.perf_counter() - begin, diverged)


def nutpie_nuts(target: Target, num_draws: int, seed: int) -> Run:
    """nutpie's NUTS with its defaults; the gradient is compiled by JAX and called from Python, one chain at a time."""
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    clock = _Clock()
    gradient = _gradient_in_jax(target)
    starts = iter(np.tile(_start(target, seed), (50, 1)))
    model = from_pyfunc(
        target.dimension,
        lambda: gradient,
        lambda seed1, seed2, chain: lambda x: {'q': np.asarray(x, np.float64)},
        [np.dtype(np.float64)],
        [(target.dimension,)],
        ['q'],
        make_initial_point_fn=lambda seed: next(starts),
    )
    found = nutpie.sample(model, draws=num_draws, chains=NUM_CHAINS, seed=seed, progress_bar=False)
    seconds, core_seconds = clock.read()
    return Run(
        np.swapaxes(np.asarray(found.posterior['q']), 0, 1),
        float(np.sum(found.warmup_sample_stats['n_steps'])),
        float(np.sum(found.sample_stats['n_steps'])),
        seconds,
        core_seconds,
        diverged=float(np.mean(found.sample_stats['diverging'])),
    )


def walnuts(target: Target, num_draws: int, seed: int, num_warmup: int = 500) -> Run:
    """WALNUTS by walnutpie with its defaults; the gradient is compiled by JAX and called from Python.

    It does not tell what the warm-up cost, so the warm-up is run once more by itself, with the same seed.
    """
    import walnutpie

    clock = _Clock()
    gradient = _gradient_in_jax(target)
    calls = 0

    def counted(q: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        calls += 1
        return gradient(q)

    def run(num: int) -> np.ndarray:
        chains = walnutpie.walnuts_pyfunc(
            counted,
            inits=_start(target, seed),
            num_chains=NUM_CHAINS,
            seed=seed,
            min_warmup_iter=num_warmup,
            max_warmup_iter=num_warmup,
            min_sampling_iter=num,
            max_sampling_iter=num,
        )
        return np.stack([np.asarray(chain) for chain in chains], axis=1)

    draws = run(num_draws)
    seconds, core_seconds = clock.read()
    total, calls = calls, 0
    run(1)
    return Run(draws, float(calls), float(total - calls), seconds, core_seconds)


def blackjax_rmhmc(step_size: float, jitter: float = 1e-4) -> Callable[[Target, int, int], Run]:
    """BlackJAX's rmhmc (implicit midpoint) with SoftAbs, alpha = 1e6; no adaptation, so a step size found by hand.

    It starts from `target.draws`, with an integration time of 7. The Hessian's diagonal is jittered by 1e-4 arange(D): with
    repeated eigenvalues its gradient is NaN and nothing is accepted. Hessians are counted in a short run of one chain.
    """

    def sample(target: Target, num_draws: int, seed: int) -> Run:
        import blackjax
        import jax
        import jax.numpy as jnp

        log_prob = target.log_prob_in_jax
        evaluations = 0

        def count() -> None:
            nonlocal evaluations
            evaluations += 1

        def metric(q: Any, is_counted: bool = False) -> Any:
            if is_counted:
                jax.debug.callback(count)
            hessian = -jax.hessian(log_prob)(q) + jnp.diag(jitter * jnp.arange(target.dimension))
            eigenvalues, vectors = jnp.linalg.eigh(hessian)
            return (vectors * (eigenvalues / jnp.tanh(1e6 * eigenvalues))) @ vectors.T

        num_steps = round(7.0 / step_size)
        kernel = blackjax.rmhmc(log_prob, step_size, metric, num_integration_steps=num_steps)

        @jax.jit
        def run(states: Any, key: Any) -> Any:
            def transition(states: Any, key: Any) -> Any:
                states, info = jax.vmap(kernel.step)(jax.random.split(key, NUM_CHAINS), states)
                return states, (states.position, info.is_divergent)

            return jax.lax.scan(transition, states, jax.random.split(key, num_draws))

        clock = _Clock()
        states = jax.vmap(kernel.init)(jnp.asarray(target.draws(NUM_CHAINS, seed)))
        states, (draws, diverged) = run(states, jax.random.PRNGKey(seed))
        draws = np.asarray(draws)
        seconds, core_seconds = clock.read()
        begin = time.perf_counter()
        np.asarray(run(states, jax.random.PRNGKey(seed + 1))[1][0])
        sampling_seconds = time.perf_counter() - begin
        counted = blackjax.rmhmc(log_prob, step_size, lambda q: metric(q, True), num_integration_steps=num_steps)
        state, step, num_counted = counted.init(jnp.asarray(draws[-1, 0])), jax.jit(counted.step), 20
        for key in jax.random.split(jax.random.PRNGKey(seed), num_counted):
            state, _ = step(key, state)
        jax.block_until_ready(state)
        jax.effects_barrier()
        per_draw = (1.0 + target.dimension) * evaluations / num_counted
        cost = per_draw * num_draws * NUM_CHAINS
        return Run(draws, 0.0, cost, seconds, core_seconds, sampling_seconds, float(np.mean(np.asarray(diverged))))

    return sample


def hamiltorch_rmhmc(integrator: str) -> Callable[[Target, int, int], Run]:
    """hamiltorch's RMHMC on the 11-D funnel with the paper's settings, one chain after the other.

    A step takes 50 ms and more, so it makes an eighth of the draws. It starts from `target.draws` and has no warm-up.
    """

    def sample(target: Target, num_draws: int, seed: int) -> Run:
        import hamiltorch
        import torch

        from benchmarks import peers

        calls = 0

        def counted(q: Any) -> Any:
            nonlocal calls
            calls += 1
            return peers.funnel_in_torch(q)

        clock = _Clock()
        chains = []
        for chain, start in enumerate(target.draws(NUM_CHAINS, seed)):
            hamiltorch.set_random_seed(NUM_CHAINS * seed + chain)
            chains.append(peers.hamiltorch_draws(counted, torch.tensor(start), integrator, 0.14, 25, num_draws // 8))
        seconds, core_seconds = clock.read()
        cost = (1.0 + target.dimension) * calls
        return Run(np.stack(chains, axis=1), 0.0, cost, seconds, core_seconds, seconds)

    return sample


SAMPLERS: dict[str, Callable[[Target, int, int], Run]] = {
    'default': ours('auto'),
    'TFP NUTS': ours('nuts'),
    'NumPyro NUTS': numpyro_nuts,
    'nutpie': nutpie_nuts,
    'WALNUTS': walnuts,
    'BlackJAX rmhmc': blackjax_rmhmc(0.4),
    'hamiltorch, explicit': hamiltorch_rmhmc('EXPLICIT'),
    'hamiltorch, implicit': hamiltorch_rmhmc('IMPLICIT'),
    'MetricCoupling': integrator('MetricCoupling', 0.15),
    'GeneralizedLeapfrog': integrator('GeneralizedLeapfrog', 0.2),
    'ImplicitMidpoint': integrator('ImplicitMidpoint', 0.4),
    'SymmetricProjection': integrator('SymmetricProjection', 0.2),
    'TaoBinding': integrator('TaoBinding', 0.05, omega=15.0, slack=0.6),
}
NEEDS = {
    'NumPyro NUTS': ('numpyro', 'jax'),
    'nutpie': ('nutpie', 'jax', 'numba'),
    'WALNUTS': ('walnutpie', 'jax'),
    'BlackJAX rmhmc': ('blackjax', 'jax'),
    'hamiltorch, explicit': ('hamiltorch', 'torch'),
    'hamiltorch, implicit': ('hamiltorch', 'torch'),
}


class _Clock:
    """Seconds and core seconds since it was made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._begin[0], time.process_time() - self._begin[1]


def _start(target: Target, seed: int) -> np.ndarray:
    """Uniform on (-2, 2), for all samplers alike."""
    return np.random.default_rng(seed).uniform(-2.0, 2.0, (NUM_CHAINS, target.dimension))


def _gradient_in_jax(target: Target) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Log density and gradient of one point, compiled."""
    import jax

    compiled = jax.jit(jax.value_and_grad(target.log_prob_in_jax))
    compiled(np.zeros(target.dimension))

    def gradient(q: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = compiled(np.array(q))
        return float(value), np.asarray(slope)

    return gradient
