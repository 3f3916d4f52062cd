"""Figure 4: its end points are the reference table, and its files are whole."""

import json

import numpy as np
import pytest

from qkflow.reproduce import reproduce
from qkflow.reproduce.fig4 import LOSSES, PUBLISHED, RATIOS
from qkflow.setting import ArgumentError
from qkflow.trajectory import dumps
from tests.published import END_POINTS


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    place = tmp_path_factory.mktemp("figures")
    return reproduce("fig4", out=place), place


def test_the_end_points_are_the_reference(drawn):
    for row in drawn[0].end_points():
        found = [row[name] for name in ("mu_ov", "mu_qk", "alpha", "t")]
        assert found == pytest.approx(END_POINTS[row["ratio"]], rel=1e-11)


def test_they_agree_with_the_published_ones_as_far_as_those_were_printed(drawn):
    rows = {row["ratio"]: row for row in drawn[0].end_points()}
    for ratio, published in PUBLISHED.items():
        for name, value in published.items():
            assert rows[ratio][name] == pytest.approx(value, rel=2e-3), (
                ratio,
                name,
            )


def test_the_curves(drawn):
    result = drawn[0]
    assert [t.problem.rates.ratio for t in result.by_time] == list(RATIOS)
    for by_time, by_loss in zip(result.by_time, result.by_loss, strict=True):
        assert by_loss.mu_ov.shape == (50,)
        assert np.allclose(by_loss.loss, LOSSES, rtol=1e-12)
        assert by_time.t[0] == 0
        assert np.isclose(by_time.loss[-1], 1e-4, rtol=1e-8)
        assert (np.diff(by_time.loss) < 0).all()


def test_the_files(drawn):
    result, place = drawn
    assert sorted(p.name for p in place.iterdir()) == ["fig4.json", "fig4.png", "fig4.svg"]
    assert (place / "fig4.png").read_bytes().startswith(b"\x89PNG")
    assert (place / "fig4.svg").read_text().startswith("<svg")
    document = json.loads((place / "fig4.json").read_text())
    assert document["schema"] == 1
    assert len(document["end_points"]) == 5
    assert json.loads(dumps(result.document())) == document


def test_the_table_prints_published_numbers_below_ours(drawn):
    lines = drawn[0].table().splitlines()
    assert lines[2].split()[0] == "0.01"
    assert lines[3].split() == ["[2.55e+06]", "[81.669]", "[0.559]", "[0.149]"]
    assert lines[3].rindex("]") == lines[2].index("0.148829") + len("0.148829717556") - 1


def test_what_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="must be a folder that exists"):
        reproduce("fig4", out=tmp_path / "missing")
