"""Checks of arguments: each raises one sentence that names the argument and its value.

A tensor whose value is not known while tracing, and a `tf.Variable`, are checked by dtype and shape alone.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = [
    'MAX_INTEGER',
    'check_callable',
    'check_choice',
    'check_finite_array',
    'check_flag',
    'check_instance',
    'check_integer',
    'check_name',
    'check_order',
    'check_positive',
    'check_precision',
    'check_real',
    'check_symmetric',
    'is_integral',
    'shown',
    'static_real',
]

MAX_INTEGER = 2**31 - 1  # programs count in int32
_MAX_SHOWN = 200  # letters of a value in a message


def shown(value: Any) -> str:
    """`repr(value)` on one line, of bounded length, whatever the value is."""
    try:
        text = ' '.join(repr(value).split())
    except Exception:  # a value of somebody else's type may do anything
        text = f'a {type(value).__name__}'
    return text if len(text) <= _MAX_SHOWN else f'{text[:_MAX_SHOWN]}...'


def static_real(name: str, value: Any, what: str = 'a real number') -> np.ndarray | None:
    """The value as an array, or None where it is not known while tracing; raises unless it is made of real numbers."""
    if tf.is_tensor(value) or isinstance(value, tf.Variable):
        is_dense = isinstance(value, (tf.Tensor, tf.Variable))
        if not is_dense or not (value.dtype.is_floating or value.dtype.is_integer):
            raise TypeError(f'`{name}` must be {what}, got {shown(value)}.')
        return None if isinstance(value, tf.Variable) else tf.get_static_value(value)
    try:
        array = np.asarray(value)
    except Exception:  # a list with tensors in it, or a value of somebody else's type
        return _of_tensors(name, value, what)
    # TensorFlow has no numbers of more than 64 bits; bfloat16 is of kind 'V'.
    is_real = array.dtype.kind in 'fiu' or array.dtype == tf.bfloat16.as_numpy_dtype
    if not is_real or array.dtype.itemsize > 8:
        raise TypeError(f'`{name}` must be {what}, got {shown(value)}.')
    return array


def _of_tensors(name: str, value: Any, what: str) -> np.ndarray | None:
    """The value of a list in which there are tensors that are not known while tracing: None, or an error."""
    try:
        tensor = tf.convert_to_tensor(value)
    except Exception:
        raise TypeError(f'`{name}` must be {what}, got {shown(value)}.') from None
    return static_real(name, tensor, what)


def check_real(
    name: str,
    value: Any,
    *,
    least: float = -float('inf'),
    above: float = -float('inf'),
    may_be_infinite: bool = False,
    max_rank: int = 0,
) -> None:
    """Raises unless all entries of `value` are real numbers in a range.

    Args:
      name: of the argument.
      value: a number, an array or a tensor.
      least, above: bounds, the first of which may be reached.
      may_be_infinite: whether infinity is in the range.
      max_rank: the largest number of dimensions.
    """
    bounds = [f'at least {least:g}'] * (least > -np.inf) + [f'above {above:g}'] * (above > -np.inf)
    what = 'non-negative' if least == 0.0 else 'positive' if above == 0.0 else ' and '.join(bounds) or 'a real number'
    what += '' if may_be_infinite else ' and finite'
    array = static_real(name, value, f'{what}, and {"a number" if max_rank == 0 else "made of numbers"}')
    rank = np.ndim(array) if array is not None else value.shape.rank if hasattr(value, 'shape') else None
    if rank is not None and rank > max_rank:
        dimensions = 'a scalar' if max_rank == 0 else f'of at most {max_rank} dimensions'
        raise ValueError(f'`{name}` must be {dimensions}, got {shown(value)}.')
    if array is None:
        return
    if array.size == 0:
        raise ValueError(f'`{name}` must not be empty, got {shown(value)}.')
    number = array.astype(np.float64)
    is_good = (number >= least) & ((number > above) | (above == -np.inf)) & ~np.isnan(number)
    if not np.all(is_good & (may_be_infinite | np.isfinite(number))):
        raise ValueError(f'`{name}` must be {what}, got {shown(value)}.')


def check_positive(name: str, value: Any, max_rank: int = 0) -> None:
    """Raises unless every entry of `value` that is known while tracing is positive and finite."""
    check_real(name, value, above=0.0, max_rank=max_rank)


def is_integral(value: Any) -> bool:
    """Whether a value is a whole number of Python's or NumPy's: neither a bool nor a span of time, which count as such."""
    return isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_, np.timedelta64))


def check_integer(name: str, value: Any, least: int, most: int = MAX_INTEGER) -> None:
    """Raises unless `value` is a whole number of at least `least` and at most `most`."""
    bounds = f'an integer of at least {least}' + ('' if most == MAX_INTEGER else f' and at most {most}')
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_, np.timedelta64))
    if not is_number:
        raise TypeError(f'`{name}` must be {bounds}, got {shown(value)}.')
    if not is_integral(value) or value < least:
        raise ValueError(f'`{name}` must be {bounds}, got {shown(value)}.')
    if value > most:
        raise ValueError(f'`{name}` must be at most {most}, got {shown(value)}.')


def check_order(order: int) -> None:
    """Raises unless `order` is an order of accuracy that a composition of steps is known for."""
    if not is_integral(order) or order not in (2, 4):
        raise ValueError(f'`order` must be 2 or 4, got {shown(order)}.')


def check_flag(name: str, value: Any) -> None:
    """Raises unless `value` is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f'`{name}` must be True or False, got {shown(value)}.')


def check_callable(name: str, value: Any) -> None:
    """Raises unless `value` can be called; classes and NumPy's functions can, but make no tensors."""
    if not callable(value) or isinstance(value, (type, np.ufunc)):
        raise TypeError(f'`{name}` must be callable, got {shown(value)}.')


def check_instance(name: str, value: Any, types: Any, what: str) -> None:
    """Raises unless `value` is an instance of `types`, which the sentence calls `what`."""
    if not isinstance(value, types):
        raise TypeError(f'`{name}` must be {what}, got {shown(value)}.')


def check_choice(name: str, value: Any, choices: Sequence[str], also: str = '') -> None:
    """Raises unless `value` is one of some strings; `also` says what else the argument may be."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f'`{name}` must be {also}one of {sorted(choices)}, got {shown(value)}.')


def check_name(name: str, value: Any) -> None:
    """Raises unless `value` is None or a string."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f'`{name}` must be None or a string, got {shown(value)}.')


def check_finite_array(name: str, value: Any, rank: int, what: str) -> np.ndarray:
    """`value` as an array of float64; raises unless it has `rank` dimensions, at least one entry, and is finite."""
    array = static_real(name, value, what)
    if array is None or array.ndim != rank or array.size == 0:
        raise TypeError(f'`{name}` must be {what}, got {shown(value)}.')
    array = array.astype(np.float64)
    if not np.all(np.isfinite(array)):
        raise ValueError(f'`{name}` must be finite, got {shown(value)}.')
    return array


def check_precision(name: str, value: Any) -> None:
    """Raises unless `value` is a positive number or vector, or a symmetric positive definite matrix, as far as is known."""
    array = static_real(name, value, 'a positive number, a vector [D] or a matrix [D, D]')
    rank = np.ndim(array) if array is not None else value.shape.rank if hasattr(value, 'shape') else None
    if rank == 2:
        check_symmetric(name, value)
    elif rank is not None and rank > 2:
        raise ValueError(f'`{name}` must be a number, a vector [D] or a square matrix [D, D], got {shown(value)}.')
    else:
        check_positive(name, value, max_rank=1)


def check_symmetric(name: str, value: Any) -> None:
    """Raises unless a matrix whose value is known while tracing is square, symmetric to rounding and positive definite."""
    array = static_real(name, value, 'a matrix')
    shape = np.shape(array) if array is not None else tuple(value.shape)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise ValueError(f'`{name}` must be a square matrix [D, D] where it is a matrix, got shape {shape}.')
    if array is None:
        return
    matrix = array.astype(np.float64)
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f'`{name}` must be finite, got {shown(value)}.')
    # What single precision rounds in a product of matrices, with room.
    if np.max(np.abs(matrix - matrix.T)) > 1e-4 * np.max(np.abs(matrix)):
        raise ValueError(f'`{name}` must be symmetric where it is a matrix, got {shown(value)}.')
    if not np.all(np.linalg.eigvalsh(0.5 * (matrix + matrix.T)) > 0.0):
        raise ValueError(f'`{name}` must be positive definite where it is a matrix, got {shown(value)}.')
