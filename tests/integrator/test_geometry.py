"""Reversal, volume, order, and agreement with known trajectories."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_rmhmc as rm
from tests import targets
from tests.integrator.dynamics import EXACT, TIGHT, CountingMetric, doubled, flip, flow, hamiltonian_of, num_blocks
from tfp_rmhmc.integrator.extended import Extended
from tfp_rmhmc.integrator.implicit import Ledger

CASES = {
    'funnel': (targets.funnel, rm.SoftAbsMetric(), np.array([0.4, 0.5, -1.1, 0.3]), 0.08),
    'banana': (targets.banana, rm.SoftAbsMetric(1.0), np.array([0.6, 0.9]), 0.1),
    'skewed': (targets.skewed, rm.HessianMetric(), np.array([0.3, -0.5, 0.2]), 0.1),
}


def start_of(dynamics, case, rng):
    _, _, q, _ = CASES[case]
    gaps = [0.02 * rng.standard_normal(q.size) for _ in range(num_blocks(dynamics) - 2)]
    return np.concatenate([q, rng.standard_normal(q.size), *gaps])[None]


@pytest.mark.parametrize('case', CASES)
@pytest.mark.parametrize('name', EXACT)
def test_reversal(name, case, rng):
    dynamics = EXACT[name]
    log_prob, metric, _, step = CASES[case]
    forward = flow(dynamics, log_prob, metric, step, 8)
    z = start_of(dynamics, case, rng)
    there = forward(z)
    back = flip(forward(flip(there, num_blocks(dynamics))), num_blocks(dynamics))
    assert np.abs(there - z).max() > 0.1
    assert np.abs(back - z).max() < 1e-9


@pytest.mark.parametrize('case', CASES)
@pytest.mark.parametrize('name', EXACT)
def test_volume(name, case, rng):
    dynamics = EXACT[name]
    log_prob, metric, _, step = CASES[case]
    forward = flow(dynamics, log_prob, metric, step, 4)
    z = start_of(dynamics, case, rng)[0]
    h = 2e-3
    offsets, weights = np.array([-2, -1, 1, 2]) * h, np.array([1, -8, 8, -1]) / (12 * h)
    # Sixth-order accuracy from two fourth-order estimates.
    estimate = []
    for scale in (1.0, 0.5):
        points = z + scale * offsets[None, :, None] * np.eye(z.size)[:, None, :]
        images = forward(points.reshape(-1, z.size)).reshape(z.size, 4, z.size)
        estimate.append(np.einsum('iko,k->oi', images, weights / scale))
    jacobian = estimate[1] + (estimate[1] - estimate[0]) / 15.0
    assert np.abs(jacobian - np.eye(z.size)).max() > 0.05
    assert abs(np.linalg.det(jacobian) - 1.0) < 1e-7


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
        state = Extended(*[tf.constant([x]) for x in e])
        columns.append(np.concatenate(binding.couple(state, tf.constant(1.0, tf.float64))))
    assert abs(np.linalg.det(np.stack(columns, axis=1)) - 1.0) < 1e-14


ORDERS = {name: 4 if name.endswith('-4') else 2 for name in EXACT}


@pytest.fixture(scope='module')
def reference_end():
    """Of the trajectory below, by a fourth-order method with many steps: good to 1e-7."""
    dynamics = EXACT['implicit-midpoint-4']
    return flow(dynamics, targets.skewed, rm.HessianMetric(), ORDER_TIME / 80, 80)(ORDER_START)


ORDER_START, ORDER_TIME = np.array([[0.3, -0.5, 0.2, 0.5, -0.4, 0.9]]), 1.2


@pytest.mark.parametrize('name', ORDERS)
def test_order_of_the_error_at_the_end(name, reference_end):
    dynamics = EXACT[name]
    z = np.concatenate([ORDER_START, *[np.zeros([1, 3])] * (num_blocks(dynamics) - 2)], axis=1)
    counts = np.array([12, 16, 24, 32, 48] if ORDERS[name] == 2 else [8, 12, 16, 24])
    errors = []
    for count in counts:
        end = flow(dynamics, targets.skewed, rm.HessianMetric(), ORDER_TIME / count, count)(z)
        errors.append(np.linalg.norm(end[:, :6] - reference_end))
    slope = -scipy.stats.linregress(np.log(counts), np.log(errors)).slope
    assert abs(slope - ORDERS[name]) < 0.5, errors


@pytest.mark.parametrize('name', EXACT)
def test_the_jacobi_elliptic_trajectory(name):
    """H = (1 + q^2)(1 + p^2) / 2 from (q0, 0), as G = 1 / (1 + q^2) and U = (1 + q^2)/2 + log(1 + q^2)/2."""
    dynamics = EXACT[name]
    log_prob = lambda q: -tf.reduce_sum(0.5 * tf.square(q) + 0.5 * tf.math.log1p(tf.square(q)), axis=-1)
    metric = rm.FisherMetric(lambda q: 1.0 / (1.0 + tf.square(q))[..., None])
    q0, time, count = 0.8, 1.5, 300
    z = np.array([[q0, 0.0] + [0.0] * (num_blocks(dynamics) - 2)])
    end = flow(dynamics, log_prob, metric, time / count, count)(z)
    expected = q0 * scipy.special.ellipj(time * np.sqrt(1 + q0**2), q0**2 / (1 + q0**2))[1]
    assert abs(expected - q0) > 0.5
    np.testing.assert_allclose(end[0, 0], expected, atol=2e-5)


@pytest.mark.parametrize('mass', [None, [2.0, 0.5, 1.0]])
def test_a_constant_metric_gives_tfp_s_hmc_step_for_step(mass):
    q = tf.constant(targets.skewed_draws(5, 3))
    scale = 1.0 if mass is None else np.array(mass)
    # HMC with mass M is HMC with the identity in the coordinates sqrt(M) q.
    hmc = tfp.mcmc.UncalibratedHamiltonianMonteCarlo(
        lambda x: targets.skewed(x / np.sqrt(scale)), step_size=np.float64(0.2), num_leapfrog_steps=7
    )
    x = q * np.sqrt(scale)
    end, results = hmc.one_step(x, hmc.bootstrap_results(x), seed=(1, 2))
    momentum = results.initial_momentum[0].numpy() * np.sqrt(scale)
    dynamics = rm.GeneralizedLeapfrog(**TIGHT)
    metric = rm.EuclideanMetric(mass)
    got = flow(dynamics, targets.skewed, metric, 0.2, 7)(np.concatenate([q, momentum], axis=1))
    np.testing.assert_allclose(got[:, :3], end / np.sqrt(scale), rtol=1e-10)
    np.testing.assert_allclose(got[:, 3:], results.final_momentum[0] * np.sqrt(scale), rtol=1e-10)


@pytest.mark.parametrize(('name', 'per_step'), [('metric-coupling', 2), ('tao-binding', 3)])
def test_force_evaluations_of_a_step(name, per_step):
    """Every metric that is factored serves one force, and there is one more of each than the steps have."""
    metric = CountingMetric()
    q = tf.constant(targets.funnel_draws(2, 4))
    hamiltonian = hamiltonian_of(targets.funnel, metric, q)
    for num_steps in (2, 5):
        metric.forces.clear()
        EXACT[name].integrate(
            hamiltonian,
            doubled(EXACT[name], q, q, 0.1 * q, 0.1 * q),
            tf.constant(0.1, tf.float64),
            tf.constant(num_steps),
        )
        assert metric.forces == [1] * (per_step * num_steps + 1)


def test_the_reported_metric_evaluations_are_those_that_were_made():
    q = tf.constant(targets.funnel_draws(2, 4))
    for name in ('metric-coupling', 'tao-binding', 'tao-binding-4'):
        metric = CountingMetric()
        hamiltonian = hamiltonian_of(targets.funnel, metric, q)
        proposal = EXACT[name].propose(hamiltonian, q, tf.constant(0.1, tf.float64), tf.constant(3), tf.constant([1, 2]))
        np.testing.assert_array_equal(proposal.metric_evaluations, len(metric.forces))


def test_the_position_loop_takes_no_third_derivatives():
    """The generalized leapfrog's second equation asks the metric for velocities only."""
    metric = CountingMetric()
    q = tf.constant(targets.funnel_draws(2, 4))
    hamiltonian = hamiltonian_of(targets.funnel, metric, q)
    none = tf.zeros([2], tf.int32)
    ledger = Ledger(none, none, tf.zeros([2], tf.float64), none)
    rm.GeneralizedLeapfrog().integrate(
        hamiltonian, None, q, tf.ones_like(q), tf.constant(0.1, tf.float64), tf.constant(1), ledger
    )
    # One metric with forces opens the step, one closes it; all others, the position loop's, have none.
    assert len(metric.forces) > 3
    assert sum(count > 0 for count in metric.forces) == 2
