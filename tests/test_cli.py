"""The command line: one document or one sentence, and the exit status."""

import json
import math

import pytest

from qkflow.cli import main

SENTENCES = {
    "solve --n-distinct 70": "Argument `n_distinct` must be at most `n_distinct_vocab` (50), but is 70.",
    "solve --ratio nan": "Argument `ratio` must be positive and finite, but is nan.",
    "solve --ratio abc": "Argument --ratio: invalid number: 'abc'.",
    "solve --mu-ov-0 -1e-3": "Argument `mu_ov_0` must be finite and at least 0, but is -0.001.",
    "solve --at-time -1": "Argument `at_time` must be finite and at least 0, but is -1.",
    "solve --at-loss 4": "Argument `at_loss` must be positive and at most the start's",
    "solve --at-attention 1": "Argument `at_attention` must be at least the start's",
    "solve --at-loss .1 --at-time 1": "not allowed with argument",
    "solve --rtol 1e-8": "Argument `rtol` is for the method integrate, but it is exact.",
    "solve --method integrate --solver Euler": "must be an adaptive solver of diffrax, but is 'Euler'",
    "solve --mu-ov-0 500": "A target must be given: the start's loss",
    "solve --rat 2": "Unrecognized arguments: --rat 2.",
    "train --n-classes 20 --n-distinct-vocab 50 --n-distinct 5": str(60 * math.comb(50, 5) * math.comb(7, 3)),
    "train --out /nowhere/at/all.json": "Argument `out` must be a file in a folder that can be written",
    "reproduce fig5": "invalid choice",
    "reproduce fig4 --budget full --out .": "Argument `budget` is for fig2 and fig3, but figure is fig4.",
    "reproduce fig2 --seeds 0 --out .": "Argument `seeds` must be a whole number of at least 1, but is 0.",
    "": "required",
}


@pytest.mark.parametrize("words", SENTENCES)
def test_bad_input_is_one_sentence(words, capsys):
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert SENTENCES[words] in err
    assert err.count("\n") == 1
    assert "usage" not in err


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_solve_prints_one_document(capsys):
    assert main(["solve", "--at-log-time", "-inf", "1e3", "-5", "--mu-qk-0", "-1e-1", "--json"]) == 0
    document = strict(capsys.readouterr().out)
    assert document["schema"] == 1
    assert document["method"] == "exact"
    assert document["setting"]["n_common_vocab"] == "inf"
    assert document["setting"]["mu_qk_0"] == -0.1
    start, late, early = document["points"]
    assert (start["t"], start["log_t"], start["mu_ov"]) == (0.0, None, 0.0)
    assert (late["t"], late["log_t"], late["loss"]) == (None, 1e3, 0.0)
    assert early["log_t"] == -5
    assert set(start) == {"t", "log_t", "mu_ov", "mu_qk", "alpha", "log_one_minus_alpha", "loss", "log_loss"}
    assert {"versions", "device", "dtype", "seeds"} <= set(document)


def test_without_a_target_fifty_losses(capsys):
    assert main(["solve", "--json"]) == 0
    points = strict(capsys.readouterr().out)["points"]
    assert len(points) == 50
    assert points[0]["t"] == 0
    assert points[0]["loss"] == pytest.approx(math.log(20))
    assert points[-1]["loss"] == pytest.approx(1e-4)


def test_the_published_end_point_in_the_table(capsys):
    assert main(["solve", "--ratio", ".01", "--at-loss", "1e-4"]) == 0
    assert "255394405.189" in capsys.readouterr().out


def test_train_writes_what_it_prints(capsys, tmp_path):
    path = tmp_path / "record.json"
    words = f"train --steps 20 --records 3 --seeds 2 --mode sgd --start random --json --out {path}"
    assert main(words.split()) == 0
    out, err = capsys.readouterr()
    document = strict(out)
    assert strict(path.read_text()) == document
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]
    assert "step 20 of 20" in err
    assert document["seeds"] == [0, 1]
    last = document["points"][-1]
    assert last["step"] == 20
    assert last["t"] == pytest.approx(2.0)
    assert all(
        isinstance(last[name], list) and len(last[name]) == 2 for name in last.keys() - {"step", "t", "log_t"}
    )


def test_derive_prints_markdown(capsys):
    assert main(["derive", "--parameterization", "CACO"]) == 0
    assert capsys.readouterr().out.startswith("# CACO")
