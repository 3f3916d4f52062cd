"""A lane on disk: everything that its next step depends on, and what it was."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import os
import zipfile
from typing import Any

import jax
import numpy as np

from qkflow.setting import ArgumentError, Parameterization
from qkflow.trajectory import dumps, provenance, write_bytes


def described(value: Any) -> Any:
    """A run, an optimizer or a part of one as plain JSON values, the same in every process.

    >>> import optax
    >>> described(functools.partial(optax.sgd, momentum=0.9))
    {'function': 'sgd', 'momentum': 0.9}
    """
    if isinstance(value, Parameterization):
        return value.value
    if dataclasses.is_dataclass(value):
        return {f.name: described(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, functools.partial):
        arguments = {"arguments": [described(a) for a in value.args]} if value.args else {}
        return described(value.func) | arguments | {k: described(v) for k, v in value.keywords.items()}
    if callable(value):
        return {"function": getattr(value, "__name__", type(value).__name__)}
    if isinstance(value, tuple | list):
        return [described(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _about(lane: Any, optimizer: Any) -> dict[str, Any]:
    dtype = jax.tree.leaves(lane.params)[0].dtype.name
    what = {"run": described(lane.run), "seed": lane.seed, "optimizer": described(optimizer)}
    return {**what, **provenance(), "dtype": dtype}


def _path(folder: str | os.PathLike, lane: Any) -> str:
    return os.path.join(folder, f"{lane.name}-{lane.seed}.npz")


def save(folder: str | os.PathLike, lane: Any, optimizer: Any) -> None:
    """Write a lane whole or not at all."""
    arrays = {f"column {name}": column for name, column in lane.columns.items()}
    for kind in ("params", "memory"):
        leaves = jax.tree.leaves(getattr(lane, kind))
        arrays |= {f"{kind} {k}": leaf for k, leaf in enumerate(leaves)}
    content = io.BytesIO()
    np.savez(content, about=np.array(dumps(_about(lane, optimizer))), **arrays)
    write_bytes(_path(folder, lane), content.getvalue())


def load(folder: str | os.PathLike, lane: Any, optimizer: Any) -> None:
    """Bring a lane to where its file left it; without a file it stays at the start.

    Raises:
        ArgumentError: for a file that is damaged or of another training.
    """
    path, about = _path(folder, lane), json.loads(dumps(_about(lane, optimizer)))
    if not os.path.exists(path):
        return
    try:
        with open(path, "rb") as file:
            content = io.BytesIO(file.read())
        with np.load(content, allow_pickle=False) as found:
            arrays = dict(found)
        found = json.loads(str(arrays.pop("about")))
        other = [name for name in about if found.get(name) != about[name]]
        if not other:
            for kind in ("params", "memory"):
                shape = jax.tree.structure(getattr(lane, kind))
                leaves = [arrays[f"{kind} {k}"] for k in range(shape.num_leaves)]
                setattr(lane, kind, jax.tree.unflatten(shape, leaves))
            lane.columns = {
                n.removeprefix("column "): a for n, a in arrays.items() if n.startswith("column ")
            }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        raise ArgumentError(f"The file {path!r} must be a training kept here, but cannot be read.") from None
    if other:
        raise ArgumentError(
            f"The file {path!r} must be of the same training, but differs in {' and '.join(other)}: "
            "remove it, or keep this training in another folder."
        )
