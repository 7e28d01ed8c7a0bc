"""Integrators: how a point moves through phase space, and what the accept step needs to know of its trajectory."""

from tfp_rmhmc.integrator.base import Integrator, Leg, Point, composition
from tfp_rmhmc.integrator.gaussian_split import GaussianSplit
from tfp_rmhmc.integrator.generalized_leapfrog import GeneralizedLeapfrog
from tfp_rmhmc.integrator.implicit_midpoint import ImplicitMidpoint
from tfp_rmhmc.integrator.lagrangian import Lagrangian
from tfp_rmhmc.integrator.metric_coupling import MetricCoupling
from tfp_rmhmc.integrator.projection import SymmetricProjection
from tfp_rmhmc.integrator.separable_leapfrog import SeparableLeapfrog
from tfp_rmhmc.integrator.status import Ledger, Status
from tfp_rmhmc.integrator.tao_binding import TaoBinding
from tfp_rmhmc.integrator.transition import DIVERGENCE_THRESHOLD, Proposal, propose
from tfp_rmhmc.integrator.tree import Gardener, Tree

__all__ = [
    'DIVERGENCE_THRESHOLD',
    'Gardener',
    'GaussianSplit',
    'GeneralizedLeapfrog',
    'ImplicitMidpoint',
    'Integrator',
    'Lagrangian',
    'Ledger',
    'Leg',
    'MetricCoupling',
    'Point',
    'Proposal',
    'SeparableLeapfrog',
    'Status',
    'SymmetricProjection',
    'TaoBinding',
    'Tree',
    'composition',
    'propose',
]
