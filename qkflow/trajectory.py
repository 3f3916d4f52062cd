"""The one currency: what every route (exact, integrated, trained) returns."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import os
import pathlib
import platform
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from qkflow.setting import Problem

SCHEMA = 1
POINT_FIELDS = ("t", "log_t", "mu_ov", "mu_qk", "alpha", "log_one_minus_alpha", "loss", "log_loss")


def provenance() -> dict[str, Any]:
    """Versions, device and dtype of this process, as every result records them.

    >>> provenance()["dtype"] in ("float32", "float64")
    True
    """
    packages = ("qkflow", "jax", "jaxlib", "flax", "optax", "diffrax", "numpy", "sympy", "python-flint")
    device = jax.devices()[0]
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in packages},
        },
        "device": f"{device.platform}: {device.device_kind}",
        "dtype": "float64" if jax.config.read("jax_enable_x64") else "float32",
    }


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """States of one layer, in the order asked.

    The last axis runs over points. Any axes before it are those of a batch of problems; a trained
    trajectory has one axis of seeds before the last. `t`, `log_t` and the arrays in `extra` that do not
    depend on the seed have only the last axis.

    Args:
        problem: what was solved or trained.
        method: "exact", "integrate", "population" or "sgd".
        t: time, steps times step size; infinite where it overflows.
        log_t: natural logarithm of `t`; -inf at t = 0.
        mu_ov: logit gap per unit of attention.
        mu_qk: score gap seen by the softmax.
        alpha: attention mass on distinct tokens.
        log_one_minus_alpha: log(1 - alpha).
        log_loss: log of the cross-entropy.
        extra: further columns by name (training: step, residuals, conserved quantities).
        options: how it was computed (solver, tolerances, seeds), plain JSON values.
        stats: what it cost (steps, rejected steps, ...), plain JSON values.
    """

    problem: Problem
    method: str
    t: Any
    log_t: Any
    mu_ov: Any
    mu_qk: Any
    alpha: Any
    log_one_minus_alpha: Any
    log_loss: Any
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stats: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def loss(self) -> Any:
        """The cross-entropy, exp(log_loss); 0 where that underflows."""
        return np.exp(self.log_loss)

    @property
    def z(self) -> Any:
        """alpha * mu_OV, the logit gap between the right and a wrong class."""
        return self.alpha * self.mu_ov

    def checked(self) -> Trajectory:
        """The trajectory itself, once none of its columns holds a NaN (traced ones pass unseen).

        Raises:
            FloatingPointError: naming the first column that does.
        """
        if not isinstance(self.mu_ov, Tracer):
            for name, column in self._columns().items():
                if np.isnan(column).any():
                    raise FloatingPointError(
                        f"`{name}` is not a number at some point of the {self.method} route: "
                        "this problem is beyond the range of its floating-point numbers."
                    )
        return self

    def _columns(self) -> dict[str, np.ndarray]:
        columns = {name: getattr(self, name) for name in POINT_FIELDS} | dict(self.extra)
        return {name: np.asarray(column) for name, column in columns.items()}

    def document(self) -> dict[str, Any]:
        """The strict-JSON document of an unbatched or seeded trajectory (no Infinity, no NaN).

        Raises:
            FloatingPointError: when a state is NaN.
        """
        columns = self.checked()._columns()
        count = columns["log_t"].shape[-1]
        points = [{name: plain(column[..., k]) for name, column in columns.items()} for k in range(count)]
        return {
            "schema": SCHEMA,
            "setting": describe(self.problem),
            "method": self.method,
            "options": {name: value for name, value in self.options.items() if name != "seeds"},
            "seeds": self.options.get("seeds", []),
            "stats": dict(self.stats),
            "points": points,
            **provenance(),
        }


def describe(problem: Problem) -> dict[str, Any]:
    """A problem as flat JSON values under the names of the command line; infinity is "inf"."""
    numbers = {
        name: "inf" if value == math.inf else int(value) if name.startswith("n_") else float(value)
        for name, value in problem.constants._asdict().items()
    }
    return numbers | {"parameterization": problem.parameterization.value}


def plain(value: np.ndarray) -> Any:
    """An array as nested lists of finite JSON numbers, null where it is infinite.

    >>> plain(np.array([1.0, -np.inf]))
    [1.0, None]
    """
    if value.ndim:
        return [plain(v) for v in value]
    if value.dtype.kind in "iu":
        return int(value)
    return float(value) if np.isfinite(value) else None


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a file whole or not at all, in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
    """Write a file whole or not at all: a new file beside it, then one rename."""
    target = pathlib.Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_bytes(content)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def dumps(document: Mapping[str, Any]) -> str:
    """One strict JSON document."""
    return json.dumps(document, allow_nan=False, indent=1)
