"""`python -m qkflow.symbolic.generate` writes `qkflow/flow/derived.py` and `derivations/`."""

from __future__ import annotations

import pathlib

from qkflow.setting import Parameterization
from qkflow.symbolic.derivation import derive
from qkflow.symbolic.jax_source import field_source
from qkflow.symbolic.markdown import document

ROOT = pathlib.Path(__file__).parents[2]


def generated() -> dict[pathlib.Path, str]:
    """The text of every generated file, by its path in the repository."""
    texts = {pathlib.Path("qkflow/flow/derived.py"): field_source(derive())}
    for kind in Parameterization:
        texts[pathlib.Path("derivations") / f"{kind.value}.md"] = document(kind)
    return texts


if __name__ == "__main__":
    for path, text in generated().items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(path)
