"""Every exact dynamics as a map of one flat vector, the space that its accept step uses."""

import dataclasses

import numpy as np
import tensorflow as tf

import tfp_rmhmc as rm
from tfp_rmhmc.hamiltonian import Hamiltonian
from tfp_rmhmc.integrator.extended import Extended
from tfp_rmhmc.integrator.implicit import ImplicitDynamics, Ledger
from tfp_rmhmc.integrator.metric_coupling import Pair
from tfp_rmhmc.state import LogDensity

TIGHT = {'tolerance': 1e-13, 'max_iterations': 200}
EXACT = {
    'metric-coupling': rm.MetricCoupling(),
    'tao-binding': rm.TaoBinding(2.0, slack=0.3),
    'tao-binding-4': rm.TaoBinding(2.0, slack=0.3, order=4),
    'symmetric-projection': rm.SymmetricProjection(**TIGHT),
    'symmetric-projection-4': rm.SymmetricProjection(**TIGHT, order=4),
    'generalized-leapfrog': rm.GeneralizedLeapfrog(**TIGHT),
    'generalized-leapfrog-4': rm.GeneralizedLeapfrog(**TIGHT, order=4),
    'implicit-midpoint': rm.ImplicitMidpoint(**TIGHT),
    'implicit-midpoint-4': rm.ImplicitMidpoint(**TIGHT, order=4),
}


def hamiltonian_of(log_prob, metric, position):
    return Hamiltonian(LogDensity.at_state(log_prob, [tf.convert_to_tensor(position)]), metric)


def num_blocks(dynamics):
    """Position and momentum, and for a coupling their gaps."""
    return 2 if isinstance(dynamics, ImplicitDynamics) else 4


def doubled(dynamics, *blocks):
    """The state of a coupling: position, momentum, and their gaps."""
    return (Pair if isinstance(dynamics, rm.MetricCoupling) else Extended)(*blocks)


def flow(dynamics, log_prob, metric, step_size, num_steps):
    """The trajectory as a function `[n, blocks * D] -> [n, blocks * D]`, and whether each chain succeeded."""

    @tf.function(autograph=False)
    def run(z):
        blocks = tf.split(z, num_blocks(dynamics), axis=-1)
        hamiltonian = hamiltonian_of(log_prob, metric, blocks[0])
        step, steps = tf.constant(step_size, z.dtype), tf.constant(num_steps, tf.int32)
        if num_blocks(dynamics) == 4:
            end = dynamics.integrate(hamiltonian, doubled(dynamics, *blocks), step, steps)
            return tf.concat(end, axis=-1), tf.ones_like(z[..., 0], dtype=tf.bool)
        none = tf.zeros_like(z[..., 0], dtype=tf.int32)
        ledger = Ledger(none, none, tf.zeros_like(z[..., 0]), none)
        local = hamiltonian.at(blocks[0])
        _, q, p, ledger = dynamics.integrate(hamiltonian, local, *blocks, step, steps, ledger)
        return tf.concat([q, p], axis=-1), ledger.is_ok

    def checked(z):
        end, is_ok = run(tf.constant(z))
        assert np.all(is_ok), 'a solve failed'
        return end.numpy()

    return checked


def flip(z, blocks):
    """Reverses the momenta: blocks are (q, p) or (q, p, q gap, p gap)."""
    sign = np.repeat(np.tile([1.0, -1.0], blocks // 2), z.shape[-1] // blocks)
    return z * sign


class CountingMetric(rm.SoftAbsMetric):
    """SoftAbs that keeps, for each evaluation, how many forces were asked of it."""

    def __init__(self):
        super().__init__()
        self.forces = []

    def at(self, density, position):
        local = super().at(density, position)
        index = len(self.forces)
        self.forces.append(0)

        def energy_gradient(momentum):
            self.forces[index] += 1
            return local.energy_gradient(momentum)

        return dataclasses.replace(local, energy_gradient=energy_gradient)
