"""The Integrator protocol: what moves a point through phase space, one step at a time."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian
from tfp_rmhmc.integrator.status import Ledger
from tfp_rmhmc.metric import Evaluation, Metric

__all__ = ['Integrator', 'Leg', 'Point', 'composition', 'is_shared']


class Point(NamedTuple):
    """A point of an integrator's phase space. Vectors are `[batch..., D]`.

    An integrator that needs more, such as a second copy or a starting guess, has a `point_type` with more fields,
    `[batch..., D]` or `[batch...]`.

    Attributes:
      position, momentum: `q` and `p`.
      ledger: what the trajectory has cost so far, and the chains that failed.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    ledger: Ledger


class Leg(NamedTuple):
    """A piece of a trajectory.

    Attributes:
      step_size: a scalar, or a tensor that broadcasts with the position.
      num_steps: int32 scalar, possibly 0.
      is_start: whether it begins where auxiliary variables have just been drawn, or (then `num_steps` is 0) has ended.
    """

    step_size: tf.Tensor
    num_steps: tf.Tensor
    is_start: tf.Tensor


class Integrator(abc.ABC):
    """Approximates the flow of a Hamiltonian by steps that can be reversed, and preserve volume or say how they change it.

    To add one, write `step`; the rest has defaults that fit an integrator of (q, p). The accept step is exact if a step
    from the end with the momentum reversed leads back to the start, and if a step preserves the volume of its phase space,
    or `log_determinant` says by what factor the steps so far have changed it.
    Integrators in a doubled phase space differ in three more methods: their draw (`draw`), their trajectory (`travel`), and
    what their further variables add to the energy (`auxiliary_energies`).

    Everything is batched: vectors are `[batch..., D]`, and a chain must not depend on its neighbours. Nothing may branch in
    Python on a tensor. A chain that cannot go on is marked with `point.ledger.fail`, and stays where it is.

    Attributes:
      point_type: the NamedTuple of the integrator's points; its first fields are `Point`'s.
      is_explicit: True or False for integrators that `ExplicitRiemannianHMC` or `ImplicitRiemannianHMC` alone takes; None
        for those that both take.
      preserves_volume: whether every step does; where not, points carry a log determinant.
      has_auxiliary_variables: whether there are variables beside (q, p) that the accept step sees.
      ends_are_cheap: whether the integrator carries the log density and its gradient along, so that the metric at the ends
        of a trajectory costs little.
      is_infallible: whether steps leave the ledger as it is, because nothing can fail in them and they count no evaluations
        (the kernel does, by their number). Loops then need not carry the ledger along.
      order: the order of accuracy. Second-order steps are composed to fourth order by `travel`.
    """

    point_type: ClassVar[Any] = Point
    is_explicit: ClassVar[bool | None] = None
    preserves_volume: ClassVar[bool] = True
    has_auxiliary_variables: ClassVar[bool] = False
    ends_are_cheap: ClassVar[bool] = False
    is_infallible: ClassVar[bool] = False
    order: int = 2

    @property
    def is_exact(self) -> bool:
        """Whether accepting with the proposal's correction leaves the target invariant."""
        return True

    def check_metric(self, metric: Metric) -> None:
        """Raises one sentence if the integrator cannot use this metric. By default it can use any."""
        del metric

    @abc.abstractmethod
    def step(self, hamiltonian: Hamiltonian, point: Any, step_size: tf.Tensor) -> Any:
        """The point after one step.

        Args:
          hamiltonian: `hamiltonian.at(q)` gives `velocity(p)` and `force(p)` at a position.
          point: a `point_type`. Return `point._replace(position=..., momentum=...)`.
          step_size: a scalar, or a tensor that broadcasts with the position. With `S = diag(step_size)` the scaled
            equations `dq = S dH/dp, dp = -S dH/dq` are Hamiltonian in `q / sqrt(S), p / sqrt(S)`, so every form is legal. A
            negative step is the inverse of the positive one.
        """

    def blank(self, hamiltonian: Hamiltonian, position: tf.Tensor, step_size: tf.Tensor, known: Evaluation | None) -> Any:
        """A point at `position` whose other fields are yet to be filled, for a loop to begin with.

        Args:
          hamiltonian: which an integrator may ask for what it wants to know of the position.
          position: `[batch..., D]`.
          step_size: of the trajectory.
          known: log density and gradient there, if they are known.
        """
        del hamiltonian, step_size, known
        zeros = tf.zeros_like(position)
        others = [zeros] * (len(self.point_type._fields) - len(Point._fields))
        return self.point_type(position, zeros, Ledger.new(position), *others)

    def known(self, point: Any) -> Evaluation | None:
        """Log density and gradient at a point, if the integrator carries them along."""
        del point
        return None

    def begin(
        self, local: LocalHamiltonian, position: tf.Tensor, momentum: tf.Tensor, step_size: tf.Tensor, ledger: Ledger
    ) -> Any:
        """The point at (position, momentum) from which a trajectory starts; further fields are zero.

        Args:
          local: the Hamiltonian at `position`.
          position, momentum: `[batch..., D]`.
          step_size: of the trajectory.
          ledger: of the chains.
        """
        del local, step_size
        others = [tf.zeros_like(position)] * (len(self.point_type._fields) - len(Point._fields))
        return self.point_type(position, momentum, ledger, *others)

    def draw(
        self, local: LocalHamiltonian, position: tf.Tensor, step_size: tf.Tensor, ledger: Ledger, seed: tf.Tensor
    ) -> Any:
        """The point at `position` with a fresh momentum, `p ~ N(0, G)`, and fresh auxiliary variables, if there are any.

        Args:
          local: the Hamiltonian at `position`.
          position: `[batch..., D]`.
          step_size: of the trajectory.
          ledger: of the chains.
          seed: int32[2].
        """
        return self.begin(local, position, local.draw_momentum(seed), step_size, ledger)

    def travel(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Any, leg: Leg) -> Any:
        """The point after all steps of a leg.

        Args:
          hamiltonian: as in `step`.
          local: the Hamiltonian at the point's position.
          point: where the leg starts.
          leg: step size and number of steps.
        """
        del local
        lengths = composition(self.order)

        def body(i: tf.Tensor, point: Any) -> tuple[tf.Tensor, Any]:
            step = leg.step_size
            if len(lengths) > 1:
                step = step * tf.gather(tf.constant(lengths, step.dtype), i % len(lengths))
            return i + 1, self.advance(hamiltonian, point, step)

        num_substeps = leg.num_steps * len(lengths)
        entered = self.enter(hamiltonian, point, leg.step_size)
        _, end = tf.while_loop(lambda i, _: i < num_substeps, body, (tf.constant(0), entered))
        return self.leave(hamiltonian, end, leg.step_size)

    def enter(self, hamiltonian: Hamiltonian, point: Any, step_size: tf.Tensor) -> Any:
        """The point in the form in which `travel` carries it from step to step; by default as it is."""
        del hamiltonian, step_size
        return point

    def advance(self, hamiltonian: Hamiltonian, point: Any, step_size: tf.Tensor) -> Any:
        """One step of a point in the form that `enter` gives it; by default `step`."""
        return self.step(hamiltonian, point, step_size)

    def leave(self, hamiltonian: Hamiltonian, point: Any, step_size: tf.Tensor) -> Any:
        """The inverse of `enter`."""
        del hamiltonian, step_size
        return point

    def steps(self, hamiltonian: Hamiltonian, point: Any, step_size: tf.Tensor, num_steps: int) -> Any:
        """The point after `num_steps` steps of the integrator's order, each complete in itself: a leaf of a tree.

        Unlike `travel` it does not know of a start or an end: whatever is drawn at the one or weighed at the other is done
        by `launched` and `landed`.
        """
        lengths = composition(self.order) * num_steps
        if len(lengths) == 1:
            return self.step(hamiltonian, point, step_size)

        def body(i: tf.Tensor, point: Any) -> tuple[tf.Tensor, Any]:
            return i + 1, self.step(hamiltonian, point, step_size * tf.gather(tf.constant(lengths, step_size.dtype), i))

        return tf.while_loop(lambda i, _: i < len(lengths), body, (tf.constant(0), point))[1]

    def flipped(self, point: Any) -> Any:
        """The point with its momenta reversed: a step from there undoes the last one, up to another flip."""
        return point._replace(momentum=-point.momentum)

    def launched(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Any, step_size: tf.Tensor) -> Any:
        """The point in the form in which steps carry it, of one as it is drawn; by default as it is.

        Args:
          hamiltonian: as in `step`.
          local: the Hamiltonian at the point's position.
          point: as `draw` makes it.
          step_size: of the steps, forwards.
        """
        del hamiltonian, local, step_size
        return point

    def landed(self, hamiltonian: Hamiltonian, local: LocalHamiltonian, point: Any, step_size: tf.Tensor) -> Any:
        """The inverse of `launched`: the point for which `auxiliary_energies` are."""
        del hamiltonian, local, step_size
        return point

    def auxiliary_energies(self, local: LocalHamiltonian, point: Any, step_size: tf.Tensor) -> tf.Tensor:
        """Terms `[batch..., D]` whose sum is minus the log density of variables beside (q, p), up to a constant."""
        del local, step_size
        return tf.zeros_like(point.position)

    def log_determinant(self, point: Any) -> tf.Tensor:
        """Log of the absolute determinant `[batch...]` of the map from where a trajectory began, or a tree, to a point.

        It is asked for only of integrators that say `preserves_volume = False`; these carry it along in their points.
        """
        return tf.zeros_like(point.position[..., 0])

    def __repr__(self) -> str:
        arguments = ', '.join(f'{name.lstrip("_")}={value!r}' for name, value in vars(self).items())
        return f'{type(self).__name__}({arguments})'


def composition(order: int) -> tuple[float, ...]:
    """The lengths, in units of a step, of the symmetric second-order steps that make one step of `order` 2 or 4.

    For order 4, Yoshida's triple jump: `(c, 1 - 2c, c)` with `c = 1 / (2 - 2^(1/3))`. Reference: Yoshida 1990,
    "Construction of higher order symplectic integrators", eq. 2.11. Three times the cost of a step of order 2.
    """
    if order == 2:
        return (1.0,)
    outer = 1.0 / (2.0 - 2.0 ** (1.0 / 3.0))
    return (outer, 1.0 - 2.0 * outer, outer)


def is_shared(step_size: tf.Tensor) -> bool:
    """Whether all coordinates share a step size: a scalar, or one number for each chain, `[batch..., 1]`."""
    return step_size.shape.rank == 0 or step_size.shape[-1] == 1
