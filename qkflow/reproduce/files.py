"""The files of a reproduced figure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from qkflow.setting import ArgumentError
from qkflow.trajectory import dumps, write_text


def written(out: str, name: str, document: Mapping[str, Any], figures: Mapping[str, Any]) -> tuple[str, ...]:
    """Write every figure as PNG and SVG and the document as JSON, each whole or not at all.

    Args:
        out: a folder that exists.
        name: of the JSON file, without ending.
        document: strict JSON values.
        figures: matplotlib figures by file name, without ending.

    Returns:
        The paths written.

    Raises:
        ArgumentError: when the folder cannot be written.
    """
    from qkflow import plots

    paths = []
    try:
        for stem, figure in figures.items():
            for kind in ("png", "svg"):
                paths.append(os.path.join(out, f"{stem}.{kind}"))
                plots.save(figure, paths[-1])
        paths.append(os.path.join(out, f"{name}.json"))
        write_text(paths[-1], dumps(document) + "\n")
    except OSError as error:
        raise ArgumentError(f"Cannot write into {out!r}: {error.strerror}.") from None
    return tuple(paths)
