"""Metrics: what a position says about the local scale of the target."""

from tfp_rmhmc.metric.base import DenseMetric, Evaluation, LocalMetric, MatrixMetric, Metric
from tfp_rmhmc.metric.connection import Connection, Kick
from tfp_rmhmc.metric.constant import MAX_DENSE
from tfp_rmhmc.metric.diagonal import DiagonalMetric
from tfp_rmhmc.metric.euclidean import EuclideanMetric
from tfp_rmhmc.metric.factor import CholeskyFactor, DenseFactor, DiagonalFactor, Factor, RankOneFactor, SoftAbsFactor
from tfp_rmhmc.metric.fisher import FisherMetric
from tfp_rmhmc.metric.gauss_newton import GaussNewtonMetric
from tfp_rmhmc.metric.hessian import HessianMetric, SoftAbsMetric
from tfp_rmhmc.metric.hint import ScaleHint, scale_hint
from tfp_rmhmc.metric.learned import LearnedMetric, ScaleStructure
from tfp_rmhmc.metric.learning import LEAST_GAIN, MAX_LEARNED, Fit, diagonal_fit, fit_metric, normal_scores
from tfp_rmhmc.metric.monge import MongeMetric
from tfp_rmhmc.metric.prior import PriorScales
from tfp_rmhmc.metric.pullback import PullbackMetric
from tfp_rmhmc.metric.separable import SeparableMetric
from tfp_rmhmc.metric.separable_factor import SeparableFactor
from tfp_rmhmc.metric.separation import KineticTerms, Partition, Separation

__all__ = [
    'LEAST_GAIN',
    'MAX_DENSE',
    'MAX_LEARNED',
    'CholeskyFactor',
    'Connection',
    'DenseFactor',
    'DenseMetric',
    'DiagonalFactor',
    'DiagonalMetric',
    'EuclideanMetric',
    'Evaluation',
    'Factor',
    'FisherMetric',
    'Fit',
    'GaussNewtonMetric',
    'HessianMetric',
    'Kick',
    'KineticTerms',
    'LearnedMetric',
    'LocalMetric',
    'MatrixMetric',
    'Metric',
    'MongeMetric',
    'Partition',
    'PriorScales',
    'PullbackMetric',
    'RankOneFactor',
    'ScaleHint',
    'ScaleStructure',
    'SeparableFactor',
    'SeparableMetric',
    'Separation',
    'SoftAbsFactor',
    'SoftAbsMetric',
    'diagonal_fit',
    'fit_metric',
    'normal_scores',
    'scale_hint',
]
