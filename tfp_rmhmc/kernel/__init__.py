"""The transition kernels."""

from tfp_rmhmc.kernel.explicit import ExplicitRiemannianHMC, UncalibratedExplicitRiemannianHMC
from tfp_rmhmc.kernel.implicit import ImplicitRiemannianHMC, UncalibratedImplicitRiemannianHMC
from tfp_rmhmc.kernel.results import UncalibratedRiemannianHMCResults
from tfp_rmhmc.kernel.riemannian_hmc import RiemannianHMC, UncalibratedRiemannianHMC

__all__ = [
    'ExplicitRiemannianHMC',
    'ImplicitRiemannianHMC',
    'RiemannianHMC',
    'UncalibratedExplicitRiemannianHMC',
    'UncalibratedImplicitRiemannianHMC',
    'UncalibratedRiemannianHMC',
    'UncalibratedRiemannianHMCResults',
]
