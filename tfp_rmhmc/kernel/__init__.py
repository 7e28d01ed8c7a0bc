"""The transition kernels."""

from tfp_rmhmc.kernel.explicit import ExplicitRiemannianHMC, UncalibratedExplicitRiemannianHMC
from tfp_rmhmc.kernel.implicit import ImplicitRiemannianHMC, UncalibratedImplicitRiemannianHMC
from tfp_rmhmc.kernel.results import UncalibratedRiemannianHMCResults
from tfp_rmhmc.kernel.riemannian_hmc import RiemannianHMC, UncalibratedRiemannianHMC
from tfp_rmhmc.kernel.riemannian_nuts import RiemannianNUTS, RiemannianNUTSResults

__all__ = [
    'ExplicitRiemannianHMC',
    'ImplicitRiemannianHMC',
    'RiemannianHMC',
    'RiemannianNUTS',
    'RiemannianNUTSResults',
    'UncalibratedExplicitRiemannianHMC',
    'UncalibratedImplicitRiemannianHMC',
    'UncalibratedRiemannianHMC',
    'UncalibratedRiemannianHMCResults',
]
