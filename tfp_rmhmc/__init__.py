"""Riemannian manifold Hamiltonian Monte Carlo for TensorFlow Probability."""

from tfp_rmhmc import keras
from tfp_rmhmc._version import __version__
from tfp_rmhmc.data_sum import SumOverBatches, SumOverReplicas
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.diagnostic import default_trace_fn, initial_velocity_getter_fn, proposed_velocity_getter_fn
from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian, PhasePoint, Slope
from tfp_rmhmc.integrator import (
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Integrator,
    Ledger,
    Leg,
    MetricCoupling,
    Point,
    Proposal,
    Status,
    SymmetricProjection,
    TaoBinding,
)
from tfp_rmhmc.kernel import (
    ExplicitRiemannianHMC,
    ImplicitRiemannianHMC,
    RiemannianHMC,
    UncalibratedExplicitRiemannianHMC,
    UncalibratedImplicitRiemannianHMC,
    UncalibratedRiemannianHMC,
)
from tfp_rmhmc.metric import (
    DenseMetric,
    DiagonalMetric,
    EuclideanMetric,
    Factor,
    FisherMetric,
    GaussNewtonMetric,
    HessianMetric,
    LocalMetric,
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
    'Factor',
    'FisherMetric',
    'GaussNewtonMetric',
    'GeneralizedLeapfrog',
    'Hamiltonian',
    'HessianMetric',
    'ImplicitMidpoint',
    'ImplicitRiemannianHMC',
    'Integrator',
    'Ledger',
    'Leg',
    'LocalHamiltonian',
    'LocalMetric',
    'LogDensity',
    'Metric',
    'MetricCoupling',
    'MongeMetric',
    'PhasePoint',
    'Point',
    'PosteriorDraws',
    'Proposal',
    'PullbackMetric',
    'RiemannianHMC',
    'Slope',
    'SoftAbsMetric',
    'Status',
    'SumOverBatches',
    'SumOverReplicas',
    'SymmetricProjection',
    'TaoBinding',
    'UncalibratedExplicitRiemannianHMC',
    'UncalibratedImplicitRiemannianHMC',
    'UncalibratedRiemannianHMC',
    '__version__',
    'default_trace_fn',
    'initial_velocity_getter_fn',
    'keras',
    'prefers_xla',
    'proposed_velocity_getter_fn',
    'sample_posterior',
]
