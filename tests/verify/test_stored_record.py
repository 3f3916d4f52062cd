"""The stored record is what training gives, and survives storing."""

import dataclasses

import numpy as np
import pytest

from qkflow.setting import LearningRates, OrthogonalSetting, Parameterization, Problem, Start
from qkflow.train import train
from qkflow.verify import Record
from qkflow.verify.record import (
    GROUPS,
    SMALL,
    SMALL_RATES,
    TINY,
    aligning_problems,
    noisy_problems,
    trained_problems,
)
from tests.verify.stored import PATH, stored


def test_it_is_small():
    assert PATH.stat().st_size < 200_000


def test_it_moves():
    """Both mu's change by order 1 and the loss falls tenfold, so that a predictor of the start is caught."""
    for training in stored().trainings.values():
        seen = training.columns
        assert np.ptp(seen["mu_ov"][-1]) > 1.0
        assert np.ptp(seen["mu_qk"][-1]) > 1.0
        assert seen["log_loss"][-1, 0] - seen["log_loss"][-1, -1] > 2.0


@pytest.mark.parametrize("name", ["FACO", "FAFO two modes"])
def test_a_fresh_training_reproduces_it(name):
    """To rounding, which another processor may do in another order."""
    training = stored().trainings[name]
    steps = int(training.columns["step"][0, -1])
    again = train(training.problem, steps=steps, step_size=float(training.columns["step_size"][0]), records=2)
    for column in ("mu_ov", "mu_qk", "log_loss"):
        assert getattr(again, column)[0, -1] == pytest.approx(training.columns[column][0, -1], rel=1e-11)


def test_it_survives_storing(tmp_path):
    record = stored()
    record.save(tmp_path / "record.npz")
    again = Record.load(tmp_path / "record.npz")
    assert again.setting == record.setting
    assert [p.name for p in tmp_path.iterdir()] == ["record.npz"]
    for group in GROUPS:
        for name, part in getattr(record, group).items():
            other = getattr(again, group)[name]
            assert other.problem == part.problem
            assert all(np.array_equal(other.columns[key], column) for key, column in part.columns.items())


def test_a_record_that_cannot_be_written_leaves_nothing(tmp_path):
    bad = dataclasses.replace(stored(), setting={"not": object()})
    full = dataclasses.replace(stored(), ratios={})
    (tmp_path / "folder").mkdir()
    for record, place in ((bad, tmp_path / "record.npz"), (full, tmp_path / "folder")):
        with pytest.raises((TypeError, OSError)):
            record.save(place)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_the_stand_in_keeps_what_the_problem_has():
    start = Start(0.3, -0.2, imbalance_ov=0.4)
    large = Problem(
        OrthogonalSetting(n_common_vocab=200, score_scale=0.2), "CAFO", LearningRates(2.0, 3.0), start
    )
    trained = trained_problems(large)
    common = {p.setting.n_common_vocab for name, p in trained.items() if name in "CACO FACO CAFO FAFO"}
    assert common == {4}
    assert trained["CAFO"].setting.score_scale == 0.2
    assert trained["CAFO"].rates == SMALL_RATES
    assert trained["CAFO"].start == start
    assert trained["FACO"].start == Start(0.3, 0.01)
    noisy = noisy_problems(large)
    assert list(noisy) == ["CAFO", "FACO"]
    assert noisy["CAFO"].start == start
    assert noisy["CAFO"].setting == dataclasses.replace(TINY, n_common_vocab=4, score_scale=0.2)
    assert list(aligning_problems(large)) == ["CAFO", "FAFO"]
    assert trained_problems(Problem(start=Start(0.0, 300.0)))["CACO"].start == Start(0.0, 3.0)
    assert list(aligning_problems(Problem())) == ["FAFO"]


def test_what_is_trained():
    large = trained_problems(Problem())
    assert list(large)[:4] == [kind.value for kind in Parameterization]
    assert all(
        large[k.value].setting == SMALL and large[k.value].rates == SMALL_RATES for k in Parameterization
    )
    given = Problem(OrthogonalSetting(3, 3, 2, 1, 4, 2), "CAFO", start=Start(0.2, -0.5, imbalance_ov=0.3))
    own = trained_problems(given)
    assert own["CAFO"] == given
    assert own["CACO"].start == Start(0.2, -0.5)
    assert own["FAFO"].start == Start(0.2, 0.01, imbalance_ov=0.3)
