"""Normal draws: the distribution, and the same draws in every mode."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.conftest import compiled_variants
from tfp_rmhmc.noise import standard_normal_like


@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
def test_standard_normal_in_every_mode(dtype):
    like = tf.zeros([40000, 3], dtype)
    draws = {mode: fn(like, [5, 6]) for mode, fn in compiled_variants(standard_normal_like).items()}
    for mode in ('graph', 'xla'):
        np.testing.assert_allclose(draws[mode], draws['eager'], rtol=1e-4, atol=1e-6)
    eager = draws['eager'].numpy()
    assert eager.dtype == dtype.as_numpy_dtype
    assert scipy.stats.kstest(eager.ravel(), 'norm').pvalue > 1e-3
    # Power: the same test sees a scale that is off by four percent.
    assert scipy.stats.kstest(1.04 * eager.ravel(), 'norm').pvalue < 1e-3
    assert np.abs(np.corrcoef(eager.T) - np.eye(3)).max() < 5.0 / np.sqrt(len(eager))
