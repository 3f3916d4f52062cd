"""Published figures, computed again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from qkflow.reproduce.fig2 import figure2
from qkflow.reproduce.fig3 import figure3
from qkflow.reproduce.fig4 import figure4
from qkflow.setting import ArgumentError, require

__all__ = ["reproduce"]

BUDGETS = ("quick", "full")


def reproduce(
    figure: str = "fig4",
    out: str | os.PathLike | None = None,
    *,
    budget: str | None = None,
    seeds: int | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Any:
    """Compute a figure of the paper again and draw it.

    Args:
        figure: "fig2" (DTAP maps of trained layers), "fig3" (loss at fixed attention) or "fig4" (the scalar
            equations).
        out: folder for the figures (PNG, SVG), a JSON document, and the trainings of fig2 and fig3, which
            are resumed from there; `None` writes nothing.
        budget: for fig2 and fig3, "quick" (default; under a minute) or "full" (the published steps).
        seeds: for fig2 and fig3, how many; by default 5, or 2 for quick.
        progress: called with (steps done, steps in all) in fig2 and fig3.

    Returns:
        A result with `table()`, `document()` and `files`.

    Raises:
        ArgumentError: for another figure, a folder that does not exist or cannot be written, an argument
            without effect, a folder that holds other trainings, or float32 where float64 is needed.
    """
    if figure not in ("fig2", "fig3", "fig4"):
        raise ArgumentError(f"Argument `figure` must be fig2, fig3 or fig4, but is {figure!r}.")
    if out is not None and not os.path.isdir(out):
        raise ArgumentError(f"Argument `out` must be a folder that exists, but is {os.fspath(out)!r}.")
    place = None if out is None else os.fspath(out)
    if figure == "fig4":
        for name, value in (("budget", budget), ("seeds", seeds)):
            if value is not None:
                raise ArgumentError(f"Argument `{name}` is for fig2 and fig3, but figure is fig4.")
        return figure4(place)
    budget = "quick" if budget is None else budget
    if budget not in BUDGETS:
        raise ArgumentError(f"Argument `budget` must be quick or full, but is {budget!r}.")
    seeds = (2 if budget == "quick" else 5) if seeds is None else seeds
    require("seeds", seeds, lambda x: (x >= 1) & (x == np.floor(x)), "a whole number of at least 1")
    return (figure2 if figure == "fig2" else figure3)(place, budget, seeds, progress)
