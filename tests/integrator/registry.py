"""Every integrator, each trajectory as a map of one flat vector: the space that its accept step uses."""

import dataclasses

import numpy as np
import tensorflow as tf

import tfp_rmhmc as rm
from tfp_rmhmc.integrator.transition import fly
from tfp_rmhmc.metric import LearnedMetric, ScaleStructure

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
    'separable-leapfrog': rm.SeparableLeapfrog(),
    'separable-leapfrog-4': rm.SeparableLeapfrog(order=4),
    'gaussian-split': rm.GaussianSplit(0.3, 1.7),
    'gaussian-split-4': rm.GaussianSplit(0.3, 1.7, order=4),
    'lagrangian': rm.Lagrangian(),
}
# With the solvers' own tolerances, as a user has them.
DEFAULTS = {
    'metric-coupling': rm.MetricCoupling(),
    'tao-binding': rm.TaoBinding(2.0, slack=0.3),
    'symmetric-projection': rm.SymmetricProjection(),
    'generalized-leapfrog': rm.GeneralizedLeapfrog(),
    'implicit-midpoint': rm.ImplicitMidpoint(),
    'separable-leapfrog': rm.SeparableLeapfrog(),
    'gaussian-split': rm.GaussianSplit(0.3, 1.7),
    'lagrangian': rm.Lagrangian(),
}


# A mass that is not the precision of the approximation above, so that the frequency is not one.
EUCLIDEAN = rm.EuclideanMetric(0.8)


def wavy_log_scales(a, b, c):
    """Scales of three blocks, each set by the other two. `a` and `b` have one coordinate."""
    mean = tf.reduce_mean(c, axis=-1, keepdims=True)
    return [0.2 * tf.sin(b) + 0.1 * tf.tanh(mean), -0.3 * tf.tanh(a), 0.3 * tf.tanh(a) + 0.2 * tf.cos(b) + 0.0 * c]


def separable_metric(dimension):
    """Three blocks of a flat state, the last with a correlation; its coordinates do not stand side by side."""
    last = [index for index in range(dimension) if index not in (0, 2)]
    correlation = np.eye(len(last)) + 0.3
    return rm.SeparableMetric(wavy_log_scales, [None, None, correlation], blocks=[[2], [0], last])


def directional_metric(dimension):
    """A learned metric of two blocks. The first sets the scales of the second's directions, which leak into each other."""
    size = dimension - 1
    directions = np.eye(size) + 0.3 * np.tri(size, k=-2) - 0.2 * np.tri(size, k=-1).T
    directions /= np.exp(np.linalg.slogdet(directions)[1] / size)
    parameters = {
        'c': np.full(size, -1.0),
        'a': np.linspace(-0.5, 0.5, size),
        'w': np.linspace(-0.5, 0.6, size)[None],
        'directions': directions,
        'dual': np.linalg.inv(directions),
        'mixture': np.eye(size) + 0.05,
    }
    structure = ScaleStructure(((0,), tuple(range(1, dimension))), ((), (0,)), (False, True))
    return LearnedMetric(structure, [{'c': np.array([0.3])}, parameters])


def twisted(q):
    """A dense matrix that depends on every coordinate, and has no derivatives of the target in it."""
    dimension = q.shape[-1]
    root = tf.eye(dimension, dtype=q.dtype) + 0.3 * tf.sin(q[..., :, None] + 2.0 * q[..., None, :])
    return tf.matmul(root, root, transpose_b=True) + 0.5 * tf.eye(dimension, dtype=q.dtype)


def metric_for(name, metric, dimension):
    """The metric, or one that the integrator takes where it does not take any."""
    if name.startswith('separable'):
        return separable_metric(dimension)
    if name.startswith('gaussian'):
        return EUCLIDEAN
    return rm.MongeMetric(0.5) if name.startswith('lagrangian') and not metric.has_connection else metric


def hamiltonian_of(log_prob, metric, position):
    return rm.Hamiltonian(rm.LogDensity.at_state(log_prob, [tf.convert_to_tensor(position)]), metric)


def num_blocks(integrator):
    """Position and momentum, and in a doubled phase space their gaps."""
    return 4 if integrator.has_auxiliary_variables else 2


def flow(integrator, log_prob, metric, step_size, num_steps):
    """The whole proposal as a function `[n, blocks * D] -> [n, blocks * D]`, the centre of a gap included.

    `step_size` is a scalar or `[D]` or `[n, D]`; it and the number of steps may be others in a call, at the price of no new
    trace if the shapes are the same. After a call, `log_determinant: [n]` is what the integrator says of its volume.
    """

    @tf.function(autograph=False)
    def run(z, step, num):
        position, momentum, *gaps = tf.split(z, num_blocks(integrator), axis=-1)
        step = step if step.shape.rank == 0 else tf.broadcast_to(step, tf.shape(position))

        def launch(local, ledger):
            point = integrator.begin(local, position, momentum, step, ledger)
            return point._replace(position_gap=gaps[0], momentum_gap=gaps[1]) if gaps else point

        hamiltonian = hamiltonian_of(log_prob, metric, position)
        trajectory = fly(integrator, hamiltonian, launch, position, step, num)
        end = trajectory.end
        blocks = [end.phase.position, end.phase.momentum]
        blocks += [end.point.position_gap, end.point.momentum_gap] if gaps else []
        changed = tf.zeros_like(position[:, 0]) if integrator.preserves_volume else trajectory.log_determinant
        return tf.concat(blocks, axis=-1), trajectory.ledger.is_ok, changed

    def checked(z, sign=1.0, step=step_size, num=num_steps):
        end, is_ok, checked.log_determinant = run(
            tf.constant(z), sign * tf.constant(step, z.dtype), tf.constant(num, tf.int32)
        )
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
