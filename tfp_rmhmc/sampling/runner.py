"""Long runs in compiled chunks, with progress and a checkpoint after each; interruptions do not change the draws."""

from __future__ import annotations

import os
import pathlib
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ['Checkpoint', 'Chunk', 'progress_bar', 'run_chunks']


class Checkpoint:
    """The arrays of a run, saved after each chunk to one file that is replaced as a whole.

    Args:
      directory: where the file is; None saves nothing.
      fingerprint: what the run depends on, as text. A file with a different fingerprint raises an error and is not
        used.
      is_writer: whether this process writes the file. Of several that make the same run together, one does.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, fingerprint: str, is_writer: bool = True):
        self._path = None if directory is None else pathlib.Path(directory) / 'tfp_rmhmc_checkpoint.npz'
        self._fingerprint = fingerprint
        self._is_writer = is_writer

    @property
    def is_wanted(self) -> bool:
        """Whether there is a directory to save to."""
        return self._path is not None and self._is_writer

    def load(self) -> dict[str, np.ndarray]:
        """The saved arrays; an empty dict if there are none."""
        if self._path is None or not self._path.exists():
            return {}
        try:
            with np.load(self._path, allow_pickle=False) as file:
                saved = dict(file)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f'`checkpoint_dir` holds {self._path.name}, which cannot be read: {error}.') from error
        theirs = str(saved.pop('fingerprint'))
        if theirs != self._fingerprint:
            differences = [
                f'{ours.strip()} (checkpoint: {other.strip()})'
                for ours, other in zip(self._fingerprint.split('\n'), theirs.split('\n'), strict=False)
                if ours != other
            ]
            raise ValueError(f'`checkpoint_dir` belongs to another model or setting: {"; ".join(differences)}.')
        return saved

    def save(self, arrays: dict[str, np.ndarray]) -> None:
        """Writes a second file and renames it, so that a run killed at any moment leaves a whole file."""
        if self._path is None or not self._is_writer:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix('.partial')
        with open(temporary, 'wb') as file:
            np.savez(file, allow_pickle=False, fingerprint=np.array(self._fingerprint), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)


class Chunk(NamedTuple):
    """Some transitions: states, each part `[n, chains, ...]`, traces `[n, ...]`, and whether XLA compiled them."""

    states: list[np.ndarray]
    trace: dict[str, np.ndarray]
    is_compiled: bool


def run_chunks(
    kernel: tfp.mcmc.TransitionKernel,
    trace_fn: Callable[[Any, Any], dict[str, tf.Tensor]],
    start: list[tf.Tensor],
    num_transitions: int,
    chunk_size: int,
    seed: tf.Tensor,
    jit_compile: bool,
    may_fall_back: bool,
    prefix: str,
    saved: dict[str, np.ndarray],
    checkpoint: Checkpoint,
) -> Iterator[Chunk]:
    """Yields one chunk after another; the first holds all transitions of the checkpoint, if there are any.

    Args:
      kernel: the kernel that makes the transitions.
      trace_fn: returns what is kept of each transition.
      start: state parts that the first transition starts from.
      num_transitions: number of transitions in all.
      chunk_size: largest number of transitions in a chunk. All chunks are of one size, so that only one program is
        compiled; the surplus transitions of the last chunk are dropped.
      seed: int32[2]; each chunk's seed is derived from it and the number of transitions before the chunk.
      jit_compile: whether XLA compiles the chunk.
      may_fall_back: whether to go on in a plain graph if XLA cannot compile the target.
      prefix: what this run's keys in the checkpoint begin with.
      saved: the checkpoint's arrays; each chunk is appended to them.
      checkpoint: where `saved` is written after each chunk.
    """

    @tf.function(autograph=False)
    def first_results(state: list[tf.Tensor]) -> Any:
        return kernel.bootstrap_results(state)

    def compiled_chunk(*arguments: Any) -> Callable[..., Any]:
        @tf.function(autograph=False, jit_compile=jit_compile)
        def chunk(state: list[tf.Tensor], results: Any, seed: tf.Tensor) -> Any:
            return tfp.mcmc.sample_chain(
                size,
                state,
                previous_kernel_results=results,
                kernel=kernel,
                trace_fn=trace_fn,
                return_final_kernel_results=True,
                seed=seed,
            )

        return chunk.get_concrete_function(*arguments)

    # Concrete functions, because these functions are traced anew in every run, and TensorFlow would warn of that.
    results = first_results.get_concrete_function(start)(start)
    template = results
    state = start
    done = 0
    num_chunks = -(-num_transitions // chunk_size)
    size = -(-num_transitions // num_chunks)
    run_chunk: Callable[..., Any] | None = None
    states_key, trace_key, results_key = f'{prefix}.state', f'{prefix}.trace', f'{prefix}.results'
    if f'{prefix}.done' in saved:
        done = int(saved[f'{prefix}.done'])
        states = [saved[f'{states_key}.{i}'] for i in range(len(start))]
        trace = {
            key.removeprefix(f'{trace_key}.'): value for key, value in saved.items() if key.startswith(f'{trace_key}.')
        }
        state = [tf.constant(part[-1]) for part in states]
        flat = [tf.constant(saved[f'{results_key}.{i}']) for i in range(len(tf.nest.flatten(template)))]
        results = tf.nest.pack_sequence_as(template, flat)
        jit_compile = bool(saved[f'{prefix}.jit_compile'])
        yield Chunk(states, trace, jit_compile)
    while done < num_transitions:
        chunk_seed = tf.constant(np.random.SeedSequence([*_words(seed), done]).generate_state(2).view(np.int32))
        try:
            run_chunk = run_chunk or compiled_chunk(state, results, chunk_seed)
            chunk = run_chunk(state, results, chunk_seed)
        except Exception:  # anything that XLA cannot do; if the target is at fault, the graph raises too
            if not (jit_compile and may_fall_back):
                raise
            jit_compile = False
            run_chunk = compiled_chunk(state, results, chunk_seed)
            chunk = run_chunk(state, results, chunk_seed)
        kept = min(size, num_transitions - done)
        results = chunk.final_kernel_results
        state = [part[kept - 1] for part in chunk.all_states]
        done += kept
        states, trace = (
            [part.numpy()[:kept] for part in chunk.all_states],
            {key: value.numpy()[:kept] for key, value in chunk.trace.items()},
        )
        for i, part in enumerate(states):
            _append(saved, f'{states_key}.{i}', part)
        for key, value in trace.items():
            _append(saved, f'{trace_key}.{key}', value)
        for i, part in enumerate(tf.nest.flatten(results)):
            saved[f'{results_key}.{i}'] = np.asarray(part)
        saved[f'{prefix}.done'] = np.array(done)
        saved[f'{prefix}.jit_compile'] = np.array(jit_compile)
        checkpoint.save(saved)
        yield Chunk(states, trace, jit_compile)


def progress_bar(total: int, wanted: bool | None) -> Any:
    """A tqdm bar; without tqdm, in logs, or if not wanted, an object with the same methods that shows nothing."""
    if wanted is None:
        wanted = sys.stderr.isatty() or _in_notebook()
    if wanted:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            wanted = False
    return tqdm(total=total, unit='draw') if wanted else _Silent()


def _in_notebook() -> bool:
    # That IPython is imported says nothing: plotting and test tools import it too.
    ipython = sys.modules.get('IPython')
    return ipython is not None and ipython.get_ipython() is not None


class _Silent:
    def update(self, n: int) -> None:
        pass

    def set_description(self, text: str) -> None:
        pass

    def set_postfix(self, **values: Any) -> None:
        pass

    def close(self) -> None:
        pass


def _append(saved: dict[str, np.ndarray], key: str, values: np.ndarray) -> None:
    saved[key] = np.concatenate([saved[key], values]) if key in saved else values


def _words(seed: tf.Tensor) -> list[int]:
    return [int(word) for word in np.asarray(seed).view(np.uint32)]
