"""Normal draws: the distribution, and the same draws in every mode."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.conftest import compiled_variants
from tfp_rmhmc.noise import plain_seed, seed_words, split_seed, standard_normal_like


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


def test_every_int_is_another_seed():
    """Also those beyond 32 bits, which TensorFlow would cut, and those that differ by a sign."""
    ints = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**32, 2**33, -(2**33), 2**61 - 1, -(2**61)]
    words = [tuple((seed_words('seed', seed).numpy() & 0x7FFFFFFF).tolist()) for seed in ints]
    assert len(set(words)) == len(ints)
    assert tuple(seed_words('seed', np.int64(2**33)).numpy()) == tuple(seed_words('seed', 2**33).numpy())
    assert tuple(seed_words('seed', 7).numpy()) == (0, 7)
    with pytest.raises(ValueError, match='`seed` must be an int of at most 62 bits, got'):
        seed_words('seed', 2**70)


def test_seeds_of_kernels_are_ints_of_32_bits_or_two_words():
    assert plain_seed(np.int64(3)) == 3
    assert plain_seed(None) is None
    for bad in (2**33, True, 1.5, 'a', [1, 2, 3], [0.5, 1.0], [2**40, 0]):
        with pytest.raises((TypeError, ValueError), match='`seed` must be'):
            plain_seed(bad)
