"""What to try when a run went wrong; each kernel is told of options that it has."""

from __future__ import annotations

__all__ = ['against_caps', 'against_divergence', 'against_failed_solves', 'against_slow_tails']

# Kernels whose trajectories have a length that can be given, and those that take a metric.
_WITH_LENGTH = ('auto', 'explicit', 'implicit', 'hmc')
_WITH_METRIC = ('explicit', 'implicit', 'rnuts')
_SMALLER_STEP = 'a smaller step (a larger `target_accept_prob`)'


def against_divergence(kernel: str, choice: str) -> str:
    """After divergences.

    Args:
      kernel: its name.
      choice: what made the draws, in words.
    """
    if kernel == 'auto':
        return f"try {_SMALLER_STEP}, or kernel='explicit', whose metric follows the curvature."
    if kernel in _WITH_METRIC:
        other = 'a smaller `alpha` of its SoftAbsMetric' if 'SoftAbs' in choice else 'a `metric` that follows the curvature'
        return f'try {_SMALLER_STEP}, or {other}.'
    return f"try {_SMALLER_STEP}, or kernel='auto', whose metric follows varying scales."


def against_failed_solves(kernel: str) -> str:
    """After equations that could not be solved."""
    other = ", or kernel='explicit', which solves none" if kernel == 'implicit' else ''
    return f'try {_SMALLER_STEP}{other}.'


def against_caps(kernel: str) -> str:
    """After trajectories that were cut short."""
    length = ', take a shorter `trajectory_length`' if kernel in _WITH_LENGTH else ''
    return f'warm up longer{length}, or scale the variables.'


def against_slow_tails(kernel: str) -> str:
    """After a low energy fraction."""
    if kernel in _WITH_LENGTH:
        return 'try longer trajectories (`trajectory_length`) or a reparametrisation.'
    return "try kernel='auto' or a reparametrisation."
