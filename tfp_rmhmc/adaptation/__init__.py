"""Kernels around kernels that choose how long a trajectory is."""

from tfp_rmhmc.adaptation.random_length import RandomTrajectoryLength, RandomTrajectoryLengthResults
from tfp_rmhmc.adaptation.worst_coordinate import WorstCoordinateLengthAdaptation, WorstCoordinateResults

__all__ = [
    'RandomTrajectoryLength',
    'RandomTrajectoryLengthResults',
    'WorstCoordinateLengthAdaptation',
    'WorstCoordinateResults',
]
