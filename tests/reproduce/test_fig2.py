"""Figure 2: what is read off records, and a hurried training against the published numbers."""

import dataclasses
import json

import numpy as np
import pytest

from qkflow import plots
from qkflow.reproduce import reproduce
from qkflow.reproduce.budget import hurried
from qkflow.reproduce.fig2 import (
    COMMON_START,
    CONTROLS,
    EDGES,
    FASTER,
    PUBLISHED,
    QUICK,
    RUNS,
    Figure2,
    _seen,
)
from qkflow.setting import ArgumentError
from qkflow.train import EPOCH, train_runs
from qkflow.train.lanes import Record
from qkflow.trajectory import dumps

EPOCHS, SEEDS = 600, 3


def record(name: str, run) -> Record:
    """A loss that falls as 1/epoch, and attention that grows with log 1/loss: faster in the faster runs."""
    rng = np.random.default_rng(sum(map(ord, name)))
    loss = 3.0 / np.arange(1, EPOCHS + 1) * (1 + 0.01 * rng.random((SEEDS, 1)))
    slope = 0.1 if name in FASTER else 0.05
    columns = {"training_loss": loss, "loss": loss, "attention": 0.3 - slope * np.log(loss / 3.1)}
    columns["accuracy"] = np.ones_like(loss)
    return Record(run, columns, {})


@pytest.fixture(scope="module")
def figure():
    rng = np.random.default_rng(0)
    records = {name: record(name, run) for name, run in {**RUNS, **CONTROLS}.items()}
    mass, probability = ({name: rng.random((SEEDS, 500)) for name in records} for _ in range(2))
    return Figure2("full", SEEDS, records, mass, probability)


def test_a_faster_qk_differs_from_its_control_in_that_rate_alone():
    runs = {**RUNS, **CONTROLS}
    for faster, control in FASTER.items():
        one, other = (dataclasses.asdict(runs[name]) for name in (faster, control))
        differing = {name for name in one if one[name] != other[name]}
        assert differing <= {"lr_qk", "lr_qk_end", "steps"}
        assert one["lr_qk_end"] > other["lr_qk_end"]
    assert {runs[name].start_qk for name in COMMON_START} == {"tiny"}
    assert len({runs[name].parameterization for name in COMMON_START}) == 4


def test_blocks_maps_and_attention_at_a_loss(figure):
    losses = figure.records["FACO_equal"].columns["training_loss"]
    assert figure.block_losses("FACO_equal")[1, 2] == pytest.approx(losses[1, 200:300].mean())
    maps = figure.maps("FACO_equal")
    assert maps.shape == (SEEDS, 5, 5)
    assert maps.sum(axis=(1, 2)) == pytest.approx([100] * SEEDS)
    # Uniform pairs: 4 % a cell; 500 of them scatter by .9.
    assert np.abs(maps.mean(axis=0) - 4).max() < 4
    attention = figure.attention_at("FACO_equal", 0.03)
    first = (losses < 0.03).argmax(axis=1)
    assert (first > 50).all()
    assert attention == pytest.approx(0.3 - 0.05 * np.log(losses[np.arange(SEEDS), first] / 3.1))
    assert np.isnan(figure.attention_at("FACO_equal", 1e-3)).all()


def test_comparisons_find_the_planted_effect_and_no_other(figure):
    rows = figure.comparisons()
    attention = [row for row in rows if row["quantity"] == "attention"]
    assert {row["run"] for row in attention} == set(FASTER)
    for row in attention:
        assert row["difference"] == pytest.approx(0.05 * np.log(3.1 / row["loss"]), abs=0.01)
        assert row["low"] > 0
    assert all(row["equivalent"] for row in rows if row["quantity"] == "accuracy")
    assert [row["loss"] for row in figure.orders()] == [0.3, 0.1, 0.03, 0.01]


def test_one_seed_is_no_sample(figure):
    """It has maps and losses, but nothing to compare."""
    columns = {
        n: dataclasses.replace(r, columns={k: v[:1] for k, v in r.columns.items()})
        for n, r in figure.records.items()
    }
    mass, probability = ({n: x[:1] for n, x in y.items()} for y in (figure.mass, figure.probability))
    one = Figure2("full", 1, columns, mass, probability)
    assert one.comparisons() == []
    assert "paired" not in one.table()
    assert "± " in one.table().splitlines()[0]
    assert "±" not in "".join(one.table().splitlines()[1:])
    assert json.loads(dumps(one.document()))["runs"][0]["final_loss"]["sd"] is None


def test_the_document_and_the_table(figure):
    document = json.loads(dumps(figure.document()))
    assert document["seeds"] == [0, 1, 2]
    assert [row["run"] for row in document["runs"]] == [*RUNS, *CONTROLS]
    assert document["runs"][0]["published"]["top"] == PUBLISHED["FAFO_equal"]["top"]
    text = figure.table()
    assert "[2.901, 1.31, 0.081, 0.009]" in text
    assert "FAFO_increasing: T 64, QK tiny, OV tiny, rate QK 0.01 to 0.4, OV 0.01, 200,000 steps" in text
    assert max(map(len, text.splitlines())) < 160


def test_the_figures_show_every_run_and_the_published_rows(figure):
    maps = plots.dtap_maps(
        {name: figure.maps(name) for name in figure.records}, EDGES, {"FACO_equal": [0, 1]}
    )
    titles = [axes.get_title() for axes in maps.axes]
    assert sum(bool(title) for title in titles) == len(figure.records)
    assert "FACO equal\npublished top row: 0  1" in titles
    # The lowest row of cells is that of the lowest probability.
    mean = figure.maps("FAFO_equal").mean(axis=0)
    shown = {tuple(map(int, t.get_position())): t.get_text() for t in maps.axes[0].texts}
    assert shown[4, 0].startswith(f"{mean[0, 4]:.1f}")
    curves = {name: {"steps": record.steps, **record.columns} for name, record in figure.records.items()}
    left, right = plots.sharpening(curves).axes
    assert len(left.lines) == len(right.lines) == len(figure.records)
    styles = {(line.get_color(), repr(line._dash_pattern)) for line in left.lines}  # type: ignore[attr-defined]
    assert len(styles) == len(figure.records)


def test_a_hurried_training_repeats_the_published_losses_and_map():
    """FACO, 20-fold steps: the flow is the same, its discretisation moves a block's loss by under 1 %."""
    records = train_runs({"FACO_equal": hurried(RUNS["FACO_equal"], QUICK)}, seeds=1)
    mass, probability = _seen(records["FACO_equal"], 1)
    result = Figure2("quick", 1, records, {"FACO_equal": mass}, {"FACO_equal": probability})
    published = PUBLISHED["FACO_equal"]
    found = result.block_losses("FACO_equal")[0, :6]
    assert (np.abs(found - published["losses"]) < np.maximum(0.03 * found, 0.01)).all()
    assert np.abs(result.maps("FACO_equal")[0, -1] - published["top"]).max() < 3
    assert EDGES == (0.2, 0.4, 0.6, 0.8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"figure": "fig5"}, "Argument `figure` must be fig2, fig3 or fig4, but is 'fig5'."),
        ({"figure": "fig4", "budget": "full"}, "Argument `budget` is for fig2 and fig3, but figure is fig4."),
        ({"figure": "fig4", "seeds": 3}, "Argument `seeds` is for fig2 and fig3, but figure is fig4."),
        ({"figure": "fig2", "budget": "slow"}, "Argument `budget` must be quick or full, but is 'slow'."),
        ({"figure": "fig2", "seeds": 0}, "Argument `seeds` must be a whole number of at least 1, but is 0."),
        ({"figure": "fig2", "out": "nowhere"}, "Argument `out` must be a folder that exists"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ArgumentError) as error:
        reproduce(**arguments)
    assert words in str(error.value)


def test_hurrying_keeps_flow_time_and_whole_epochs():
    for run in {**RUNS, **CONTROLS}.values():
        fast = hurried(run, QUICK)
        assert fast.steps % EPOCH == 0
        assert fast.steps * fast.lr_ov == pytest.approx(run.steps * run.lr_ov, rel=0.05)
        assert fast.lr_qk_end / fast.lr_ov == pytest.approx(run.lr_qk_end / run.lr_ov)
