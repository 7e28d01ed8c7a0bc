"""Trajectories that end where they turn back: trees of steps, grown by doubling, for any integrator.

A tree is the set of points that steps lead to, forwards and backwards, from the point at which it was planted. It is grown
by doubling: a branch of as many leaves as the tree has is added at an end chosen at random, until the tree or a part of it
turns back on itself. Which set comes about does not depend on the leaf at which it was planted, so a draw from it with
weights `exp(-H)` leaves the target invariant.

All chains grow branches of one depth at a time, so that the number of a leaf is one scalar for all of them. A branch that
turns, diverges or cannot go on ends its chain's tree and is dropped as a whole, so no chain ever waits for another one's
branch. Memory: six vectors for each level of the tree. References: Hoffman and Gelman 2014, "The No-U-Turn sampler";
Betancourt 2013, "Generalizing the No-U-Turn sampler to Riemannian manifolds"; Betancourt 2017, "A conceptual introduction
to Hamiltonian Monte Carlo", appendix A; Phan, Pradhan and Jankowiak 2019 for growing a branch without recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian, PhasePoint, kinetic_energy_change
from tfp_rmhmc.integrator.base import Integrator
from tfp_rmhmc.integrator.status import Ledger, Status
from tfp_rmhmc.xla import is_compiled_by_xla

__all__ = ['Draw', 'Gardener', 'Tree']

# From a number, int32, of the draw: uniform on (0, 1), `[batch...]`.
_Uniform = Callable[[tf.Tensor], tf.Tensor]

# In a branch's ledger, beside `Status`: the branch turned back, or its tree had ended before. To a solver, such a chain has
# nothing more to do.
_ENDED = -1


class Draw(NamedTuple):
    """A leaf drawn from a tree or a branch: its position, log density `[batch...]` and gradient."""

    position: tf.Tensor
    log_prob: tf.Tensor
    gradient: tf.Tensor


class Tree(NamedTuple):
    """A tree. Vectors are `[batch..., D]`, the rest `[batch...]`.

    Attributes:
      depth: doublings so far, a scalar, int32.
      is_growing: the chains whose trees have not turned back, diverged or failed.
      left, right: the integrator's points at both ends.
      left_velocity, right_velocity: `G^-1 p` there.
      total_momentum: the sum of the leaves' momenta.
      log_weight: of the whole tree, relative to the leaf at which it was planted.
      draw: a leaf drawn by its weight.
      has_moved: whether it is another one than that.
      num_leaves: that were visited, whether kept or not, int32.
      total_acceptance: sum over these of `min(1, exp(-energy change))`.
      ledger: what the tree has cost, and why it ended if it failed.
      memory: for the branches.
    """

    depth: tf.Tensor
    is_growing: tf.Tensor
    left: Any
    right: Any
    left_velocity: tf.Tensor
    right_velocity: tf.Tensor
    total_momentum: tf.Tensor
    log_weight: tf.Tensor
    draw: Draw
    has_moved: tf.Tensor
    num_leaves: tf.Tensor
    total_acceptance: tf.Tensor
    ledger: Ledger
    memory: _Memory


class _Memory(NamedTuple):
    """What is kept of earlier leaves of a branch, to look at parts of it when their last leaf arrives.

    A part of 4, 8, ... leaves begins with an even leaf, and so does its second half; its first half ends with an odd one.
    An even leaf is kept at the number of ones that it has in binary, which no other leaf needs that is still asked for; an
    odd one, behind the even ones, at the number of ones with which it ends. All are arrays of `2 * levels` vectors: a
    `tf.TensorArray` is written in place, where a scatter would copy all of it.

    Attributes:
      velocity: of the leaf.
      before, after: the sums of momenta of the branch before and after it.
    """

    velocity: tf.TensorArray
    before: tf.TensorArray
    after: tf.TensorArray


class _Branch(NamedTuple):
    """A branch that is being grown. The attributes are those of `Tree`, of the branch alone, and:

    Attributes:
      point: the integrator's point at its last leaf.
      ledger: OK for chains whose branch may still become part of their tree.
    """

    point: Any
    total_momentum: tf.Tensor
    log_weight: tf.Tensor
    draw: Draw
    num_leaves: tf.Tensor
    total_acceptance: tf.Tensor
    ledger: Ledger
    memory: _Memory


class _Root(NamedTuple):
    """The leaf at which a tree was planted, from whose energy that of all others is measured.

    Attributes:
      phase: what H is made of there.
      energy: H, `[batch...]`.
      auxiliary_energies: what variables beside (q, p) add to it, `[batch..., D]`, or empty.
    """

    phase: PhasePoint
    energy: tf.Tensor
    auxiliary_energies: Any


class _Leaf(NamedTuple):
    """The integrator's point at a leaf, what H is made of there, and the energy's change from the root, `[batch...]`."""

    point: Any
    phase: PhasePoint
    energy_change: tf.Tensor


class Gardener:
    """Grows trees of no U-turn.

    A part of a trajectory goes on as long as, with rho the sum of its momenta and v = G^-1 p the velocities at its ends,

        v_left . rho > 0    and    v_right . rho > 0

    This is looked at for the whole tree and for every part that doubling made of it; and once more across the seam of the
    two halves of each, for one half with the nearest leaf of the other. (Without the latter, trajectories of a length near
    a full period are missed.)

    Args:
      integrator: any one whose steps can be reversed. Where they do not preserve volume, a leaf's weight has the
        determinant of the way from the root, `exp(-H) |det|`: from which leaf it is measured is one factor for all.
      hamiltonian: of the current target and metric.
      step_size: a scalar, or a tensor that broadcasts with the position.
      max_depth: doublings at most.
      max_energy_change: above which a leaf counts as divergent.
      steps_per_leaf: steps of the integrator from one leaf to the next.
    """

    def __init__(
        self,
        integrator: Integrator,
        hamiltonian: Hamiltonian,
        step_size: tf.Tensor,
        max_depth: int,
        max_energy_change: Any,
        steps_per_leaf: int,
    ):
        self._integrator = integrator
        self._hamiltonian = hamiltonian
        self._step_size = step_size
        self._max_depth = max_depth
        self._max_energy_change = max_energy_change
        self._steps_per_leaf = steps_per_leaf
        # Whether leaves change more of a ledger than its status.
        self._counts = not (integrator.is_infallible and integrator.ends_are_cheap)

    def grow(self, local: LocalHamiltonian, point: Any, uniform: _Uniform) -> Tree:
        """The tree that is planted at a point.

        Args:
          local: the Hamiltonian at the point's position.
          point: the integrator's, as it was drawn.
          uniform: draws by number: 2 for each doubling, from 0, and one for each leaf after those.
        """
        phase = PhasePoint.of(local, point.position, point.momentum)
        root = _Root(phase, phase.energy, self._auxiliary_energies(local, point))
        (tree,) = tf.while_loop(
            lambda tree: (tree.depth < self._max_depth) & tf.reduce_any(tree.is_growing),
            lambda tree: (self._doubled(root, tree, uniform),),
            (self._planted(phase, self._integrator.launched(self._hamiltonian, local, point, self._step_size)),),
        )
        return tree

    def _planted(self, phase: PhasePoint, point: Any) -> Tree:
        """The tree of one leaf."""
        zeros, none = tf.zeros_like(phase.log_prob), tf.zeros_like(phase.log_prob, dtype=tf.int32)
        is_finite = tf.math.is_finite(phase.energy) & tf.reduce_all(tf.math.is_finite(phase.gradient), axis=-1)
        ledger = point.ledger.fail(~is_finite, Status.NON_FINITE)
        return Tree(
            depth=tf.constant(0),
            is_growing=ledger.is_ok,
            left=_without_ledger(point),
            right=_without_ledger(point),
            left_velocity=phase.velocity,
            right_velocity=phase.velocity,
            total_momentum=phase.momentum,
            log_weight=zeros,
            draw=Draw(phase.position, phase.log_prob, phase.gradient),
            has_moved=tf.zeros_like(phase.log_prob, dtype=tf.bool),
            num_leaves=none,
            total_acceptance=zeros,
            ledger=ledger,
            memory=_Memory(*[_array_of(phase.position, 2 * self._max_depth) for _ in _Memory._fields]),
        )

    def _auxiliary_energies(self, local: LocalHamiltonian, point: Any) -> Any:
        """Of a point as it is drawn, not as steps carry it along."""
        if not self._integrator.has_auxiliary_variables:
            return ()
        return self._integrator.auxiliary_energies(local, point, self._step_size)

    def _doubled(self, root: _Root, tree: Tree, uniform: _Uniform) -> Tree:
        """The tree with one branch more, at an end that is chosen at random for each chain."""
        goes_right = uniform(2 * tree.depth) < 0.5
        near, far = _choose(goes_right, tree.right, tree.left), _choose(goes_right, tree.left, tree.right)
        near_velocity = _choose(goes_right, tree.right_velocity, tree.left_velocity)
        far_velocity = _choose(goes_right, tree.left_velocity, tree.right_velocity)

        def turned_around(point: Any) -> Any:
            return _choose(goes_right, point, self._integrator.flipped(point))

        # To the left goes who turns around first: steps are of one sign, and no integrator has to walk backwards.
        branch = self._branch(root, tree, turned_around(near), uniform)
        is_whole, end = branch.ledger.is_ok, turned_around(branch.point)
        sign = 2.0 * tf.cast(goes_right, near_velocity.dtype)[..., tf.newaxis] - 1.0
        momentum = sign * branch.total_momentum
        velocity = sign * branch.memory.velocity.read(_slot_of_last_leaf(tree.depth, self._max_depth))
        first_velocity, first_momentum = sign * branch.memory.velocity.read(0), sign * branch.memory.after.read(0)
        total = tree.total_momentum + momentum
        progress = _least(
            _progress(far_velocity, velocity, total),
            _progress_across(
                (far_velocity, first_velocity, tree.total_momentum + first_momentum),
                (near_velocity, velocity, momentum + near.momentum),
            ),
        )
        # Biased towards the branch: the tree's own draw stays with what is left of the probability.
        gain = branch.log_weight - tree.log_weight
        takes = is_whole & (uniform(2 * tree.depth + 1) < tf.exp(gain))
        return Tree(
            depth=tree.depth + 1,
            is_growing=is_whole & (progress > 0.0),
            left=_choose(goes_right, far, end),
            right=_choose(goes_right, end, far),
            left_velocity=_choose(goes_right, far_velocity, velocity),
            right_velocity=_choose(goes_right, velocity, far_velocity),
            total_momentum=total,
            log_weight=tf.where(is_whole, tree.log_weight + tf.math.softplus(gain), tree.log_weight),
            draw=_choose(takes, branch.draw, tree.draw),
            has_moved=tree.has_moved | takes,
            num_leaves=branch.num_leaves,
            total_acceptance=branch.total_acceptance,
            ledger=tree.ledger._replace(**_given(branch.ledger._replace(status=_revealed(branch.ledger.status)))),
            memory=branch.memory,
        )

    def _branch(self, root: _Root, tree: Tree, point: Any, uniform: _Uniform) -> _Branch:
        """A branch of `2**depth` leaves that goes on from an end of the tree, or as much of it as was needed."""
        num_leaves = tf.bitwise.left_shift(1, tree.depth)
        ended = tree.ledger.fail(~tree.is_growing, tf.constant(_ENDED))
        start = _Branch(
            point=point,
            total_momentum=tf.zeros_like(tree.total_momentum),
            log_weight=tf.fill(tf.shape(tree.log_weight), tf.constant(-float('inf'), tree.log_weight.dtype)),
            draw=tree.draw,
            num_leaves=tree.num_leaves,
            total_acceptance=tree.total_acceptance,
            ledger=ended if self._counts else _status_alone(ended),
            memory=tree.memory,
        )
        start.log_weight.set_shape(tree.log_weight.shape)
        # A tree of depth d has 2**d leaves, of which all but the first were drawn for.
        offset = 2 * self._max_depth - 1 + num_leaves
        places = _places(self._max_depth)
        return tf.while_loop(
            lambda i, branch: (i < num_leaves) & tf.reduce_any(branch.ledger.is_ok),
            lambda i, branch: (i + 1, self._longer(root, branch, _Place.of(places, i), uniform(offset + i))),
            (tf.constant(0), start),
            parallel_iterations=1,
        )[1]

    def _longer(self, root: _Root, branch: _Branch, place: _Place, uniform: tf.Tensor) -> _Branch:
        """The branch with one leaf more."""
        leaf = self._next_leaf(root, branch.point._replace(ledger=branch.ledger))
        ledger = leaf.point.ledger
        is_ok = ledger.is_ok
        log_weight = _log_weight(leaf.energy_change)
        gain = log_weight - branch.log_weight
        takes = is_ok & (uniform < tf.sigmoid(gain))
        before = branch.total_momentum
        after = before + leaf.phase.momentum
        memory = _remembered(branch.memory, place, leaf.phase.velocity, before, after)
        progress = _progress_at(memory, place, self._max_depth, leaf.phase.velocity, after)
        acceptance = tf.exp(tf.minimum(-leaf.energy_change, 0.0))
        return _Branch(
            point=_without_ledger(leaf.point),
            total_momentum=after,
            # log(exp(x) + exp(y)), in the form that is right for the first leaf, when x is next to nothing.
            log_weight=log_weight + tf.math.softplus(-gain),
            draw=_choose(takes, Draw(leaf.phase.position, leaf.phase.log_prob, leaf.phase.gradient), branch.draw),
            num_leaves=branch.num_leaves + tf.cast(branch.ledger.is_ok, tf.int32),
            total_acceptance=branch.total_acceptance + tf.where(is_ok, acceptance, tf.zeros_like(acceptance)),
            ledger=ledger.fail(~(progress > 0.0), tf.constant(_ENDED)),
            memory=memory,
        )

    def _next_leaf(self, root: _Root, point: Any) -> _Leaf:
        """The leaf that steps lead to, with what went wrong on the way in its ledger."""
        point = self._integrator.steps(self._hamiltonian, point, self._step_size, self._steps_per_leaf)
        local = self._hamiltonian.at(point.position, self._integrator.known(point))
        phase = PhasePoint.of(local, point.position, point.momentum)
        if phase.log_prob.dtype == tf.float64:
            change = phase.energy - root.energy
        else:  # which would lose the difference in its own rounding
            change = kinetic_energy_change(root.phase, phase) + root.phase.log_prob - phase.log_prob
        if self._integrator.has_auxiliary_variables:
            landed = self._integrator.landed(self._hamiltonian, local, point, self._step_size)
            point = point._replace(ledger=landed.ledger)
            energies = self._auxiliary_energies(local, landed) - root.auxiliary_energies
            change += tf.reduce_sum(energies, axis=-1)
        if not self._integrator.preserves_volume:
            change -= self._integrator.log_determinant(point)
        ledger = point.ledger if self._integrator.ends_are_cheap else point.ledger.evaluated(1)
        is_finite = tf.math.is_finite(change)
        if not self._integrator.ends_are_cheap:  # else the gradient at the end is in the momentum, and so in the energy
            is_finite &= tf.reduce_all(tf.math.is_finite(phase.gradient), axis=-1)
        reason = tf.where(is_finite, tf.constant(int(Status.DIVERGED)), tf.constant(int(Status.NON_FINITE)))
        ledger = ledger.fail(~is_finite | (change > self._max_energy_change), reason)
        return _Leaf(point._replace(ledger=ledger), phase, change)


class _Place(NamedTuple):
    """Of a leaf in its branch, by the binary form of its number; scalars, int32.

    Attributes:
      slot: of the memory, at which the leaf is kept.
      ones: how many there are.
      trailing: with how many ones it ends, and so the number of parts that end with the leaf.
    """

    slot: tf.Tensor
    ones: tf.Tensor
    trailing: tf.Tensor

    @classmethod
    def of(cls, places: tf.Tensor, number: tf.Tensor) -> _Place:
        """The place of leaf `number`, from `_places`."""
        return cls(*tf.unstack(tf.gather(places, number)))


def _places(levels: int) -> tf.Tensor:
    """The places of all leaves that a branch can have, `[2**(levels - 1), 3]`, to be looked up in the loop."""
    numbers = tf.range(2 ** (levels - 1))
    ones, trailing = _ones(numbers), _ones(tf.bitwise.bitwise_xor(numbers, numbers + 1)) - 1
    return tf.stack([tf.where(trailing > 0, levels + trailing, ones), ones, trailing], axis=1)


def _slot_of_last_leaf(depth: tf.Tensor, levels: int) -> tf.Tensor:
    """Of the memory, at which the last leaf of a whole branch of `2**depth` leaves is kept, by the numbers of `_places`."""
    return tf.where(depth > 0, levels + depth, 0)


def _progress_at(memory: _Memory, place: _Place, levels: int, velocity: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """The least progress of any part of a branch that ends with a leaf: parts of 2, 4, 8, ... leaves.

    Args:
      memory: with the leaf.
      place: of the leaf.
      levels: of the memory.
      velocity: at the leaf.
      total: momenta of the branch with the leaf.
    """

    def look(level: tf.Tensor, progress: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first, second, last = place.ones - level, place.ones - level + 1, levels + level - 1
        first_velocity, before_first = memory.velocity.read(first), memory.before.read(first)
        of_part = _progress(first_velocity, velocity, total - before_first)
        across = _progress_across(
            (first_velocity, memory.velocity.read(second), memory.after.read(second) - before_first),
            (memory.velocity.read(last), velocity, total - memory.before.read(last)),
        )
        return level + 1, _least(progress, _least(of_part, across))

    def pair() -> tf.Tensor:
        first = place.ones - 1
        return _progress(memory.velocity.read(first), velocity, total - memory.before.read(first))

    def parts(progress: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda level, _: level <= place.trailing, look, (tf.constant(2), progress), parallel_iterations=1
        )[1]

    def none() -> tf.Tensor:
        return tf.ones_like(velocity[..., 0])

    is_odd = place.trailing > 0
    if is_compiled_by_xla():  # which would copy the whole memory into a branch of a condition
        return parts(tf.cond(is_odd, pair, none))
    return tf.cond(is_odd, lambda: parts(pair()), none)


def _remembered(memory: _Memory, place: _Place, *kept: tf.Tensor) -> _Memory:
    """The memory with velocity, and sums before and after, of a leaf."""
    return _Memory(*[array.write(place.slot, new) for array, new in zip(memory, kept, strict=True)])


def _array_of(like: tf.Tensor, size: int) -> tf.TensorArray:
    """An array of vectors, in which each place is set before it is read."""
    array = tf.TensorArray(like.dtype, size=size, clear_after_read=False, element_shape=like.shape)
    return array.write(0, tf.zeros_like(like))


def _progress(left_velocity: tf.Tensor, right_velocity: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """How a part goes on at the worse of its ends, given the velocities there and the sum of its momenta: `[batch...]`.

    It turns back where this is not positive.
    """
    return _least(_dot(left_velocity, total), _dot(right_velocity, total))


def _progress_across(first_half: tuple[tf.Tensor, ...], second_half: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """Of one half of a part with the nearest leaf of the other, the lesser; halves are arguments of `_progress`."""
    return _least(_progress(*first_half), _progress(*second_half))


def _least(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """The lesser one. What is not a number may be lost here: the energy of such a leaf is none either."""
    return tf.minimum(x, y)


def _log_weight(energy_change: tf.Tensor) -> tf.Tensor:
    """Of a leaf, relative to the tree's first one."""
    return -energy_change


def _dot(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x * y, axis=-1)


def _ones(number: tf.Tensor) -> tf.Tensor:
    """The number of ones of integers in binary."""
    return tf.cast(tf.raw_ops.PopulationCount(x=number), tf.int32)


def _revealed(status: tf.Tensor) -> tf.Tensor:
    """A branch's status as one of a tree: to have turned back is no failure."""
    return tf.maximum(status, int(Status.OK))


def _status_alone(ledger: Ledger) -> Ledger:
    return Ledger(ledger.status, *[()] * (len(Ledger._fields) - 1))


def _given(ledger: Ledger) -> dict[str, tf.Tensor]:
    """The fields that a ledger has."""
    return {name: value for name, value in ledger._asdict().items() if not isinstance(value, tuple)}


def _without_ledger(point: Any) -> Any:
    return point._replace(ledger=())


def _choose(condition: tf.Tensor, chosen: Any, otherwise: Any) -> Any:
    """`chosen` for the chains for which a condition `[batch...]` holds, for nests of `[batch...]` and `[batch..., D]`."""

    def choose(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        if x is y:  # the position of a point and of the same point turned around
            return x
        if condition.shape.rank == 1:  # whole rows are copied; `tf.where` would broadcast the condition, four times slower
            return tf.raw_ops.Select(condition=condition, x=x, y=y)
        return tf.where(condition if x.shape.rank == condition.shape.rank else condition[..., tf.newaxis], x, y)

    return tf.nest.map_structure(choose, chosen, otherwise)
