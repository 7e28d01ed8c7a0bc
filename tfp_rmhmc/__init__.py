"""Riemannian manifold Hamiltonian Monte Carlo for TensorFlow Probability."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfp_rmhmc._public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """A submodule, or one of the public names, which are imported when the first of them is asked for.

    So TensorFlow, which takes seconds and greets the user, is not imported before `python -m tfp_rmhmc` knows that its
    options are right.
    """
    if not name.startswith('_') and importlib.util.find_spec(f'{__name__}.{name}') is not None:
        return importlib.import_module(f'{__name__}.{name}')
    if not name.startswith('_') or name in ('__all__', '__version__'):
        public = importlib.import_module(f'{__name__}._public')
        if name == '__all__' or name in public.__all__:
            return getattr(public, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__('__all__')})
