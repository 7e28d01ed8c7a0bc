"""Explicit Riemannian manifold HMC."""

from __future__ import annotations

import inspect
from typing import Any

from tfp_rmhmc.kernel.riemannian_hmc import CalibratedKernel, UncalibratedRiemannianHMC, with_signature_of

__all__ = ['ExplicitRiemannianHMC', 'UncalibratedExplicitRiemannianHMC']


@with_signature_of(UncalibratedRiemannianHMC, integrator='coupling')
class UncalibratedExplicitRiemannianHMC(UncalibratedRiemannianHMC):
    """The proposal of `ExplicitRiemannianHMC`, without its accept step; the arguments are the same."""

    _integrator_argument = 'coupling'
    _takes_explicit = True

    def __init__(self, *args: Any, **kwargs: Any):
        arguments = inspect.signature(type(self)).bind(*args, **kwargs).arguments
        super().__init__(integrator=arguments.pop('coupling', None), **arguments)


@with_signature_of(UncalibratedExplicitRiemannianHMC)
class ExplicitRiemannianHMC(CalibratedKernel):
    """Riemannian manifold HMC with an explicit integrator: no equation is solved, and every step costs the same.

    The state is doubled and the copies are coupled, as in Cobb, Baydin, Markham and Roberts 2019, "Introducing an explicit
    symplectic integration scheme for Riemannian manifold Hamiltonian Monte Carlo". Unlike there, the copies are part of the
    target that the accept step sees, so the kernel leaves the target invariant exactly; see `MetricCoupling`.

    It is `RiemannianHMC` with other names and defaults.

    Args:
      coupling: `MetricCoupling()` (the default), `TaoBinding(...)`, `SymmetricProjection(...)`, or an integrator of your
        own.
      **kwargs: the other arguments, which are those of `RiemannianHMC`.
    """

    uncalibrated_class = UncalibratedExplicitRiemannianHMC
