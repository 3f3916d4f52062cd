"""Data flows one way: no module imports from a floor above its own."""

import ast
import pathlib
import subprocess
import sys

import qkflow

ROOT = pathlib.Path(qkflow.__file__).parent
FLOORS = (
    ("setting",),
    ("trajectory", "growth"),
    ("symbolic", "data", "models", "plots", "metrics"),
    ("flow", "train"),
    ("verify", "reproduce"),
    ("__init__",),
    ("cli", "testing"),
)
"""Lowest first. Modules of one floor do not import each other, except models, which read the data."""


def floor(name: str) -> int:
    return next(k for k, names in enumerate(FLOORS) if name in names)


def imports(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "qkflow":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {
                [*a.name.split("."), "__init__"][1] for a in node.names if a.name.split(".")[0] == "qkflow"
            }
    return found


def violations(files: dict[str, set[str]]) -> list[str]:
    return [
        f"{place} imports {other}"
        for place, others in files.items()
        for other in others
        if other != place and floor(other) >= floor(place) and (place, other) != ("models", "data")
    ]


def test_imports_go_one_way():
    found: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT).parts[0].removesuffix(".py")
        found[place] = found.get(place, set()) | imports(path)
    assert not violations(found)


def test_a_way_back_would_be_seen():
    assert violations({"setting": {"flow"}}) == ["setting imports flow"]
    assert violations({"flow": {"train"}}) == ["flow imports train"]


def test_solving_never_imports_sympy_and_importing_never_changes_precision():
    code = (
        "import sys, jax, qkflow; "
        "assert not jax.config.read('jax_enable_x64'); "
        "jax.config.update('jax_enable_x64', True); "
        "qkflow.solve(at_loss=.1); "
        "assert 'sympy' not in sys.modules; assert 'matplotlib' not in sys.modules; "
        "assert 'flint' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
