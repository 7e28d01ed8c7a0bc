"""Checks of arguments: each raises one sentence that names the argument and its value."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ['check_integer', 'check_order', 'check_positive']


def check_positive(name: str, value: Any) -> None:
    """Raises unless every entry of `value` that is known while tracing is positive and finite."""
    static = tf.get_static_value(tf.convert_to_tensor(value))
    if static is not None and not ((static > 0).all() and (static < float('inf')).all()):
        raise ValueError(f'`{name}` must be positive and finite, got {value!r}.')


def check_integer(name: str, value: Any, least: int) -> None:
    """Raises unless `value` is a whole number of at least `least`."""
    if int(value) != value or value < least:
        raise ValueError(f'`{name}` must be an integer of at least {least}, got {value!r}.')


def check_order(order: int) -> None:
    """Raises unless `order` is an order of accuracy that a composition of steps is known for."""
    if order not in (2, 4):
        raise ValueError(f'`order` must be 2 or 4, got {order!r}.')
