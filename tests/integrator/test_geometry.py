"""Reversal, volume, order, and agreement with known trajectories."""

import functools

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.integrator.registry import (
    EUCLIDEAN,
    EXACT,
    TIGHT,
    CountingMetric,
    flip,
    flow,
    hamiltonian_of,
    metric_for,
    num_blocks,
    separable_metric,
    twisted,
)
from tfp_rmhmc.integrator.doubled import Doubled
from tfp_rmhmc.integrator.transition import propose

CASES = {
    'funnel': (targets.funnel, rm.SoftAbsMetric(), np.array([0.4, 0.5, -1.1, 0.3]), 0.08),
    'banana': (targets.banana, rm.SoftAbsMetric(1.0), np.array([0.6, 0.9]), 0.1),
    'skewed': (targets.skewed, rm.HessianMetric(), np.array([0.3, -0.5, 0.2]), 0.1),
    'three-levels': (targets.three_levels, rm.SoftAbsMetric(), np.array([0.4, 0.5, -1.1, 0.3]), 0.05),
}
SEPARABLE = {
    'funnel': rm.SeparableMetric(lambda v, x: [-0.3, -0.5 * v], blocks=[[0], [1, 2, 3]]),
    'banana': rm.SeparableMetric(lambda a, b: [0.2 * tf.sin(b), -0.3 * a], blocks=[[0], [1]]),
    'skewed': separable_metric(3),
    'three-levels': rm.SeparableMetric(
        lambda w, v, x: [-0.3 + 0.1 * v, 0.2 * tf.sin(w), -0.5 * v], blocks=[[0], [1], [2, 3]]
    ),
}
ANY_METRIC = [name for name in EXACT if not name.startswith(('separable', 'gaussian'))]


# Of each kind of connection; third derivatives are slow to trace.
CONNECTED = {
    'funnel': rm.FisherMetric(twisted),
    'banana': rm.SoftAbsMetric(1.0),
    'skewed': rm.HessianMetric(),
    'three-levels': rm.MongeMetric(0.5),
}


def case_of(name, case):
    """Log density, metric, position and step size of a case, for the integrator of that name."""
    log_prob, metric, q, step = CASES[case]
    for kind, metrics in {
        'separable': SEPARABLE,
        'lagrangian': CONNECTED,
        'gaussian': dict.fromkeys(CASES, EUCLIDEAN),
    }.items():
        metric = metrics[case] if name.startswith(kind) else metric
    return log_prob, metric, q, step


def start_of(integrator, case, rng):
    """As many points as `determinant` asks for, so that both are asked of one program."""
    _, _, q, _ = CASES[case]
    num = 4 * num_blocks(integrator) * q.size
    gaps = [0.02 * rng.standard_normal(q.size) for _ in range(num_blocks(integrator) - 2)]
    return np.tile(np.concatenate([q, rng.standard_normal(q.size), *gaps]), (num, 1))


def assert_reversible(forward, z, blocks, tolerance=1e-9):
    """Back from eight steps with the momenta reversed, and back by steps of the opposite sign."""
    there = forward(z, num=8)
    assert np.abs(there - z).max() > 0.1
    assert np.abs(flip(forward(flip(there, blocks), num=8), blocks) - z).max() < tolerance
    assert np.abs(forward(there, sign=-1.0, num=8) - z).max() < tolerance


def determinant(forward, z):
    """Of the map at `z: [n]`, to sixth order by two fourth-order central differences."""
    h = 2e-3
    offsets, weights = np.array([-2, -1, 1, 2]) * h, np.array([1, -8, 8, -1]) / (12 * h)
    estimate = []
    for scale in (1.0, 0.5):
        points = z + scale * offsets[None, :, None] * np.eye(z.size)[:, None, :]
        images = forward(points.reshape(-1, z.size)).reshape(z.size, 4, z.size)
        estimate.append(np.einsum('iko,k->oi', images, weights / scale))
    jacobian = estimate[1] + (estimate[1] - estimate[0]) / 15.0
    assert np.abs(jacobian - np.eye(z.size)).max() > 0.05
    return np.linalg.det(jacobian)


def assert_volume(integrator, forward, z):
    """Volume is kept, or changes as the integrator says, and then by more than could be overlooked."""
    found = determinant(forward, z[0])
    forward(z)
    expected = np.exp(forward.log_determinant.numpy()[0])
    assert abs(found - expected) < 1e-7
    assert (expected == 1.0) if integrator.preserves_volume else (abs(expected - 1.0) > 1e-5)


@pytest.mark.parametrize('case', CASES)
@pytest.mark.parametrize('name', EXACT)
def test_reversal_volume_and_single_steps(name, case, rng):
    """The last is what a tree of steps needs: one step after another, each completed, is the trajectory as a whole."""
    integrator = EXACT[name]
    log_prob, metric, _, step = case_of(name, case)
    tolerance = 1e-12 if name.startswith(('separable', 'gaussian', 'lagrangian')) else 1e-9
    forward = flow(integrator, log_prob, metric, step, 4)
    z = start_of(integrator, case, rng)
    assert_reversible(forward, z, num_blocks(integrator), tolerance)
    assert_volume(integrator, forward, z)
    after = z
    for _ in range(3):
        after = forward(after, num=1)
    np.testing.assert_allclose(after, forward(z, num=3), atol=1e-10)


@pytest.mark.parametrize('name', EXACT)
def test_reversal_and_volume_with_steps_of_every_coordinate_and_chain(name, rng):
    integrator = EXACT[name]
    log_prob, metric, q, step = case_of(name, 'funnel')
    z = start_of(integrator, 'funnel', rng)
    steps = step * rng.uniform(0.5, 1.5, size=(len(z), q.size))
    forward = flow(integrator, log_prob, metric, steps, 4)
    assert_reversible(forward, z, num_blocks(integrator))
    of_one_chain = functools.partial(forward, step=np.tile(steps[0], (len(z), 1)))
    found = determinant(of_one_chain, z[0])
    of_one_chain(z)
    assert abs(found - np.exp(forward.log_determinant.numpy()[0])) < 1e-7


@pytest.mark.parametrize('name', ['metric-coupling', 'tao-binding'])
def test_steps_in_the_doubled_space_are_those_of_the_trajectory(name, rng):
    """`step` itself, for which no centre is added: two of them, and back."""
    integrator = EXACT[name]
    log_prob, metric, _, step = case_of(name, 'funnel')
    z = tf.constant(start_of(integrator, 'funnel', rng))
    q, p, *gaps = tf.split(z, 4, axis=-1)
    hamiltonian = hamiltonian_of(log_prob, metric, q)
    point = Doubled(q, p, rm.Ledger.new(q), *gaps)
    h = tf.constant(step, tf.float64)
    there = integrator.step(hamiltonian, integrator.step(hamiltonian, point, h), h)
    assert np.abs(there.position - q).max() > 0.02
    back = integrator.step(hamiltonian, integrator.step(hamiltonian, there, -h), -h)
    for before, after in zip(
        tf.nest.flatten(point._replace(ledger=())), tf.nest.flatten(back._replace(ledger=())), strict=True
    ):
        np.testing.assert_allclose(after, before, atol=1e-12)
    np.testing.assert_array_equal(back.ledger.metric_evaluations, 4 * {'metric-coupling': 3, 'tao-binding': 4}[name])


def test_the_overwriting_reading_of_algorithm_2_contracts_volume():
    """The negative control: update the four variables one after another, and the determinant is cos(angle)^4."""
    angle = 0.7

    def overwriting(z):
        q, p, q_copy, p_copy = z
        c, s = np.cos(angle), np.sin(angle)
        q = (q + q_copy + c * (q - q_copy) + s * (p - p_copy)) / 2
        p = (p + p_copy - s * (q - q_copy) + c * (p - p_copy)) / 2
        q_copy = (q + q_copy - c * (q - q_copy) - s * (p - p_copy)) / 2
        p_copy = (p + p_copy + s * (q - q_copy) - c * (p - p_copy)) / 2
        return np.array([q, p, q_copy, p_copy])

    matrix = np.stack([overwriting(e) for e in np.eye(4)], axis=1)
    assert abs(np.linalg.det(matrix)) < 0.9
    # The rotation, through the package.
    binding = rm.TaoBinding(omega=angle / 2.0)
    columns = []
    for e in np.eye(4):
        q, p, *gaps = [tf.constant([x]) for x in e]
        coupled = binding.couple(Doubled(q, p, (), *gaps), tf.constant(1.0, tf.float64))
        columns.append(np.concatenate([coupled.position, coupled.momentum, coupled.position_gap, coupled.momentum_gap]))
    assert abs(np.linalg.det(np.stack(columns, axis=1)) - 1.0) < 1e-14


ORDERS = {name: 4 if name.endswith('-4') else 2 for name in EXACT}


ORDER_START, ORDER_TIME = np.array([[0.3, -0.5, 0.2, 0.5, -0.4, 0.9]]), 1.2


@pytest.fixture(scope='module')
def reference_ends():
    """Of the trajectory below under both metrics, by a fourth-order method with many steps: good to 1e-7."""
    integrator = EXACT['implicit-midpoint-4']
    metrics = {'hessian': rm.HessianMetric(), 'separable': separable_metric(3), 'gaussian': EUCLIDEAN}
    return {
        kind: flow(integrator, targets.skewed, metric, ORDER_TIME / 80, 80)(ORDER_START) for kind, metric in metrics.items()
    }


@pytest.mark.parametrize('name', ORDERS)
def test_order_of_the_error_at_the_end(name, reference_ends):
    integrator = EXACT[name]
    metric = metric_for(name, rm.HessianMetric(), 3)
    kind = name.split('-')[0]
    reference_end = reference_ends[kind if kind in reference_ends else 'hessian']
    z = np.concatenate([ORDER_START, *[np.zeros([1, 3])] * (num_blocks(integrator) - 2)], axis=1)
    counts = np.array([12, 16, 24, 32, 48] if ORDERS[name] == 2 else [8, 12, 16, 24])
    forward = flow(integrator, targets.skewed, metric, ORDER_TIME, 1)
    errors = []
    for count in counts:
        end = forward(z, step=ORDER_TIME / count, num=count)
        errors.append(np.linalg.norm(end[:, :6] - reference_end))
    slope = -scipy.stats.linregress(np.log(counts), np.log(errors)).slope
    assert abs(slope - ORDERS[name]) < 0.5, errors


@pytest.mark.parametrize('name', ANY_METRIC)
def test_the_jacobi_elliptic_trajectory(name):
    """H = (1 + q^2)(1 + p^2) / 2 from (q0, 0), as G = 1 / (1 + q^2) and U = (1 + q^2)/2 + log(1 + q^2)/2."""
    integrator = EXACT[name]
    log_prob = lambda q: -tf.reduce_sum(0.5 * tf.square(q) + 0.5 * tf.math.log1p(tf.square(q)), axis=-1)
    metric = rm.FisherMetric(lambda q: 1.0 / (1.0 + tf.square(q))[..., None])
    q0, time, count = 0.8, 1.5, 300
    z = np.array([[q0, 0.0] + [0.0] * (num_blocks(integrator) - 2)])
    end = flow(integrator, log_prob, metric, time / count, count)(z)
    expected = q0 * scipy.special.ellipj(time * np.sqrt(1 + q0**2), q0**2 / (1 + q0**2))[1]
    assert abs(expected - q0) > 0.5
    np.testing.assert_allclose(end[0, 0], expected, atol=2e-5)


@pytest.mark.parametrize(
    'integrator', [rm.GeneralizedLeapfrog(**TIGHT), rm.SeparableLeapfrog()], ids=['implicit', 'separable']
)
@pytest.mark.parametrize('mass', [None, [2.0, 0.5, 1.0]])
def test_a_constant_metric_gives_tfp_s_hmc_step_for_step(mass, integrator):
    q = tf.constant(targets.skewed_draws(5, 3))
    scale = 1.0 if mass is None else np.array(mass)
    # HMC with mass M is HMC with the identity in the coordinates sqrt(M) q.
    hmc = tfp.mcmc.UncalibratedHamiltonianMonteCarlo(
        lambda x: targets.skewed(x / np.sqrt(scale)), step_size=np.float64(0.2), num_leapfrog_steps=7
    )
    x = q * np.sqrt(scale)
    end, results = hmc.one_step(x, hmc.bootstrap_results(x), seed=(1, 2))
    momentum = results.initial_momentum[0].numpy() * np.sqrt(scale)
    metric = rm.EuclideanMetric(mass)
    got = flow(integrator, targets.skewed, metric, 0.2, 7)(np.concatenate([q, momentum], axis=1))
    np.testing.assert_allclose(got[:, :3], end / np.sqrt(scale), rtol=1e-10)
    np.testing.assert_allclose(got[:, 3:], results.final_momentum[0] * np.sqrt(scale), rtol=1e-10)


@pytest.mark.parametrize(('name', 'per_step', 'of_the_start'), [('metric-coupling', 2, [1, 1, 1]), ('tao-binding', 3, [0])])
def test_force_evaluations_of_a_step(name, per_step, of_the_start):
    """Every metric that is factored serves one force, and there is one more of each than the steps have.

    At the start there is the metric at the position, whose force serves the centre of `MetricCoupling`, and two for that.
    """
    metric = CountingMetric()
    q = tf.constant(targets.funnel_draws(2, 4))
    hamiltonian = hamiltonian_of(targets.funnel, metric, q)
    point = Doubled(q, q, rm.Ledger.new(q), 0.1 * q, 0.1 * q)
    for num_steps in (2, 5):
        metric.forces.clear()
        leg = rm.Leg(tf.constant(0.1, tf.float64), tf.constant(num_steps), is_start=tf.constant(True))
        EXACT[name].travel(hamiltonian, hamiltonian.at(q), point, leg)
        assert metric.forces == of_the_start + [1] * (per_step * num_steps + 1)


def test_the_reported_metric_evaluations_are_those_that_were_made():
    q = tf.constant(targets.funnel_draws(2, 4))
    for name in ('metric-coupling', 'tao-binding', 'tao-binding-4'):
        metric = CountingMetric()
        hamiltonian = hamiltonian_of(targets.funnel, metric, q)
        proposal = propose(EXACT[name], hamiltonian, q, tf.constant(0.1, tf.float64), tf.constant(3), tf.constant([1, 2]))
        np.testing.assert_array_equal(proposal.ledger.metric_evaluations, len(metric.forces))


def test_the_position_loop_takes_no_third_derivatives():
    """The generalized leapfrog's second equation asks the metric for velocities only."""
    metric = CountingMetric()
    q = tf.constant(targets.funnel_draws(2, 4))
    hamiltonian = hamiltonian_of(targets.funnel, metric, q)
    integrator, step = rm.GeneralizedLeapfrog(), tf.constant(0.1, tf.float64)
    point = integrator.begin(None, q, tf.ones_like(q), step, rm.Ledger.new(q))
    integrator.step(hamiltonian, point, step)
    # One metric with forces opens the step, one closes it and opens the way back; all others, the position loops', have
    # none.
    assert len(metric.forces) > 6
    assert sum(count > 0 for count in metric.forces) == 2
