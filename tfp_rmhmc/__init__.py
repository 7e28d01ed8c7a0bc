"""Riemannian manifold Hamiltonian Monte Carlo for TensorFlow Probability."""

from tfp_rmhmc import keras
from tfp_rmhmc._version import __version__
from tfp_rmhmc.data_sum import SumOverBatches, SumOverReplicas
from tfp_rmhmc.diagnostic import default_trace_fn, initial_velocity_getter_fn, proposed_velocity_getter_fn
from tfp_rmhmc.integrator import (
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    MetricCoupling,
    Status,
    SymmetricProjection,
    TaoBinding,
)
from tfp_rmhmc.kernel import (
    ExplicitRiemannianHMC,
    ImplicitRiemannianHMC,
    UncalibratedExplicitRiemannianHMC,
    UncalibratedImplicitRiemannianHMC,
)
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
from tfp_rmhmc.sampling import PosteriorDraws, prefers_xla, sample_posterior

__all__ = [
    'DenseMetric',
    'DiagonalMetric',
    'EuclideanMetric',
    'ExplicitRiemannianHMC',
    'FisherMetric',
    'GaussNewtonMetric',
    'GeneralizedLeapfrog',
    'HessianMetric',
    'ImplicitMidpoint',
    'ImplicitRiemannianHMC',
    'Metric',
    'MetricCoupling',
    'MongeMetric',
    'PosteriorDraws',
    'PullbackMetric',
    'SoftAbsMetric',
    'Status',
    'SumOverBatches',
    'SumOverReplicas',
    'SymmetricProjection',
    'TaoBinding',
    'UncalibratedExplicitRiemannianHMC',
    'UncalibratedImplicitRiemannianHMC',
    '__version__',
    'default_trace_fn',
    'initial_velocity_getter_fn',
    'keras',
    'prefers_xla',
    'proposed_velocity_getter_fn',
    'sample_posterior',
]
