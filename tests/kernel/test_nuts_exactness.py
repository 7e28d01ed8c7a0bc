"""No-U-turn trees from exact draws: each integrator leaves the target invariant, wrong weights and criteria do not.

As in `test_exactness`: chains start from exact draws, make a few transitions, and still must be exact draws.
"""

import numpy as np
import pytest
import tensorflow as tf

import tfp_rmhmc as rm
from tests import targets
from tests.integrator.registry import EUCLIDEAN, EXACT, separable_metric
from tests.kernel.test_exactness import METRIC, skewed_p_value
from tfp_rmhmc.integrator import tree
from tfp_rmhmc.metric.connection import RankOneConnection

pytestmark = pytest.mark.statistical
NUM_CHAINS, DIMENSION = 20000, 6
# name: metric, integrator, step size, transitions. Steps are long, so that the energy varies within a tree.
KERNELS = {
    'separable-leapfrog': (separable_metric(DIMENSION), rm.SeparableLeapfrog(), 0.4, 6),
    'separable-leapfrog-4': (separable_metric(DIMENSION), rm.SeparableLeapfrog(order=4), 0.4, 6),
    'euclidean': (rm.EuclideanMetric(), rm.SeparableLeapfrog(), 0.55, 6),
    'metric-coupling': (METRIC, rm.MetricCoupling(), 0.3, 8),
    'euclidean-short': (rm.EuclideanMetric(), rm.SeparableLeapfrog(), 0.25, 10),
    'generalized-leapfrog': (METRIC, rm.GeneralizedLeapfrog(), 0.8, 3),
    'implicit-midpoint': (METRIC, rm.ImplicitMidpoint(), 0.9, 3),
    'gaussian-split': (EUCLIDEAN, EXACT['gaussian-split'], 0.5, 5),
    'lagrangian': (rm.MongeMetric(0.5), rm.Lagrangian(), 0.3, 8),
    'symmetric-projection': (METRIC, rm.SymmetricProjection(tolerance=1e-4), 0.8, 3),
}
CASES = [(name, np.float64) for name in KERNELS] + [
    (name, np.float32) for name in ('separable-leapfrog', 'metric-coupling', 'generalized-leapfrog')
]


def transition_of(name, dtype, max_tree_depth=4):
    metric, integrator, step_size, num_transitions = KERNELS[name]

    @tf.function(autograph=False, jit_compile=True)
    def transition(state, seed, power):
        kernel = rm.RiemannianNUTS(
            lambda q: power * targets.skewed(q),
            tf.constant(step_size, dtype),
            metric=metric,
            integrator=integrator,
            max_tree_depth=max_tree_depth,
        )
        state, results = kernel.one_step(state, kernel.bootstrap_results(state), seed=seed)
        failed = tf.equal(results.status, rm.Status.NOT_CONVERGED) | tf.equal(results.status, rm.Status.NOT_REVERSIBLE)
        return state, tf.exp(results.log_accept_ratio), tf.cast(failed, tf.float64), results.leapfrogs_taken

    return transition, num_transitions


def p_value_of(transition, num_transitions, dtype=np.float64, power=1.0):
    """Of all tests, and what the trees were like."""
    state, shown = tf.constant(targets.skewed_draws(NUM_CHAINS, DIMENSION, seed=2, dtype=dtype)), []
    for i in range(num_transitions):
        state, *kept = transition(state, tf.constant([1, i]), tf.constant(power, state.dtype))
        shown.append([np.mean(x) for x in kept])
    return skewed_p_value(state.numpy().astype(np.float64)), np.mean(shown, axis=0)


@pytest.mark.parametrize(('name', 'dtype'), CASES)
def test_trees_leave_the_target_invariant(name, dtype):
    transition, num_transitions = transition_of(name, dtype)
    p_value, (acceptance, failures, leapfrogs) = p_value_of(transition, num_transitions, dtype)
    control, _ = p_value_of(transition, num_transitions, dtype, power=1.1)
    print(
        f'{name} {dtype.__name__}: acceptance {acceptance:.3f}, failed solves {failures:.4f}, {leapfrogs:.1f} steps, '
        f'p {p_value:.3g}, control {control:.3g}'
    )
    assert 0.6 < acceptance < 0.98
    assert leapfrogs > 2.5
    assert p_value > 1e-3
    assert control < 1e-6


def test_weights_that_ignore_the_energy_are_found_out(monkeypatch):
    monkeypatch.setattr(tree, '_log_weight', tf.zeros_like)
    p_value, _ = p_value_of(*transition_of('euclidean', np.float64))
    assert p_value < 1e-6


def test_weights_that_ignore_the_determinant_are_found_out(monkeypatch):
    kick = RankOneConnection.kick

    def without(self, velocity, step_size):
        kicked = kick(self, velocity, step_size)
        return kicked._replace(log_determinant=tf.zeros_like(kicked.log_determinant))

    monkeypatch.setattr(RankOneConnection, 'kick', without)
    p_value, _ = p_value_of(*transition_of('lagrangian', np.float64))
    assert p_value < 1e-6


def test_a_criterion_on_one_side_only_is_found_out(monkeypatch):
    """On the side that grows: where a tree stops then depends on where it was planted."""
    monkeypatch.setattr(tree, '_progress', lambda left, right, total: tf.reduce_sum(right * total, axis=-1))
    p_value, _ = p_value_of(*transition_of('euclidean-short', np.float64, max_tree_depth=6))
    print(f'p {p_value:.3g}')
    assert p_value < 1e-6
