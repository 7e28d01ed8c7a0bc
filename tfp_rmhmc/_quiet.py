"""An error stream without what libraries say to themselves."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

__all__ = ['quiet_import_of_tensorflow', 'without_warnings_of']


def quiet_import_of_tensorflow() -> None:
    """Imports TensorFlow without a word about CUDA and oneDNN, unless the environment asks for its logs."""
    if 'TF_CPP_MIN_LOG_LEVEL' in os.environ:
        return
    os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
    with _quiet():
        import tensorflow  # noqa: F401


@contextlib.contextmanager
def without_warnings_of(words: str) -> Iterator[None]:
    """TensorFlow logs nothing that has these words in it."""
    logger = logging.getLogger('tensorflow')

    def has_other_words(record: logging.LogRecord) -> bool:
        return words not in record.getMessage()

    logger.addFilter(has_other_words)
    try:
        yield
    finally:
        logger.removeFilter(has_other_words)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is written to the error stream, by libraries in C++ neither, unless an exception is raised.

    TensorFlow's libraries speak of CUDA and oneDNN while they are loaded, before they know of any log level.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
