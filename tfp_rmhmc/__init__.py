"""Riemannian manifold Hamiltonian Monte Carlo for TensorFlow Probability."""

from tfp_rmhmc._version import __version__
from tfp_rmhmc.metric import (
    DenseMetric,
    DiagonalMetric,
    EuclideanMetric,
    FisherMetric,
    GaussNewtonMetric,
    HessianMetric,
    Metric,
    MongeMetric,
    PullbackMetric,
    SoftAbsMetric,
)

__all__ = [
    'DenseMetric',
    'DiagonalMetric',
    'EuclideanMetric',
    'FisherMetric',
    'GaussNewtonMetric',
    'HessianMetric',
    'Metric',
    'MongeMetric',
    'PullbackMetric',
    'SoftAbsMetric',
    '__version__',
]
