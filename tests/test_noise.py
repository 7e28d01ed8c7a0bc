"""Normal draws: the distribution, and the same draws in every mode."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.conftest import compiled_variants
from tfp_rmhmc.noise import split_seed, standard_normal_like


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


def test_split_seeds_of_any_sign_are_the_same_in_every_mode():
    def split_twice(seed):
        left, right = split_seed(seed)
        return tf.stack([left, right, *split_seed(left), *split_seed(right)])

    for seed in ([3, 4], [-3, 4], [2**31 - 1, -(2**31)]):
        seeds = {mode: fn(tf.constant(seed)).numpy() for mode, fn in compiled_variants(split_twice).items()}
        np.testing.assert_array_equal(seeds['graph'], seeds['eager'])
        np.testing.assert_array_equal(seeds['xla'], seeds['eager'])
        assert len(np.unique(seeds['eager'])) == 12
