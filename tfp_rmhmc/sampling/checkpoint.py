"""A run on disk: one file, replaced as a whole, for one model and setting, kept by one process at a time."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import zipfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

__all__ = ['Checkpoint', 'Identity']

_NAME = 'tfp_rmhmc_checkpoint'
# What reading a file that is empty, cut short or somebody else's may raise.
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error)
# Rounding differs between processors; models differ by more.
_ROUNDING = 64.0
# Locks of this process, to be told from those that a process of the same number left behind, as in restarted containers.
_HELD: set[pathlib.Path] = set()


class Identity(NamedTuple):
    """What a run's draws depend on.

    Attributes:
      words: settings by name.
      values: numbers by name, each `[..., n]`; they agree if each row does, up to rounding.
    """

    words: dict[str, str]
    values: dict[str, np.ndarray]

    def differences(self, other: Identity) -> list[str]:
        """What is different in another run, in words."""
        found = [
            f'{name} {value} (checkpoint: {other.words.get(name, "none")})'
            for name, value in self.words.items()
            if value != other.words.get(name)
        ]
        for name, ours in self.values.items():
            theirs = other.values.get(name, np.zeros(0))
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                found.append(f'{name} of shape {ours.shape} (checkpoint: {theirs.shape})')
                continue
            with np.errstate(invalid='ignore'):
                size = np.max(np.abs(np.nan_to_num(theirs, posinf=0.0, neginf=0.0)), axis=-1, keepdims=True, initial=1.0)
                is_equal = (np.abs(ours - theirs) <= _ROUNDING * np.finfo(ours.dtype).eps * size) | (ours == theirs)
            wrong = np.argwhere(~(is_equal | (np.isnan(ours) & np.isnan(theirs))))
            if len(wrong):
                where = tuple(wrong[0])
                found.append(f'{name} {ours[where]:.9g} (checkpoint: {theirs[where]:.9g})')
        return found


class Checkpoint:
    """The arrays of a run, saved after each chunk to one file that is replaced as a whole.

    Args:
      directory: where the file is; None saves nothing.
      is_writer: whether this process writes it. Of several that make one run together, one does; the others only read.

    Attributes:
      error: why the newest arrays are not in the file, or None if they are.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, is_writer: bool = True):
        self._directory = None if directory is None else pathlib.Path(directory)
        self._is_writer = is_writer
        self._identity: Identity | None = None
        self._seed = np.zeros(2, np.int32)
        self.error: str | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether there is a directory to save to."""
        return self._directory is not None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other runs away from the directory, which is made if need be."""
        if self._directory is None or not self._is_writer:
            yield
            return
        lock = _Lock(self._directory)
        lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def load(self) -> dict[str, np.ndarray]:
        """The saved arrays, `'seed'` among them; an empty dict if there are none."""
        if self._directory is None or not self._path.exists():
            return {}
        try:
            # Opened here: `np.load` leaves a file open that is no archive.
            with open(self._path, 'rb') as opened, np.load(opened, allow_pickle=False) as file:
                saved = dict(file)
            saved['seed'] = np.asarray(saved['seed'], np.int32).reshape([2])
            json.loads(str(saved['identity.words']))
        except _UNREADABLE as error:
            raise ValueError(
                f'`checkpoint_dir` holds {self._path.name}, which cannot be read as a checkpoint: '
                f'{_sentence(error)}; move it away to begin anew.'
            ) from error
        return saved

    def claim(self, identity: Identity, seed: np.ndarray, saved: dict[str, np.ndarray]) -> None:
        """Says whose run this is; raises an error if the file holds another's."""
        self._identity, self._seed = identity, seed
        if not saved:
            return
        words = json.loads(str(saved['identity.words']))
        prefix = 'identity.value.'
        values = {key.removeprefix(prefix): value for key, value in saved.items() if key.startswith(prefix)}
        differences = identity.differences(Identity(words, values))
        if differences:
            raise ValueError(f'`checkpoint_dir` belongs to another model or setting: {"; ".join(differences)}.')

    def save(self, arrays: dict[str, np.ndarray]) -> None:
        """Writes a second file and renames it, so that a run killed at any moment leaves a whole file.

        Where that fails, on a full disk, the old file stays, `error` says why, and the run goes on.
        """
        if self._directory is None or self._identity is None or not self._is_writer:
            return
        whole = arrays | {f'identity.value.{name}': value for name, value in self._identity.values.items()}
        whole |= {'identity.words': np.array(json.dumps(self._identity.words)), 'seed': np.asarray(self._seed)}
        temporary = self._path.with_suffix('.partial')
        try:
            with open(temporary, 'wb') as file:
                np.savez(file, allow_pickle=False, **whole)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
            self.error = None
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            self.error = (
                f'The newest draws could not be saved to `checkpoint_dir`: {_sentence(error)}; it holds those before.'
            )

    @property
    def _path(self) -> pathlib.Path:
        assert self._directory is not None
        return self._directory / f'{_NAME}.npz'


class _Lock:
    """A file that names the process that has a directory. What a killed process left behind is found out and removed."""

    def __init__(self, directory: pathlib.Path):
        self._directory = directory
        self._path = directory / f'{_NAME}.lock'

    def acquire(self) -> None:
        """Raises an error of one sentence if another run has the directory, or if it cannot be written."""
        ours = _owner(os.getpid())
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if not self._created(ours):
                self._take_over()
                if not self._created(ours):
                    raise self._in_use('another process')
        except OSError as error:
            raise ValueError(
                f'`checkpoint_dir` must be a directory that can be written, got {str(self._directory)!r}: '
                f'{_sentence(error)}.'
            ) from error
        _HELD.add(self._path.resolve())

    def release(self) -> None:
        _HELD.discard(self._path.resolve())
        self._path.unlink(missing_ok=True)

    def _created(self, text: str) -> bool:
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        try:
            with open(descriptor, 'w') as file:
                file.write(text)
        except OSError:
            self._path.unlink(missing_ok=True)
            raise
        return True

    def _take_over(self) -> None:
        """Removes the lock of a process that has ended; raises if it has not, or may not have."""
        try:
            theirs = self._path.read_text()
        except FileNotFoundError:  # it was released just now
            return
        try:
            owner = json.loads(theirs)
            pid, host = int(owner['pid']), str(owner['host'])
        except (ValueError, KeyError, TypeError):
            # Its owner was killed, or the disk was full, before it was written; or is about to be, by another process.
            raise self._in_use('a process that did not say its name') from None
        if host != socket.gethostname():
            raise self._in_use(f'process {pid} on {host}')
        is_ours = pid == os.getpid()
        if self._path.resolve() in _HELD if is_ours else _is_alive(pid) and _owner(pid) == theirs:
            raise self._in_use('another run of this process' if is_ours else f'process {pid}')
        # Renamed before it is removed: of two processes that found the same lock, one gets it.
        stale = self._path.with_suffix(f'.stale{os.getpid()}')
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._path, stale)
            stale.unlink()

    def _in_use(self, by: str) -> ValueError:
        return ValueError(
            f'`checkpoint_dir` {str(self._directory)!r} is in use by {by}: if it has ended, remove {self._path.name} there.'
        )


def _owner(pid: int) -> str:
    """A process of this machine, as text; with the time at which it began, where that is known, as numbers come again."""
    try:
        began = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[19]
    except (OSError, IndexError):
        began = ''
    return json.dumps({'pid': pid, 'host': socket.gethostname(), 'began': began})


def _is_alive(pid: int) -> bool:
    if os.name == 'nt':  # no signal 0 there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _sentence(error: BaseException) -> str:
    """An error's text on one line, without a full stop."""
    return ' '.join((getattr(error, 'strerror', None) or str(error) or type(error).__name__).split()).rstrip('.')
