"""Many trainings at once, in jitted scans, resumed from where they were stopped.

A lane is one run with one seed. On a CPU every lane is a scan of its own and lanes share the cores; on an
accelerator all lanes of one shape go through one scan, vectorised. A lane is a function of its run, its seed
and the step alone, so that stopping between two chunks, or in one, changes nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from qkflow.setting import ArgumentError, require
from qkflow.train import checkpoint
from qkflow.train.rates import circuit_optimizer

EPOCH = 250
"""Steps between two rows of a record."""
CHUNK = 40
"""Epochs between two checkpoints: under a second on one core."""

Optimizer = Callable[[Any], optax.GradientTransformation]


class Run(Protocol):
    """A pytree of numbers with static counts and names; see `qkflow.train.token_run.TokenRun`."""

    steps: Any

    def start(self, seed: int) -> Any:
        """Parameters at the start, NumPy float64, each in a circuit `qk` or `ov`."""
        ...

    def rates(self) -> tuple[Any, Any]:
        """Learning rates of OV and QK, numbers or optax schedules."""
        ...

    def draw(self, key: jax.Array, batches: int) -> Any:
        """Batches for several steps, stacked."""
        ...

    def loss(self, params: Any, batch: Any) -> jax.Array:
        """The mean loss of one batch."""
        ...

    def measure(self, params: Any, key: jax.Array) -> dict[str, jax.Array]:
        """Scalars for a row of the record."""
        ...


@dataclasses.dataclass(frozen=True)
class Record:
    """A run, trained with several seeds.

    Args:
        run: what was trained.
        columns: `training_loss`, the mean over the batches of an epoch of 250 steps, and what the run
            measures at its end; arrays (seeds, epochs).
        params: the parameters at the end, with a leading axis of seeds.
    """

    run: Any
    columns: Mapping[str, np.ndarray]
    params: Any

    @property
    def steps(self) -> np.ndarray:
        """Steps done at the end of every epoch, integers (epochs,)."""
        return EPOCH * (1 + np.arange(self.columns["training_loss"].shape[1]))


@functools.partial(jax.jit, static_argnames="optimizer")
def _advance(runs, carry, keys, first, epochs, *, optimizer: Optimizer):
    """Parameters and optimizer memory of every lane after `epochs` more, and their rows, (lanes, CHUNK)."""

    def lane(run: Run, carry, key):
        descent = circuit_optimizer(optimizer, *run.rates())

        def step(carry, batch):
            params, memory = carry
            loss, gradient = jax.value_and_grad(run.loss)(params, batch)
            updates, memory = descent.update(gradient, memory, params)
            return (optax.apply_updates(params, updates), memory), loss

        def one(i, carry):
            state, rows = carry
            of_batches, of_row = jax.random.split(jax.random.fold_in(key, first + i))
            state, losses = jax.lax.scan(step, state, run.draw(of_batches, EPOCH))
            row = {"training_loss": losses.mean(), **run.measure(state[0], of_row)}
            return state, {name: rows[name].at[i].set(row[name]) for name in rows}

        names = ("training_loss", *jax.eval_shape(run.measure, carry[0], key))
        rows = {name: jnp.zeros(CHUNK, jax.tree.leaves(carry[0])[0].dtype) for name in names}
        return jax.lax.fori_loop(0, epochs, one, (carry, rows))

    return jax.vmap(lane)(runs, carry, keys)


@dataclasses.dataclass
class _Lane:
    """One run with one seed, as far as it has come."""

    name: str
    run: Any
    seed: int
    params: Any
    memory: Any
    columns: dict[str, np.ndarray]

    @property
    def epochs(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def left(self) -> int:
        return self.run.steps // EPOCH - self.epochs


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _begin(name: str, run: Any, seed: int, optimizer: Optimizer, dtype: Any) -> _Lane:
    params = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), run.start(seed))
    memory = circuit_optimizer(optimizer, *run.rates()).init(jax.tree.map(jnp.asarray, params))
    return _Lane(name, run, seed, params, jax.tree.map(np.asarray, memory), {})


def _chunk(lanes: Sequence[_Lane], optimizer: Optimizer) -> None:
    """Take lanes that are equally far through one more chunk."""
    dtype = jax.tree.leaves(lanes[0].params)[0].dtype
    runs = jax.tree.map(lambda *leaves: np.array(leaves, dtype), *(lane.run for lane in lanes))
    keys = jax.vmap(jax.random.key)(np.array([lane.seed for lane in lanes], np.uint32))
    carry = _stack([lane.params for lane in lanes]), _stack([lane.memory for lane in lanes])
    epochs = min(CHUNK, *(lane.left for lane in lanes))
    result = _advance(runs, carry, keys, lanes[0].epochs, epochs, optimizer=optimizer)
    (params, memory), rows = jax.tree.map(np.asarray, result)
    for k, lane in enumerate(lanes):
        lane.params, lane.memory = (jax.tree.map(lambda x, k=k: x[k], tree) for tree in (params, memory))
        new = {name: column[k, :epochs] for name, column in rows.items()}
        old = lane.columns or {name: column[:0] for name, column in new.items()}
        lane.columns = {name: np.concatenate([old[name], new[name]]) for name in new}
        if not all(np.isfinite(leaf).all() for leaf in (*jax.tree.leaves(lane.params), *new.values())):
            raise ArgumentError(
                f"The learning rates of `{lane.name}` must be smaller: "
                f"its matrices are no longer finite at step {EPOCH * lane.epochs}."
            )


def train_runs(
    runs: Mapping[str, Any],
    *,
    seeds: int = 5,
    optimizer: Optimizer = optax.sgd,
    dtype: Any = np.float32,
    folder: str | os.PathLike | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> dict[str, Record]:
    """Train every run with every seed.

    Args:
        runs: by name; each of a number of steps that is a multiple of `EPOCH`. Names are file names.
        seeds: K; the seeds are 0 to K - 1. They decide the start and the sequences.
        optimizer: makes an optax transformation of a learning rate or schedule (`optax.sgd`, `optax.adamw`,
            or a `functools.partial`; the same object, when nothing is to be compiled anew).
        dtype: of the matrices; float64 needs jax_enable_x64.
        folder: where each lane is kept, in `NAME-SEED.npz`, and resumed from; `None` keeps nothing.
        progress: called with (steps done, steps in all) after every chunk, from any thread, one at a time.

    Returns:
        A record for every name.

    Raises:
        ArgumentError: for counts out of range, a folder that holds other trainings, or matrices that leave
            the finite numbers.

    >>> from qkflow.train.token_run import TokenRun
    >>> record = train_runs({"try": TokenRun("CACO", "tiny", "tiny", steps=250)}, seeds=1)["try"]
    >>> record.columns["loss"].shape, record.params["ov"]["matrix"].shape
    ((1, 1), (1, 50, 50))
    """
    whole = "a whole number of at least 1"
    require("seeds", seeds, lambda x: (x >= 1) & (x == np.floor(x)), whole)
    for run in runs.values():
        multiple = f"a positive multiple of {EPOCH}"
        require("steps", run.steps, lambda x: (x >= EPOCH) & (x % EPOCH == 0), multiple)
    if jax.dtypes.canonicalize_dtype(dtype) != np.dtype(dtype):
        raise ArgumentError(
            f"Argument `dtype` must be float32 without jax_enable_x64, but is {np.dtype(dtype)}."
        )
    lanes = [_begin(name, run, seed, optimizer, dtype) for name, run in runs.items() for seed in range(seeds)]
    if folder is not None:
        for lane in lanes:
            checkpoint.load(folder, lane, optimizer)
    total = sum(int(lane.run.steps) for lane in lanes)
    lock, stopped = threading.Lock(), threading.Event()
    first = {jax.tree.structure(lane.run): threading.Lock() for lane in lanes}

    def report() -> None:
        if progress is not None:
            with lock:
                progress(EPOCH * sum(lane.epochs for lane in lanes), total)

    def work(group: Sequence[_Lane]) -> None:
        try:
            compiling = first[jax.tree.structure(group[0].run)]
            while group := [lane for lane in group if lane.left]:
                if stopped.is_set():
                    return
                with compiling:  # lanes of one shape would else compile it each for themselves
                    _chunk(group, optimizer)
                compiling = contextlib.nullcontext()
                if folder is not None:
                    for lane in group:
                        checkpoint.save(folder, lane, optimizer)
                report()
        except BaseException:
            stopped.set()
            raise

    report()
    groups = _groups(lanes)
    with ThreadPoolExecutor(os.cpu_count() if jax.default_backend() == "cpu" else 1) as pool:
        try:
            for future in [pool.submit(work, group) for group in groups]:
                future.result()
        finally:  # also when interrupted: threads end with their chunk
            stopped.set()
    return {
        name: Record(run, _stack([lane.columns for lane in mine]), _stack([lane.params for lane in mine]))
        for name, run in runs.items()
        for mine in [[lane for lane in lanes if lane.name == name]]
    }


def _groups(lanes: Sequence[_Lane]) -> list[list[_Lane]]:
    """Lanes that go through one scan: each alone on a CPU, elsewhere all of one shape and equally far."""
    if jax.default_backend() == "cpu":
        return [[lane] for lane in lanes]
    groups: dict[Any, list[_Lane]] = {}
    for lane in lanes:
        groups.setdefault((jax.tree.structure(lane.run), lane.epochs), []).append(lane)
    return list(groups.values())
