"""Random numbers that are the same eagerly, in a graph and under XLA.

TensorFlow's stateless floating-point draws differ between eager code and XLA. Its stateless integers do not, if the seed is
not negative (XLA extends the sign of negative ones in its own way). So this module drops the sign of seeds, and makes
normal draws of integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_rmhmc.argument import check_integer, is_integral, shown, static_real
from tfp_rmhmc.xla import is_compiled_by_xla

__all__ = [
    'checked_seed',
    'not_constant',
    'plain_seed',
    'seed_words',
    'split_seed',
    'standard_normal_like',
    'uniforms_like',
]

_BITS = {tf.float32: (tf.uint32, 2.0**-32), tf.float64: (tf.uint64, 2.0**-64)}


def seed_words(name: str, seed: Any) -> tf.Tensor:
    """A user's seed as int32[2]: an int, of which each makes another one; two words; or None for a new one each time.

    Unlike the seed that TFP makes of an int it does not depend on what was drawn before.
    """
    if is_integral(seed):
        if not -(2**61) <= int(seed) < 2**61:
            raise ValueError(f'`{name}` must be an int of at most 62 bits, got {shown(seed)}.')
        words = int(seed) % 2**62
        return tf.constant([words >> 31, words & 0x7FFFFFFF], tf.int32)
    return checked_seed(seed, name)


def checked_seed(seed: Any, name: str = 'seed') -> tf.Tensor:
    """`tfp.random.sanitize_seed` of a seed that is None, an int of 32 bits, or two words."""
    return tfp.random.sanitize_seed(plain_seed(seed, name))


def plain_seed(seed: Any, name: str = 'seed') -> Any:
    """A seed as TFP takes it: None, an int of 32 bits, or two words; raises on anything else."""
    if is_integral(seed):
        check_integer(name, seed, least=-(2**31))
        return int(seed)
    if seed is not None:
        what = 'None, an int or int32[2]'
        static = static_real(name, seed, what)
        words = tf.convert_to_tensor(seed) if static is None else static
        if not tf.TensorShape(words.shape).is_compatible_with([2]) or not tf.as_dtype(words.dtype).is_integer:
            raise TypeError(f'`{name}` must be {what}, got {shown(seed)}.')
        if static is not None and not np.all((static >= -(2**31)) & (static < 2**31)):
            raise ValueError(f'`{name}` must be made of words of 32 bits, got {shown(seed)}.')
        return tf.cast(words, tf.int32)
    return None


def _without_sign(seed: Any) -> tf.Tensor:
    return tf.bitwise.bitwise_and(tf.convert_to_tensor(seed, tf.int32), 0x7FFFFFFF)


def split_seed(seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Two independent seeds from one, each int32[2]."""
    bits = tf.random.stateless_uniform([2, 2], _without_sign(seed), minval=None, maxval=None, dtype=tf.int32)
    return bits[0], bits[1]


def standard_normal_like(x: tf.Tensor, seed: Any) -> tf.Tensor:
    """Independent N(0, 1) draws with the shape and dtype (float32 or float64) of `x`, from a stateless seed `int32[2]`."""
    integer, unit = _BITS[x.dtype]
    shape = tf.concat([[2], tf.shape(x)], axis=0)
    bits = tf.random.stateless_uniform(shape, _without_sign(seed), minval=None, maxval=None, dtype=integer)
    uniform = (tf.cast(bits, x.dtype) + 0.5) * tf.constant(unit, x.dtype)  # in (0, 1], dense near 0
    draw = tf.sqrt(-2.0 * tf.math.log(uniform[0])) * tf.cos(2.0 * math.pi * uniform[1])
    draw.set_shape(x.shape)
    return not_constant(draw)[0] if is_compiled_by_xla() else draw


def uniforms_like(x: tf.Tensor, seed: tf.Tensor, size: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Independent draws by their number, below `size`: uniform on (0, 1), with the shape and dtype of `x`.

    The seeds of all of them are made here, at once: in a loop over draws each operation on a seed would cost about as
    much as the draw.

    Args:
      x: what draws are like.
      seed: stateless, int32[2].
      size: how many draws there can be.
    """
    numbers = tf.range(size)
    seeds = _without_sign(seed + tf.stack([tf.zeros_like(numbers), numbers], axis=1))
    shape = tf.shape(x)

    def uniform(number: tf.Tensor) -> tf.Tensor:
        bits = tf.random.stateless_uniform(shape, tf.gather(seeds, number), minval=None, maxval=None, dtype=tf.uint32)
        # As many bits as float32 holds, so that none is rounded to 1.
        draw = (tf.cast(tf.bitwise.right_shift(bits, tf.constant(9, tf.uint32)), x.dtype) + 0.5) * 2.0**-23
        draw.set_shape(x.shape)
        return draw

    return uniform


def not_constant(*tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """The tensors themselves, by a loop of one round.

    XLA compiles a program anew for each value of an input that it believes it must know at compile time. It believes so of
    the seed when third derivatives are taken at a position that depends on the seed; and of all that a position is made of
    when the target is a function that computes with shapes, as auto-batched models do. It does not look through a loop's
    variables.
    """
    totals = [tf.zeros_like(x) for x in tensors]
    added = lambda i, *totals: (i + 1, *[total + x for total, x in zip(totals, tensors, strict=True)])  # noqa: E731
    return tuple(tf.while_loop(lambda i, *_: i < 1, added, (tf.constant(0), *totals))[1:])
