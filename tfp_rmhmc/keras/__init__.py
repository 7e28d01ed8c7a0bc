"""Posteriors of Keras models: from a model and data to a log density over its weights, and back to predictions."""

from tfp_rmhmc.keras.hierarchical import Hierarchical
from tfp_rmhmc.keras.posterior import KerasPosterior, make_posterior
from tfp_rmhmc.keras.predictive import Predictive

__all__ = ['Hierarchical', 'KerasPosterior', 'Predictive', 'make_posterior']
