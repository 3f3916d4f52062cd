import dataclasses
import json
import math

import numpy as np
import pytest

from qkflow.verify import Claim, Scope, Verdict
from qkflow.verify.claim import relative

CLAIM = Claim(
    "name",
    "a statement",
    "paper",
    "derivation#Loss",
    Scope.BOUND,
    "this and that",
    "rounding",
    tolerance=1e-3,
)


def test_within_the_tolerance_is_verified():
    judged = CLAIM.judged({"a": 1e-4, "b": [5e-4, 1e-3]}, horizon="log t = 3")
    assert (judged.verdict, judged.error, judged.margin) == (Verdict.VERIFIED, 1e-3, 1.0)
    assert (judged.details["worst"], judged.horizon, judged.first_violation) == ("b", "log t = 3", None)


@pytest.mark.parametrize("error", [2e-3, math.inf, math.nan])
def test_beyond_it_or_not_a_number_is_falsified(error):
    judged = CLAIM.judged({"a": 0.0, "b": error})
    assert judged.verdict is Verdict.FALSIFIED
    assert judged.margin is not None
    assert judged.margin < 1.0
    assert judged.details["worst"] == "b"


def test_room_is_an_infinite_margin():
    assert CLAIM.judged({"a": [-1.0, 0.0]}).margin == math.inf


def test_the_first_violation_is_the_first_in_time_of_the_worst_part():
    errors = np.array([[0.0, 0.0, 9.0], [0.0, 2e-3, 1.0]])
    at = {"b": {"step_size": np.array([[0.1], [0.2]]), "t": np.array([0.0, 1.0, 2.0])}}
    judged = CLAIM.judged({"a": [5.0], "b": errors}, at=at)
    assert judged.first_violation == {"part": "b", "times_the_tolerance": 2.0, "step_size": 0.2, "t": 1.0}


def test_nothing_compared_is_not_verified():
    with pytest.raises(ValueError, match="empty"):
        CLAIM.judged({})


def test_only_what_was_verified_can_be_proved():
    assert CLAIM.judged({"a": 0.0}).proved("balls").verdict is Verdict.PROVED
    for open_ in (CLAIM.judged({"a": 1.0}), CLAIM.undecided("short"), CLAIM.out_of_scope("other")):
        assert open_.proved("balls") == open_


def test_a_route_without_an_answer_is_falsified():
    judged = CLAIM.without_answer("nowhere")
    assert (judged.verdict, judged.why) == (Verdict.FALSIFIED, "nowhere")


def test_the_document_is_strict_json_with_every_field():
    document = CLAIM.judged({"a": math.nan}, orders=[1.0, math.inf]).document()
    text = json.loads(json.dumps(document, allow_nan=False))
    assert set(text) == {field.name for field in dataclasses.fields(Claim)} | {"margin"}
    assert (text["error"], text["margin"], text["scope"], text["verdict"]) == (
        "inf",
        0.0,
        "bound",
        "falsified",
    )
    assert text["details"]["orders"] == [1.0, "inf"]


def test_relative():
    assert relative([1e-3, -2e-3], 2.0).max() == 1e-3
    assert relative([0.0, math.nan]).max() == math.inf
    assert relative([0.0], 0.0).max() == math.inf
