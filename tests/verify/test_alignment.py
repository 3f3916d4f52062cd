"""Silent alignment: the claim holds for every factorized circuit, and fails where nothing aligns."""

import types

import numpy as np
import optax
import pytest

from qkflow.flow import derived
from qkflow.setting import Problem
from qkflow.symbolic import derive, load_field
from qkflow.train import circuit_sgd
from qkflow.verify import Verdict, alignment, silent_alignment
from qkflow.verify.record import SMALL_RATES, TINY
from tests.planted import PLANTED
from tests.verify.stored import stored

FAFO = Problem(TINY, "FAFO", SMALL_RATES)


def judged(parts, field=derived):
    record = types.SimpleNamespace(alignment=parts)
    return silent_alignment.judge(types.SimpleNamespace(record=record, field=field))


def measured(problem: Problem, *starts: str, **options):
    kind = problem.parameterization.value
    return {f"{kind} {s}": alignment.measure_alignment(problem, s, **options) for s in starts}


def test_the_stored_starts_align():
    record = stored()
    assert set(record.alignment) == {"FAFO identity", "FAFO random"}
    claim = judged(record.alignment)
    assert claim.verdict is Verdict.VERIFIED, claim.details
    # The random starts come to the singular spaces, not to the line: that is not claimed, and not so.
    assert min(claim.details["random_off_the_line"]["FAFO random: line_ov"]) > 0.1
    exponents = claim.details["exponents"]
    assert exponents["FAFO random: outside_ov"][0] == pytest.approx(1.0, abs=0.05)
    assert exponents["FAFO identity: line_ov"][0] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("kind", ["FACO", "CAFO"])
def test_a_collapsed_circuit_beside_a_factorized_one(kind):
    claim = judged(measured(Problem(TINY, kind, SMALL_RATES), "identity"))
    assert claim.verdict is Verdict.VERIFIED, claim.details


def test_another_flow_is_not_followed():
    parts = {"FAFO identity": stored().alignment["FAFO identity"]}
    claim = judged(parts, load_field(PLANTED["kappa doubled"](derive())))
    assert claim.verdict is Verdict.FALSIFIED
    assert "off the flow" in claim.first_violation["part"]


def test_large_starts_do_not_align():
    claim = judged(measured(FAFO, "identity", scales=(3.0, 1.5, 1.0)))
    assert claim.verdict is Verdict.FALSIFIED, claim.details


def one_class_faster(step_ov, step_qk):
    def scale(updates, state, params=None):
        rows = updates["ov"]["left"][...]
        updates["ov"]["left"] = updates["ov"]["left"].replace(rows.at[0].multiply(1.5))
        return updates, state

    uneven = optax.GradientTransformation(lambda params: optax.EmptyState(), scale)
    return optax.chain(circuit_sgd(step_ov, step_qk), uneven)


def test_unequal_rates_of_the_classes_align_to_something_else():
    claim = judged(measured(FAFO, "random", optimizer=one_class_faster))
    assert claim.verdict is Verdict.FALSIFIED
    assert claim.first_violation["part"] == "FAFO random: outside_ov"


def test_without_measurements_nothing_is_decided():
    assert judged({}).verdict is Verdict.UNDECIDED
    unseen = measured(FAFO, "identity", scales=(0.03, 0.01))
    columns = dict(unseen["FAFO identity"].columns)
    columns["outside_qk"] = columns["outside_qk"] * np.nan
    late = alignment.Alignment(FAFO, columns)
    assert judged({"FAFO identity": late}).verdict is Verdict.UNDECIDED
