"""The main job on a problem that takes every special path."""

import numpy as np
import pytest

from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Problem, Start
from qkflow.verify import Verdict, measure, verify

SETTING = OrthogonalSetting(3, 3, 2, 1, 4, 2, score_scale=0.5)
PROBLEM = Problem(
    SETTING, "FAFO", LearningRates(2.0, 0.5), Start(0.2, -0.1, imbalance_ov=0.3, imbalance_qk=-0.5)
)


def test_two_modes_imbalance_and_score_scale():
    """The factorized circuit with a finite common vocabulary is compared with its two modes."""
    record = measure(PROBLEM, names=["FAFO"])
    assert record.setting["n_common_vocab"] == 4  # its own setting: it fits
    claims = ["derivation", "reduction", "rescaling", "loss_identity", "line", "scalar_map", "conserved"]
    claims += ["first_integral", "exact_integrated", "ov_logarithmic", "qk_bounded"]
    report = verify(PROBLEM, record=record, claims=claims)
    assert report.ok, report.table()
    assert [c.id for c in report.claims if c.verdict is Verdict.OUT_OF_SCOPE] == [
        "ov_logarithmic",
        "qk_bounded",
    ]


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="`claims` must name some of derivation"):
        verify(PROBLEM, claims=["everything"])
    with pytest.raises(ArgumentError, match="`ratio` must be a single number"):
        verify(Problem(rates=LearningRates(ratio=np.array([1.0, 2.0]))))
