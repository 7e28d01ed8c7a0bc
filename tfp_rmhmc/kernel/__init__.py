"""The transition kernels."""

from tfp_rmhmc.kernel.explicit import ExplicitRiemannianHMC, UncalibratedExplicitRiemannianHMC
from tfp_rmhmc.kernel.implicit import ImplicitRiemannianHMC, UncalibratedImplicitRiemannianHMC
from tfp_rmhmc.kernel.results import UncalibratedRiemannianHMCResults

__all__ = [
    'ExplicitRiemannianHMC',
    'ImplicitRiemannianHMC',
    'UncalibratedExplicitRiemannianHMC',
    'UncalibratedImplicitRiemannianHMC',
    'UncalibratedRiemannianHMCResults',
]
