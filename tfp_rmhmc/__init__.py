"""Riemannian manifold Hamiltonian Monte Carlo for TensorFlow Probability."""

import sys

from tfp_rmhmc._quiet import quiet_import_of_tensorflow

if sys.argv[:1] == ['-m']:  # as long as Python looks for what `python -m tfp_rmhmc` runs: who wants a table wants no log
    quiet_import_of_tensorflow()

from tfp_rmhmc import keras
from tfp_rmhmc._version import __version__
from tfp_rmhmc.adaptation import RandomTrajectoryLength, WorstCoordinateLengthAdaptation
from tfp_rmhmc.data_sum import SumOverBatches, SumOverReplicas
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.diagnostic import default_trace_fn, initial_velocity_getter_fn, proposed_velocity_getter_fn
from tfp_rmhmc.hamiltonian import Hamiltonian, LocalHamiltonian, PhasePoint, Slope
from tfp_rmhmc.integrator import (
    GaussianSplit,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Integrator,
    Lagrangian,
    Ledger,
    Leg,
    MetricCoupling,
    Point,
    Proposal,
    SeparableLeapfrog,
    Status,
    SymmetricProjection,
    TaoBinding,
)
from tfp_rmhmc.kernel import (
    ExplicitRiemannianHMC,
    ImplicitRiemannianHMC,
    RiemannianHMC,
    RiemannianNUTS,
    UncalibratedExplicitRiemannianHMC,
    UncalibratedImplicitRiemannianHMC,
    UncalibratedRiemannianHMC,
)
from tfp_rmhmc.metric import (
    DenseMetric,
    DiagonalMetric,
    EuclideanMetric,
    Evaluation,
    Factor,
    FisherMetric,
    GaussNewtonMetric,
    HessianMetric,
    LocalMetric,
    Metric,
    MongeMetric,
    PullbackMetric,
    SeparableMetric,
    SoftAbsMetric,
)
from tfp_rmhmc.sampling import PosteriorDraws, prefers_xla, sample_posterior

__all__ = [
    'DenseMetric',
    'DiagonalMetric',
    'EuclideanMetric',
    'Evaluation',
    'ExplicitRiemannianHMC',
    'Factor',
    'FisherMetric',
    'GaussNewtonMetric',
    'GaussianSplit',
    'GeneralizedLeapfrog',
    'Hamiltonian',
    'HessianMetric',
    'ImplicitMidpoint',
    'ImplicitRiemannianHMC',
    'Integrator',
    'Lagrangian',
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
    'RandomTrajectoryLength',
    'RiemannianHMC',
    'RiemannianNUTS',
    'SeparableLeapfrog',
    'SeparableMetric',
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
    'WorstCoordinateLengthAdaptation',
    '__version__',
    'default_trace_fn',
    'initial_velocity_getter_fn',
    'keras',
    'prefers_xla',
    'proposed_velocity_getter_fn',
    'sample_posterior',
]
