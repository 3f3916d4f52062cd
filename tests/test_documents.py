"""What README and docs say is run, and points at what exists."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_readme_s_python_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGES[0].read_text(), re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert len(blocks) == 2
    assert "(1000, 1)" in capsys.readouterr().out
    assert names["end"].mu_ov[0] == pytest.approx(13.1818514826504, rel=1e-12)


def test_the_python_of_the_page_on_testing_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(compile(block, "testing.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert len(blocks) == 6
    assert sum("margin" in line for line in printed) == 6
    # What the page shows, and what its comments promise.
    assert printed[3].startswith(
        "Training follows the flow in its steps: no. First violation: mu_qk, t = 1 (record 2)"
    )
    assert printed[-4:] == ["log^2 t", "undecided - no class fits this window", "log t", "log log t"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_python_of_the_page_on_the_token_task_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "token_task.md").read_text(), re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(compile(block, "token_task.md", "exec"), names)
    assert len(blocks) == 1
    assert "[ 250  500  750 1000]" in capsys.readouterr().out
