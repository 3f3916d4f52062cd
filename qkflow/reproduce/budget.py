"""What the figures made of trainings share: budgets, the folder of the trainings, means over seeds."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, TypeVar

import numpy as np

from qkflow.setting import ArgumentError
from qkflow.train.lanes import EPOCH
from qkflow.trajectory import plain

Run = TypeVar("Run")


def hurried(run: Run, factor: int) -> Run:
    """A run with every rate `factor` times as large and that many times fewer steps, in whole epochs.

    The flow time, steps times rate, stays; steps are coarser and the noise of batches is larger.

    >>> from qkflow.train import TokenRun
    >>> hurried(TokenRun("CACO", "tiny", "tiny", steps=500_000), 20).steps
    25000
    """
    if factor == 1:
        return run
    rates = [f.name for f in dataclasses.fields(run) if f.name.startswith("lr_")]  # type: ignore[arg-type]
    larger = {name: getattr(run, name) * factor for name in rates}
    epochs = -(-run.steps // (factor * EPOCH))  # type: ignore[attr-defined]
    return dataclasses.replace(run, steps=epochs * EPOCH, **larger)  # type: ignore[type-var]


def folder(out: str | None, name: str) -> str | None:
    """The folder in `out` where trainings are kept, made if it is not there; `None` without `out`.

    Raises:
        ArgumentError: when it cannot be made.
    """
    if out is None:
        return None
    path = os.path.join(out, name)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        raise ArgumentError(f"A folder must be possible at {path!r}, but cannot be made there.") from None
    return path


def spread(values: np.ndarray) -> dict[str, Any]:
    """Mean and standard deviation over seeds, the first axis, as JSON values; one seed has null deviations.

    >>> spread(np.array([[1.0, 2.0], [3.0, 2.0]]))["mean"], spread(np.array([1.0]))
    ([2.0, 2.0], {'mean': 1.0, 'sd': None})
    """
    values = np.asarray(values, dtype=float)
    deviation = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)
    return {"mean": plain(values.mean(axis=0)), "sd": plain(deviation)}


def plus_minus(mean: float, deviation: float | None, digits: int) -> str:
    """A mean with its deviation over seeds, where there is one.

    >>> plus_minus(1.0, 0.5, 2), plus_minus(1.0, None, 2)
    ('1.00±0.50', '1.00')
    """
    return f"{mean:.{digits}f}" + ("" if deviation is None else f"±{deviation:.{digits}f}")
