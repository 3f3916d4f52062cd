"""Figures: told apart without colour, and safe to put into a page."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from qkflow import plots
from qkflow.setting import LearningRates, Problem
from qkflow.trajectory import Trajectory


def curve(ratio: float) -> Trajectory:
    t = np.array([0.0, 1.0, 10.0, 100.0])
    with np.errstate(divide="ignore"):
        log_t = np.log(t)
    ones = np.linspace(0.1, 0.9, 4)
    return Trajectory(
        problem=Problem(rates=LearningRates(ratio=ratio)),
        method="exact",
        t=t,
        log_t=log_t,
        mu_ov=ratio * ones,
        mu_qk=ones,
        alpha=ones,
        log_one_minus_alpha=-ones,
        log_loss=-ones,
    )


RATIOS = [curve(r) for r in (0.01, 0.1, 1.0, 10.0, 100.0)]


def test_five_curves_differ_in_line_and_colour():
    axes = plots.ratios(RATIOS).axes[0]
    assert len({repr(line.get_linestyle()) + repr(line._dash_pattern) for line in axes.lines}) == 5  # type: ignore[attr-defined]
    assert len({line.get_color() for line in axes.lines}) == 5
    assert axes.get_legend().get_texts()[0].get_text() == "r = 0.01"  # type: ignore[union-attr]


def test_time_is_scaled_by_the_slower_rate():
    line = plots.ratios(RATIOS).axes[0].lines[0]
    assert np.allclose(line.get_xdata(), np.log10(1 + RATIOS[0].t * 0.01))


def test_every_axis_has_a_name_and_a_unit():
    for figure in (plots.ratios(RATIOS), plots.time_and_loss(RATIOS, RATIOS)):
        for axes in figure.axes:
            assert axes.get_xlabel()
            assert "nats" in axes.get_ylabel() or "attention" in axes.get_ylabel()


def test_svg_is_well_formed_and_its_ids_do_not_clash():
    first, second = (plots.svg(plots.ratios(RATIOS), name) for name in ("one", "two"))
    ids = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, known in zip((first, second), ids, strict=True):
        ET.fromstring(text)
        assert set(re.findall(r"url\(#([^)]*)\)", text)) <= known
        assert set(re.findall(r'href="#([^"]*)"', text)) <= known


def test_drawing_twice_gives_the_same():
    assert plots.svg(plots.ratios(RATIOS)) == plots.svg(plots.ratios(RATIOS))


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_file_is_written_whole(tmp_path, kind):
    plots.save(plots.ratios(RATIOS), tmp_path / f"figure.{kind}")
    assert [p.name for p in tmp_path.iterdir()] == [f"figure.{kind}"]
    with pytest.raises(FileNotFoundError):
        plots.save(plots.ratios(RATIOS), tmp_path / "missing" / f"figure.{kind}")
