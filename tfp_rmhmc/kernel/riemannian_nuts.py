"""The no-U-turn sampler on a Riemannian manifold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.argument import check_instance, check_integer, check_positive
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.hamiltonian import Hamiltonian
from tfp_rmhmc.integrator import DIVERGENCE_THRESHOLD, Gardener, Integrator, Ledger, Status, Tree, composition
from tfp_rmhmc.kernel.base import RiemannianKernel, check_arguments, check_common, default_integrator
from tfp_rmhmc.metric import Evaluation, Metric, SoftAbsMetric
from tfp_rmhmc.noise import checked_seed, split_seed, uniforms_like
from tfp_rmhmc.state import StateLayout, is_list_like, state_parts

__all__ = ['RiemannianNUTS', 'RiemannianNUTSResults']

# Steps between two leaves where a leaf costs three evaluations of the metric by itself.
_STEPS_OF_A_DEAR_LEAF = 4
# Of a tree, whose leaves each have a seed.
_MAX_DEPTH = 24


class RiemannianNUTSResults(NamedTuple):
    """The fields of the results of `tfp.mcmc.NoUTurnSampler`, and what a curved space adds; `[batch...]` where not said.

    The next transition reads two of the fields that depend on the position, `target_log_prob` and `grads_target_log_prob`.

    Attributes:
      target_log_prob: log density of the state.
      grads_target_log_prob: its gradient, a list of state parts.
      step_size: as given.
      log_accept_ratio: log of the mean of `min(1, exp(-energy change))` over the leaves, for step-size adaptation.
      leapfrogs_taken: steps, int32.
      is_accepted: whether the state is another one than before.
      reach_max_depth: whether the tree would have grown on.
      has_divergence: whether it ended because a leaf's energy was too high or not finite.
      energy: H at the leaf at which the tree was planted.
      seed: of the transition.
      status: a `tfp_rmhmc.Status`, int32: why the tree ended, if it did not turn.
      solver_iterations: of the whole tree, int32; 0 with an explicit integrator.
      num_metric_evaluations: factorisations of the metric, or gradients with a separable one, int32.
      momentum_distribution: N(0, diag(G)) at the position before the transition, `[batch..., D]`, whose variance
        `tfp.experimental.mcmc.default_nuts_trace_fn` shows.
      proposed_state, proposed_results: empty; `ReplicaExchangeMC` asks for fields of these names.
    """

    target_log_prob: Any
    grads_target_log_prob: Any
    step_size: Any
    log_accept_ratio: Any
    leapfrogs_taken: Any
    is_accepted: Any
    reach_max_depth: Any
    has_divergence: Any
    energy: Any
    seed: Any
    status: Any
    solver_iterations: Any
    num_metric_evaluations: Any
    momentum_distribution: Any
    proposed_state: Any = ()
    proposed_results: Any = ()


class RiemannianNUTS(RiemannianKernel):
    """Riemannian manifold HMC whose trajectories end where they turn back.

    Each transition draws a momentum from N(0, G(q)) and lets a tree of steps grow from there, forwards and backwards, by
    doubling, until the tree or a part of it makes a U-turn: with the velocities `v = G^-1 p` at its ends and rho the sum of
    its momenta, until `v_left . rho <= 0` or `v_right . rho <= 0`. The next state is drawn from the tree's leaves with the
    weights `exp(-H)`, and between the two halves of a doubling with a bias to the new one, which leaves the target
    invariant. Each chain has its own tree. Under XLA, in a graph or eagerly; how long a program takes to compile does not
    depend on the depth.

        kernel = tfp_rmhmc.RiemannianNUTS(target_log_prob_fn, step_size=0.3, metric=metric)
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, num_adaptation_steps=400)

    With a constant metric it is the sampler of `tfp.mcmc.NoUTurnSampler`, with the checks across the seams of subtrees
    that Stan has. A long trajectory of a target with many fast coordinates turns when *they* have gone half of their
    period, before a slow one has moved: there `WorstCoordinateLengthAdaptation` around `RiemannianHMC` makes more of each
    gradient. References: Betancourt 2013, "Generalizing the No-U-Turn sampler to Riemannian manifolds"; Hoffman and Gelman
    2014. Cost: at most `2**max_tree_depth - 1` leaves, each of which costs the integrator's steps and the metric at its
    end; memory: six states for each level of the tree.

    Args:
      target_log_prob_fn: takes the state parts and returns the log density, `[batch...]`.
      step_size: a scalar, or a tensor that broadcasts with the state, or a list with one per state part.
      metric: a `tfp_rmhmc.Metric`; by default `SoftAbsMetric()`.
      integrator: an exact `tfp_rmhmc.Integrator`; by default `SeparableLeapfrog()` where the metric is separable, else
        `MetricCoupling()`, whose trees live in the doubled space. A step that cannot be solved or undone ends the tree.
      max_tree_depth: doublings at most.
      max_energy_diff: the energy change at which a leaf counts as divergent.
      unrolled_leapfrog_steps: steps between leaves; by default 1, and 4 for integrators of the doubled space, whose
        energies cost three evaluations of the metric.
      experimental_shard_axis_names: must be None.
      name: for scopes in graphs.
    """

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        step_size: Any,
        metric: Metric | None = None,
        integrator: Integrator | None = None,
        max_tree_depth: int = 10,
        max_energy_diff: Any = DIVERGENCE_THRESHOLD,
        unrolled_leapfrog_steps: int | None = None,
        experimental_shard_axis_names: Any = None,
        name: str | None = None,
    ):
        self._parameters = {
            'target_log_prob_fn': target_log_prob_fn,
            'step_size': step_size,
            'metric': metric,
            'integrator': integrator,
            'max_tree_depth': max_tree_depth,
            'max_energy_diff': max_energy_diff,
            'unrolled_leapfrog_steps': unrolled_leapfrog_steps,
            'experimental_shard_axis_names': experimental_shard_axis_names,
            'name': name,
        }
        check_arguments(target_log_prob_fn, step_size, metric)
        self._metric = SoftAbsMetric() if metric is None else metric
        self._integrator = default_integrator(self._metric) if integrator is None else integrator
        check_instance('integrator', self._integrator, Integrator, 'a `tfp_rmhmc.Integrator`')
        self._integrator.check_metric(self._metric)
        if not self._integrator.is_exact:
            raise ValueError(f'`integrator` must be exact, since a tree has no accept step; got {integrator!r}.')
        check_integer('max_tree_depth', max_tree_depth, least=1, most=_MAX_DEPTH)
        check_positive('max_energy_diff', max_energy_diff)
        if unrolled_leapfrog_steps is None:
            unrolled_leapfrog_steps = _STEPS_OF_A_DEAR_LEAF if self._integrator.has_auxiliary_variables else 1
        check_integer('unrolled_leapfrog_steps', unrolled_leapfrog_steps, least=1)
        self._steps_per_leaf = int(unrolled_leapfrog_steps)
        check_common(name, experimental_shard_axis_names)

    @property
    def max_tree_depth(self) -> int:
        """As given."""
        return self._parameters['max_tree_depth']

    @property
    def is_calibrated(self) -> bool:
        return True

    def bootstrap_results(self, init_state: Any) -> RiemannianNUTSResults:
        """Results for the start of a chain. Cost: one value and one gradient."""
        with tf.name_scope(f'{self.name}.bootstrap_results'):
            parts = state_parts(init_state, 'init_state')
            density = LogDensity.at_state(self.target_log_prob_fn, parts)
            position = density.layout.flatten(parts)
            log_prob, gradient = self._first_evaluation(density, position)
            none, no = tf.zeros_like(log_prob, dtype=tf.int32), tf.zeros_like(log_prob, dtype=tf.bool)
            density.layout.flat_step_size(self.step_size, parts)  # raises if it does not fit the state
            return RiemannianNUTSResults(
                target_log_prob=log_prob,
                grads_target_log_prob=density.layout.unflatten(gradient),
                step_size=density.layout.stored_step_size(self.step_size),
                log_accept_ratio=tf.zeros_like(log_prob),
                leapfrogs_taken=none,
                is_accepted=no,
                reach_max_depth=no,
                has_divergence=no,
                energy=-log_prob,
                seed=tf.zeros([2], tf.int32),  # room for one_step's seed
                status=none + int(Status.OK),
                solver_iterations=none,
                num_metric_evaluations=none,
                momentum_distribution=_centred_normal(tf.ones_like(position)),
            )

    def one_step(
        self, current_state: Any, previous_kernel_results: RiemannianNUTSResults, seed: Any = None
    ) -> tuple[Any, RiemannianNUTSResults]:
        """One tree, and a draw from it."""
        with tf.name_scope(f'{self.name}.one_step'):
            self._refuse_shards()
            previous = previous_kernel_results
            parts = state_parts(current_state)
            layout = StateLayout.of(parts, previous.target_log_prob)
            hamiltonian = Hamiltonian(LogDensity(self.target_log_prob_fn, layout), self.metric)
            position = layout.flatten(parts)
            step_size = layout.flat_step_size(previous.step_size, parts)
            known = Evaluation(previous.target_log_prob, layout.flatten(previous.grads_target_log_prob))
            seed = checked_seed(seed)
            momentum_seed, tree_seed = split_seed(seed)

            local = hamiltonian.at(position, known)
            ledger = Ledger.new(position)
            ledger = ledger if self._integrator.ends_are_cheap else ledger.evaluated(1)
            point = self._integrator.draw(local, position, step_size, ledger, momentum_seed)
            gardener = Gardener(
                self._integrator,
                hamiltonian,
                step_size,
                self.max_tree_depth,
                tf.cast(self._parameters['max_energy_diff'], position.dtype),
                self._steps_per_leaf,
            )

            num_uniforms = 2 * self.max_tree_depth + 2**self.max_tree_depth
            tree = gardener.grow(local, point, uniforms_like(previous.target_log_prob, tree_seed, num_uniforms))
            results = self._results(tree, layout, previous, seed)
            results = results._replace(
                energy=local.energy(point.momentum), momentum_distribution=_centred_normal(local.factor.diagonal(position))
            )
            next_parts = layout.unflatten(tree.draw.position)
            packs = is_list_like(current_state)
            return tf.nest.pack_sequence_as(current_state, next_parts) if packs else next_parts[0], results

    def _results(
        self, tree: Tree, layout: StateLayout, previous: RiemannianNUTSResults, seed: tf.Tensor
    ) -> RiemannianNUTSResults:
        status = tree.ledger.status
        num_leaves = tf.cast(tf.maximum(tree.num_leaves, 1), tree.total_acceptance.dtype)
        evaluations = tree.ledger.metric_evaluations
        if self._integrator.ends_are_cheap:  # what steps cost is their gradients, which they do not count
            gradients_of_leaf = self._steps_per_leaf * len(composition(self._integrator.order))
            evaluations += tree.num_leaves * gradients_of_leaf
        return previous._replace(
            target_log_prob=tree.draw.log_prob,
            grads_target_log_prob=layout.unflatten(tree.draw.gradient),
            log_accept_ratio=tf.math.log(tree.total_acceptance / num_leaves),
            leapfrogs_taken=tree.num_leaves * self._steps_per_leaf,
            is_accepted=tree.has_moved,
            reach_max_depth=tree.is_growing,
            has_divergence=tf.equal(status, Status.DIVERGED) | tf.equal(status, Status.NON_FINITE),
            seed=seed,
            status=status,
            solver_iterations=tree.ledger.iterations,
            num_metric_evaluations=evaluations,
            proposed_state=(),
            proposed_results=(),
        )


def _centred_normal(variance: tf.Tensor) -> tfp.distributions.Normal:
    return tfp.distributions.Normal(tf.zeros_like(variance), tf.sqrt(variance))
