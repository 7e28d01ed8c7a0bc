"""Linear algebra of many small matrices at once, in programs that XLA compiles and in graphs."""

from tfp_rmhmc.linalg.arrowhead import are_arrowheads
from tfp_rmhmc.linalg.cholesky import cholesky_and_inverse
from tfp_rmhmc.linalg.constant import captured
from tfp_rmhmc.linalg.correlation import Correlation, correlation_of, dense_correlation, identity_correlation
from tfp_rmhmc.linalg.directions import Directions, coordinate_directions, directions_of, given_directions
from tfp_rmhmc.linalg.eigh import STRUCTURES, eigh
from tfp_rmhmc.linalg.elimination import solve_and_log_det
from tfp_rmhmc.linalg.gram import WeightedGram
from tfp_rmhmc.linalg.softabs import SoftAbs, softabs

__all__ = [
    'STRUCTURES',
    'Correlation',
    'Directions',
    'SoftAbs',
    'WeightedGram',
    'are_arrowheads',
    'captured',
    'cholesky_and_inverse',
    'coordinate_directions',
    'correlation_of',
    'dense_correlation',
    'directions_of',
    'eigh',
    'given_directions',
    'identity_correlation',
    'softabs',
    'solve_and_log_det',
]
