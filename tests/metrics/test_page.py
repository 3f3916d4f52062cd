"""The page on the metrics runs, and prints what it says."""

import pathlib
import re

import numpy as np
import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_python_of_the_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(compile(block, "metrics.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert len(blocks) == 4
    assert names["rows"].sum(axis=1) == pytest.approx(np.ones(3))
    assert (names["rows"][~names["real"]] == 0).all()
    assert "excluded 1" in printed
    assert printed[-1] == "comparable within .01: True"


def test_the_page_names_every_function():
    from qkflow import metrics

    text = PAGE.read_text()
    functions = [name for name in metrics.__all__ if name.islower()]
    assert len(functions) >= 13
    assert [name for name in functions if f"`{name}" not in text] == []
