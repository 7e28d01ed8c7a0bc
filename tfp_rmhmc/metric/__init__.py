"""Metrics: what a position says about the local scale of the target."""

from tfp_rmhmc.metric.base import DenseMetric, LocalMetric, Metric
from tfp_rmhmc.metric.diagonal import DiagonalMetric
from tfp_rmhmc.metric.euclidean import EuclideanMetric
from tfp_rmhmc.metric.factor import CholeskyFactor, DiagonalFactor, Factor, RankOneFactor, SoftAbsFactor
from tfp_rmhmc.metric.fisher import FisherMetric
from tfp_rmhmc.metric.gauss_newton import GaussNewtonMetric
from tfp_rmhmc.metric.hessian import HessianMetric, SoftAbsMetric
from tfp_rmhmc.metric.monge import MongeMetric
from tfp_rmhmc.metric.pullback import PullbackMetric

__all__ = [
    'CholeskyFactor',
    'DenseMetric',
    'DiagonalFactor',
    'DiagonalMetric',
    'EuclideanMetric',
    'Factor',
    'FisherMetric',
    'GaussNewtonMetric',
    'HessianMetric',
    'LocalMetric',
    'Metric',
    'MongeMetric',
    'PullbackMetric',
    'RankOneFactor',
    'SoftAbsFactor',
    'SoftAbsMetric',
]
