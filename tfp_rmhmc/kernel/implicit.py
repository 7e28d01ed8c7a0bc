"""Implicit Riemannian manifold HMC."""

from __future__ import annotations

from tfp_rmhmc.integrator import GeneralizedLeapfrog, Integrator
from tfp_rmhmc.kernel.riemannian_hmc import CalibratedKernel, UncalibratedRiemannianHMC, with_signature_of
from tfp_rmhmc.metric import Metric

__all__ = ['ImplicitRiemannianHMC', 'UncalibratedImplicitRiemannianHMC']


class UncalibratedImplicitRiemannianHMC(UncalibratedRiemannianHMC):
    """The proposal of `ImplicitRiemannianHMC`, without its accept step; the arguments are the same."""

    _takes_explicit = False

    @staticmethod
    def _default_integrator(metric: Metric) -> Integrator:
        del metric
        return GeneralizedLeapfrog()


@with_signature_of(UncalibratedImplicitRiemannianHMC)
class ImplicitRiemannianHMC(CalibratedKernel):
    """Riemannian manifold HMC with an implicit integrator: each chain solves its own equations to a tolerance.

    Reference: Girolami and Calderhead 2011, "Riemann manifold Langevin and Hamiltonian Monte Carlo methods". A chain whose
    equations cannot be solved keeps its state and says so in `proposed_results.status`.

    It is `RiemannianHMC` with another default.

    Args:
      integrator: `GeneralizedLeapfrog()` (the default), `ImplicitMidpoint()`, or an integrator of your own.
      **kwargs: the other arguments, which are those of `RiemannianHMC`.
    """

    uncalibrated_class = UncalibratedImplicitRiemannianHMC
