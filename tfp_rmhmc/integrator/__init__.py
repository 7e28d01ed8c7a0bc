"""Integrators: how a trajectory moves, and what it asks of the accept step."""

from tfp_rmhmc.integrator.base import Dynamics, Proposal, Status
from tfp_rmhmc.integrator.generalized_leapfrog import GeneralizedLeapfrog
from tfp_rmhmc.integrator.implicit_midpoint import ImplicitMidpoint
from tfp_rmhmc.integrator.metric_coupling import MetricCoupling
from tfp_rmhmc.integrator.projection import SymmetricProjection
from tfp_rmhmc.integrator.tao_binding import TaoBinding

__all__ = [
    'Dynamics',
    'GeneralizedLeapfrog',
    'ImplicitMidpoint',
    'MetricCoupling',
    'Proposal',
    'Status',
    'SymmetricProjection',
    'TaoBinding',
]
