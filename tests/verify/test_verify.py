"""The main job on a problem that takes every special path."""

import numpy as np
import pytest

from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Problem, Start
from qkflow.verify import Verdict, measure, verify

SETTING = OrthogonalSetting(3, 3, 2, 1, 4, 2, score_scale=0.5)
PROBLEM = Problem(
    SETTING, "FAFO", LearningRates(2.0, 0.5), Start(0.2, -0.1, imbalance_ov=0.3, imbalance_qk=-0.5)
)
OUT_OF_SCOPE = ["ov_logarithmic", "qk_bounded"]
NOT_MEASURED = ["sgd_scatter", "silent_alignment"]


def test_two_modes_imbalance_and_score_scale():
    """The factorized circuit with a finite common vocabulary is compared with its two modes."""
    record = measure(PROBLEM, names=["FAFO"])
    assert record.setting["n_common_vocab"] == 4  # its own setting: it fits
    report = verify(PROBLEM, record=record, rigorous=True)
    assert report.ok, report.table()
    found = {claim.id: claim.verdict for claim in report.claims}
    # No upper bound is stated for an imbalance, and nothing was trained on minibatches or off the manifold.
    assert [c for c, verdict in found.items() if verdict is Verdict.OUT_OF_SCOPE] == OUT_OF_SCOPE
    assert [c for c, verdict in found.items() if verdict is Verdict.UNDECIDED] == NOT_MEASURED
    assert [c for c, verdict in found.items() if verdict is Verdict.PROVED] == ["derivation", "sharper"]


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="`claims` must name some of derivation"):
        verify(PROBLEM, claims=["everything"])
    with pytest.raises(ArgumentError, match="`ratio` must be a single number"):
        verify(Problem(rates=LearningRates(ratio=np.array([1.0, 2.0]))))
