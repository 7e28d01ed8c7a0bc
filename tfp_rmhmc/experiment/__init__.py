"""The paper's experiments, for `python -m tfp_rmhmc`."""
