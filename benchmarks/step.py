"""Time of one leapfrog step of one chain on the 11-D funnel, beside the floor of its factorisations and BlackJAX's."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from benchmarks import peers, targets
from benchmarks.measure import microseconds_of_step, seconds_in_turns, seconds_of
from tfp_rmhmc import autodiff

CHAINS_OF_A_GROUP = 128  # whose matrices stay in a core's cache
ARROWHEAD = rm.SoftAbsMetric(structure='arrowhead')  # what the funnel's Hessians are
KERNELS = {
    'explicit': lambda log_prob, step, num: rm.ExplicitRiemannianHMC(log_prob, step, num, metric=ARROWHEAD),
    'explicit, any Hessian': lambda log_prob, step, num: rm.ExplicitRiemannianHMC(log_prob, step, num),
    'generalized leapfrog': lambda log_prob, step, num: rm.ImplicitRiemannianHMC(log_prob, step, num, metric=ARROWHEAD),
    'implicit midpoint': lambda log_prob, step, num: rm.ImplicitRiemannianHMC(
        log_prob, step, num, metric=ARROWHEAD, integrator=rm.ImplicitMidpoint()
    ),
}
STEP_SIZE, NUM_STEPS = 0.14, 25  # the paper's


def run(quick: bool = False) -> dict:
    """Microseconds for each chain and step."""
    target = targets.funnel(11)
    found: dict = {key: {} for key in ('microseconds', 'floor', 'blackjax', 'mici', 'hamiltorch', 'logistic')}
    sizes = [1, 64, 512] if quick else [1, 64, 512, 4096]
    print(f'{"chains":>7} {"dtype":8}{"floor":>16}' + ''.join(f'{name + " graph / XLA":>36}' for name in KERNELS))
    for num_chains in sizes:
        for dtype in (np.float64, np.float32):
            start = tf.constant(target.draws(num_chains, 3).astype(dtype))
            floors = _floors(target, start)
            cells = []
            for name, make in KERNELS.items():
                times = []
                for jit in (False, True):
                    kernel = make(target.log_prob, dtype(STEP_SIZE), NUM_STEPS)
                    times.append(microseconds_of_step(kernel, start, NUM_STEPS, jit))
                cells.append(f'{times[0]:20.1f} / {times[1]:8.1f} us')
                found['microseconds'][f'{name} {num_chains} {dtype.__name__}'] = times
            found['floor'][f'{num_chains} {dtype.__name__}'] = floors
            print(f'{num_chains:7d} {dtype.__name__:8}{floors[0]:8.1f} / {floors[1]:5.1f}' + '   '.join(cells), flush=True)
    print('\nexplicit, float64, in compiled groups (`compiled_groups`), which run beside each other; times the floor')
    for num_chains in sizes[1:]:
        start = tf.constant(target.draws(num_chains, 3))
        groups = max(4, num_chains // CHAINS_OF_A_GROUP)
        kernel = rm.ExplicitRiemannianHMC(
            target.log_prob, np.float64(STEP_SIZE), NUM_STEPS, metric=ARROWHEAD, compiled_groups=groups
        )
        # The floor varies by a half within minutes: timed on both sides of the kernel, the smaller counts.
        before = _floors(target, start)
        took = microseconds_of_step(kernel, start, NUM_STEPS, False)
        easy, general = np.minimum(before, _floors(target, start))
        found['microseconds'][f'explicit {num_chains} float64'].append(took)
        found['floor'][f'{num_chains} beside groups'] = [easy, general]
        print(f'{num_chains:7d} in {groups:3d}{took:10.1f} us{took / easy:8.2f} (easy){took / general:8.2f}', flush=True)
    if peers.has('blackjax'):
        print('\nBlackJAX rmhmc (implicit midpoint), us for each chain and step, and how many times ours')
        for num_chains in (1, 64, 512):
            transition, acceptance = peers.blackjax_funnel_transition(num_chains, STEP_SIZE, NUM_STEPS)
            theirs = 1e6 * seconds_of(transition, 0.5)[1] / num_chains / NUM_STEPS
            ours = min(found['microseconds'][f'explicit {num_chains} float64'])
            found['blackjax'][num_chains] = {'microseconds': theirs, 'ratio': theirs / ours, 'acceptance': acceptance}
            print(
                f'{num_chains:7d}{theirs:10.0f}{theirs / ours:8.1f} times   (its acceptance {acceptance:.2f})', flush=True
            )
    else:
        print('\nBlackJAX is not installed: pip install blackjax')
    if peers.has('mici'):
        print(
            '\nMici (implicit leapfrog, one chain), us for each step, how many times ours, share of trajectories that raise'
        )
        for jitter in (1e-4, 0.0):
            seconds, failures = peers.mici_funnel_steps(STEP_SIZE, NUM_STEPS, jitter)
            ratio = 1e6 * seconds / min(found['microseconds']['explicit 1 float64'])
            found['mici'][jitter] = {'microseconds': 1e6 * seconds, 'ratio': ratio, 'failures': failures}
            print(f'jitter {jitter:6g}{1e6 * seconds:10.0f}{ratio:8.1f}{failures:8.2f}', flush=True)
    else:
        print('\nMici is not installed: pip install mici')
    if peers.has('hamiltorch'):
        print('\nhamiltorch (one chain), us for each step, and how many times ours')
        for integrator in ('EXPLICIT', 'IMPLICIT'):
            theirs = 1e6 * peers.hamiltorch_funnel_steps(integrator, STEP_SIZE, NUM_STEPS)
            ratio = theirs / min(found['microseconds']['explicit 1 float64'])
            found['hamiltorch'][integrator] = {'microseconds': theirs, 'ratio': ratio}
            print(f'{integrator.lower():10}{theirs:10.0f}{ratio:8.1f}', flush=True)
    else:
        print('\nhamiltorch is not on the path')
    found['logistic'] = _logistic(quick)
    found['separable'] = _separable(quick)
    found['no-U-turn'] = _no_u_turn(quick)
    return found


def _no_u_turn(quick: bool) -> dict:
    """A leapfrog step of `RiemannianNUTS` with the Euclidean metric, as a multiple of one of TFP's NUTS.

    Steps are so short that all trees reach their largest depth, 63 steps, in both. Timed in turns: medians of ratios.
    """
    cases = {'Gaussian 100': targets.gaussian(100), 'stochastic volatility 103': targets.stochastic_volatility(100)}
    num_draws, depth, found = 5, 6, {}
    print("\na step of RiemannianNUTS by a step of TFP's NUTS: graph / XLA (TFP's microseconds for all chains)")
    for name, target in cases.items():
        for num_chains in (1, 64, 1024):
            start = tf.constant(target.draws(num_chains, 3))
            step = np.float64(0.001)
            kernels = [
                tfp.mcmc.NoUTurnSampler(target.log_prob, step, max_tree_depth=depth),
                rm.RiemannianNUTS(target.log_prob, step, metric=rm.EuclideanMetric(), max_tree_depth=depth),
            ]
            cells = []
            for jit in (False, True):
                chains = [
                    tf.function(
                        lambda q, kernel=kernel: tfp.mcmc.sample_chain(
                            num_draws, q, kernel=kernel, trace_fn=None, seed=(1, 2)
                        ),
                        autograph=False,
                        jit_compile=jit,
                    )
                    for kernel in kernels
                ]
                theirs, ours = seconds_in_turns([lambda c=c: c(start) for c in chains], 2.0 if quick else 8.0).T  # noqa: B023
                cells.append((np.median(ours / theirs), 1e6 * np.median(theirs) / num_draws / (2**depth - 1)))
            found[f'{name} {num_chains}'] = [ratio for ratio, _ in cells]
            shown = '   '.join(f'{ratio:5.2f} ({theirs:8.1f})' for ratio, theirs in cells)
            print(f'{name:28}{num_chains:6d}   {shown}', flush=True)
    return found


def _separable(quick: bool) -> dict:
    """A step with a separable metric, as a multiple of a step of TFP's HMC on the same target.

    Ten transitions of 25 steps in one program, as `sample_chain` makes them, timed in turns; the fastest counts.
    """
    volatility = targets.stochastic_volatility(100)
    cases = {
        'logistic 1,000 x 25': (targets.logistic(1000, 25), rm.SeparableMetric(lambda w: [-2.0])),
        # The log scale of the innovations, in a block with mean and persistence, sets the scale of the path.
        'stochastic volatility 103': (
            volatility,
            rm.SeparableMetric(
                lambda s, path: [-1.5, s[..., 2:]], blocks=[[0, 1, 2], list(range(3, volatility.dimension))]
            ),
        ),
        'funnel 11': (
            targets.funnel(11),
            rm.SeparableMetric(lambda v, x: [-0.8, -0.5 * v], blocks=[[0], list(range(1, 11))]),
        ),
    }
    num_draws, num_steps, found = 10, NUM_STEPS, {}

    def microseconds(kernel, start, jit):
        chain = tf.function(
            lambda q: tfp.mcmc.sample_chain(num_draws, q, kernel=kernel, trace_fn=None, seed=(1, 2)),
            autograph=False,
            jit_compile=jit,
        )
        return 1e6 * seconds_of(lambda: chain(start), 0.3 if quick else 0.8)[1] / num_draws / num_steps

    print("\na step with a separable metric by a step of TFP's HMC: graph / XLA (HMC's microseconds for all chains)")
    for name, (target, metric) in cases.items():
        for num_chains in (1, 64, 1024):
            start = tf.constant(target.draws(num_chains, 3))
            kernels = [
                tfp.mcmc.HamiltonianMonteCarlo(target.log_prob, np.float64(0.01), num_steps),
                rm.RiemannianHMC(target.log_prob, np.float64(0.01), num_steps, metric=metric),
            ]
            times = [
                np.min([[microseconds(kernel, start, jit) for kernel in kernels] for _ in range(3)], axis=0)
                for jit in (False, True)
            ]
            found[f'{name} {num_chains}'] = [ours / hmc for hmc, ours in times]
            cells = '   '.join(f'{ours / hmc:5.2f} ({hmc:8.1f})' for hmc, ours in times)
            print(f'{name:28}{num_chains:6d}   {cells}', flush=True)
    return found


def _floors(target: targets.Target, start: tf.Tensor) -> list[float]:
    """Microseconds a chain of the two metric evaluations of an explicit step, as LAPACK's factorisations alone.

    Of the target's Hessians, whose repeated eigenvalues make the funnel's easy, and of matrices in general.
    """
    hessians = -autodiff.hessian(target.log_prob, start)[2]
    random = tf.cast(np.random.default_rng(0).normal(size=hessians.shape), start.dtype)
    eigh = tf.function(lambda matrix: tf.linalg.eigh(matrix)[1], autograph=False)
    return [
        2e6 * seconds_of(lambda: eigh(matrix), 0.3)[1] / start.shape[0]  # noqa: B023
        for matrix in (hessians, random + tf.linalg.matrix_transpose(random))
    ]


def _logistic(quick: bool) -> dict:
    """Logistic regression 1,000 x 25: metrics that know the model against the generic Hessian."""
    target = targets.logistic(1000, 25)
    x = target.inputs
    metrics = {
        'SoftAbsMetric': rm.SoftAbsMetric(),
        'HessianMetric': rm.HessianMetric(),
        'GaussNewton, outputs': rm.GaussNewtonMetric(lambda w: tf.matmul(w, x, transpose_b=True), 'bernoulli'),
        'GaussNewton, design': rm.GaussNewtonMetric.of_design(x, 'bernoulli'),
        'EuclideanMetric': rm.EuclideanMetric(),  # what remains without a metric
    }
    found: dict = {}
    print('\nlogistic regression 1,000 x 25, us for each chain and step: graph / XLA, and how many times HessianMetric')
    print(f'{"chains":>7}' + ''.join(f'{name:>30}' for name in metrics))
    for num_chains in (16, 64) if quick else (1, 16, 64, 256):
        start = tf.constant(target.draws(num_chains, 3))
        rows = {}
        for name, metric in metrics.items():
            rows[name] = []
            for jit in (False, True):
                kernel = rm.ExplicitRiemannianHMC(target.log_prob, np.float64(0.3), 5, metric=metric)
                rows[name].append(microseconds_of_step(kernel, start, 5, jit))
        cells = [f'{t[0]:13.0f} / {t[1]:5.0f} ({min(rows["HessianMetric"]) / min(t):4.1f})' for t in rows.values()]
        print(f'{num_chains:7d}' + '  '.join(cells), flush=True)
        found[num_chains] = rows
    return found
