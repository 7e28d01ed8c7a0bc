"""State parts, flat vectors and step sizes."""

import numpy as np
import pytest
import tensorflow as tf

from tests import targets
from tfp_rmhmc.density import LogDensity
from tfp_rmhmc.state import StateLayout, state_parts


def layout_of(parts, batch_rank):
    return StateLayout([tf.convert_to_tensor(p) for p in parts], batch_rank)


@pytest.mark.parametrize('batch', [(), (4,), (2, 3)])
@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_flatten_and_back(batch, dtype, rng):
    parts = [tf.constant(rng.standard_normal(batch + event), dtype) for event in [(), (3,), (2, 2)]]
    layout = layout_of(parts, len(batch))
    flat = layout.flatten(parts)
    assert layout.dimension == 8
    assert flat.shape == (*batch, 8)
    assert flat.dtype == dtype
    for part, again in zip(parts, layout.unflatten(flat), strict=True):
        np.testing.assert_array_equal(part, again)
    np.testing.assert_array_equal(flat[..., 0], parts[0])
    np.testing.assert_array_equal(flat[..., 4:], tf.reshape(parts[2], (*batch, 4)))


def test_static_shapes_survive_an_unknown_batch():
    @tf.function(input_signature=[tf.TensorSpec([None, 2, 3]), tf.TensorSpec([None])])
    def check(a, b):
        layout = layout_of([a, b], 1)
        flat = layout.flatten([a, b])
        assert flat.shape.as_list() == [None, 7]
        again = layout.unflatten(flat)
        assert [part.shape.as_list() for part in again] == [[None, 2, 3], [None]]
        return again

    a, b = check(tf.ones([5, 2, 3]), tf.zeros([5]))
    assert a.shape == (5, 2, 3)
    assert b.shape == (5,)


def test_step_sizes_of_every_form():
    parts = [tf.zeros([4, 2]), tf.zeros([4])]
    layout = layout_of(parts, 1)
    assert layout.flat_step_size(0.5, parts).shape == ()
    assert layout.flat_step_size([0.5], parts).shape == ()
    np.testing.assert_allclose(layout.flat_step_size([0.1, 0.2], parts), np.tile([0.1, 0.1, 0.2], (4, 1)))
    per_chain = np.array([1.0, 2.0, 3.0, 4.0])
    got = layout.flat_step_size([per_chain[:, None], per_chain], parts)
    np.testing.assert_allclose(got, np.tile(per_chain[:, None], 3))
    got = layout.flat_step_size([[0.1, 0.3], 0.2], parts)
    np.testing.assert_allclose(got, np.tile([0.1, 0.3, 0.2], (4, 1)))
    assert got.dtype == tf.float32


def test_mismatched_step_sizes_are_named():
    parts = [tf.zeros([4]), tf.zeros([4]), tf.zeros([4])]
    with pytest.raises(ValueError, match='exactly one `step_size`.*2 step sizes for 3 parts'):
        layout_of(parts, 1).flat_step_size([0.1, 0.2], parts)


def test_bad_states_are_named():
    with pytest.raises(TypeError, match='`current_state`.*dict'):
        state_parts({'a': tf.zeros(3)})
    with pytest.raises(TypeError, match='`current_state`.*list'):
        state_parts([[tf.zeros(3)]])
    with pytest.raises(TypeError, match='floating.*int32'):
        state_parts(tf.zeros([3], tf.int32))
    with pytest.raises(TypeError, match=r"one dtype.*'float32', 'float64'"):
        state_parts([tf.zeros(3), tf.zeros(3, tf.float64)])
    with pytest.raises(ValueError, match='at least one part'):
        state_parts([])


def test_the_log_density_fixes_the_batch():
    density = LogDensity.at_state(targets.gaussian, [tf.zeros([4, 3]), tf.zeros([4, 2])])
    assert density.layout.batch_rank == 1
    assert density.layout.dimension == 5
    assert density(tf.ones([4, 5])).shape == (4,)


@pytest.mark.parametrize(
    ('fn', 'shape'),
    [
        (lambda x: tf.zeros([4, 3, 1]) + tf.reduce_sum(x), r'\(4, 3, 1\)'),
        (lambda x: tf.reduce_sum(x, axis=0), r'\(3,\)'),
    ],
)
def test_a_target_of_the_wrong_shape_is_named(fn, shape):
    with pytest.raises(ValueError, match=f'`target_log_prob_fn`.*{shape}.*part 0 of shape \\(4, 3\\)'):
        LogDensity.at_state(fn, [tf.zeros([4, 3])])
