"""From a model to draws in one call."""

from tfp_rmhmc.sampling.compilation import prefers_xla
from tfp_rmhmc.sampling.posterior import sample_posterior
from tfp_rmhmc.sampling.result import PosteriorDraws
from tfp_rmhmc.sampling.scales import LearnedScales

__all__ = ['LearnedScales', 'PosteriorDraws', 'prefers_xla', 'sample_posterior']
