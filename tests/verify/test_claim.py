import json
import math

import pytest

from qkflow.verify import Claim, Verdict
from qkflow.verify.claim import largest

CLAIM = Claim("name", "a statement", "paper", "identity", "this and that", "rounding", tolerance=1e-3)


def test_within_the_tolerance_is_verified():
    judged = CLAIM.judged({"a": 1e-4, "b": 1e-3})
    assert (judged.verdict, judged.error) == (Verdict.VERIFIED, 1e-3)
    assert judged.details["worst"] == "b"


@pytest.mark.parametrize("error", [2e-3, math.inf, math.nan])
def test_beyond_it_or_not_a_number_is_falsified(error):
    judged = CLAIM.judged({"a": 0.0, "b": error})
    assert judged.verdict is Verdict.FALSIFIED
    assert judged.details["worst"] == "b"


def test_nothing_compared_is_not_verified():
    with pytest.raises(ValueError, match="empty"):
        CLAIM.judged({})


def test_the_document_is_strict_json():
    document = CLAIM.judged({"a": math.nan}, orders=[1.0, math.inf]).document()
    text = json.loads(json.dumps(document, allow_nan=False))
    assert text["error"] == "inf"
    assert text["details"]["orders"] == [1.0, "inf"]
    assert text["verdict"] == "falsified"


def test_largest():
    assert largest([1e-3, -2e-3], 2.0) == 1e-3
    assert largest([0.0, math.nan]) == math.inf
    assert largest([0.0], 0.0) == math.inf
