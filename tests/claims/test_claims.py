"""One test a claim: it is verified, and it is falsified by an error that it is there to see.

Errors are planted by holding the record against another problem than the trained one, or one route
against another problem's; no reported number is touched.
"""

import dataclasses
import types

import numpy as np
import pytest

from qkflow.flow import derived
from qkflow.flow.exact import solve_exact
from qkflow.flow.integrate import integrate
from qkflow.setting import LearningRates, Problem, Start
from qkflow.symbolic import derive
from qkflow.symbolic.symbols import mu_OV
from qkflow.verify import (
    Record,
    Verdict,
    conserved,
    derivation,
    exact_integrated,
    first_integral,
    gradient_descent_order,
    line,
    loss_identity,
    ov_logarithmic,
    qk_bounded,
    reduction,
    rescaling,
    scalar_map,
    sharper,
    training_limit,
)
from qkflow.verify.evidence import Evidence
from tests.verify.stored import stored


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return Evidence(Problem(), stored())


def swapped(record: Record, group: str, change) -> Record:
    """The record with another problem named for each part of a group."""
    parts = {
        name: dataclasses.replace(p, problem=change(p.problem)) for name, p in getattr(record, group).items()
    }
    return dataclasses.replace(record, **{group: parts})


def at_ratio(factor: float):
    def change(problem: Problem) -> Problem:
        rates = LearningRates(problem.rates.lr_ov, problem.rates.ratio * factor)
        return dataclasses.replace(problem, rates=rates)

    return change


def pretend(evidence: Evidence, **routes) -> Evidence:
    """The same evidence with some routes followed from another problem."""
    other = Evidence(evidence.problem, evidence.record)
    other.__dict__.update(
        {k: v for k, v in evidence.__dict__.items() if k not in ("problem", "record", "field")}
    )
    other.__dict__.update(routes)
    return other


def test_derivation(evidence):
    assert derivation.judge(evidence).verdict is Verdict.PROVED
    wrong = types.ModuleType("wrong")
    wrong.__dict__.update(vars(derived))
    wrong.__dict__["drive_qk"] = lambda c, u, g, log_scale=0.0: (
        derived.drive_qk(c, u, g, log_scale) * (1 + 1e-11)
    )
    judged = derivation.judge(Evidence(Problem(), evidence.record, wrong))
    assert judged.verdict is Verdict.FALSIFIED
    assert judged.details["worst"] == "drive_QK"


def test_another_flow_proves_nothing(evidence, monkeypatch):
    right = derive()
    wrong = dataclasses.replace(right, drive_qk=right.drive_qk * mu_OV)
    monkeypatch.setattr("qkflow.symbolic.derive", lambda: wrong)
    judged = derivation.judge(evidence)
    assert judged.verdict is Verdict.FALSIFIED
    assert judged.details["worst"] == "both sides as symbols"


def test_reduction(evidence):
    assert reduction.judge(evidence).verdict is Verdict.VERIFIED
    wrong = swapped(evidence.record, "gradients", at_ratio(1 + 1e-9))
    assert reduction.judge(Evidence(Problem(), wrong)).verdict is Verdict.FALSIFIED


def test_rescaling(evidence):
    assert rescaling.judge(evidence).verdict is Verdict.VERIFIED

    def larger(problem):
        setting = dataclasses.replace(problem.setting, n_distinct_vocab=problem.setting.n_distinct_vocab + 1)
        return dataclasses.replace(problem, setting=setting)

    wrong = rescaling.judge(Evidence(Problem(), swapped(evidence.record, "gradients", larger)))
    assert wrong.verdict is Verdict.FALSIFIED
    assert wrong.details["errors"]["CACO: OV"] == 0.0  # R = 1 whatever the setting


def test_loss_identity(evidence):
    assert loss_identity.judge(evidence).verdict is Verdict.VERIFIED

    def wider(problem):
        setting = dataclasses.replace(problem.setting, n_classes=problem.setting.n_classes + 1)
        return dataclasses.replace(problem, setting=setting)

    wrong = swapped(evidence.record, "trainings", wider)
    assert loss_identity.judge(Evidence(Problem(), wrong)).verdict is Verdict.FALSIFIED


def test_line(evidence):
    judged = line.judge(evidence)
    assert judged.verdict is Verdict.VERIFIED
    # The two-mode circuit does leave the line: it is judged by its plane of modes.
    assert evidence.record.trainings["FAFO two modes"].columns["residual_qk"].max() > 1e-3
    assert judged.details["errors"]["FAFO two modes: QK"] < 1e-12


def test_scalar_map(evidence):
    assert scalar_map.judge(evidence).verdict is Verdict.VERIFIED
    wrong = swapped(evidence.record, "trainings", at_ratio(1 + 1e-9))
    assert scalar_map.judge(Evidence(Problem(), wrong)).verdict is Verdict.FALSIFIED


def test_gradient_descent_order(evidence):
    judged = gradient_descent_order.judge(evidence)
    assert judged.verdict is Verdict.VERIFIED
    assert all(len(orders) == 5 for orders in judged.details["orders"].values())
    # A predictor that returns the start: the distance does not shrink.
    start = {
        name: dataclasses.replace(flow, mu_ov=0 * flow.mu_ov, mu_qk=0 * flow.mu_qk)
        for name, flow in evidence.flows.items()
    }
    assert gradient_descent_order.judge(pretend(evidence, flows=start)).verdict is Verdict.FALSIFIED


def test_a_training_that_hardly_learns_decides_nothing(evidence):
    training = evidence.record.trainings["CACO"]
    columns = dict(training.columns) | {"log_loss": 0 * training.columns["log_loss"]}
    record = dataclasses.replace(
        evidence.record, trainings={"CACO": dataclasses.replace(training, columns=columns)}
    )
    judged = gradient_descent_order.judge(pretend(Evidence(Problem(), record), flows=evidence.flows))
    assert judged.verdict is Verdict.UNDECIDED


def test_training_limit(evidence):
    assert training_limit.judge(evidence).verdict is Verdict.VERIFIED
    training = evidence.record.trainings["CACO"]
    wrong = dict(evidence.flows) | {
        "CACO": solve_exact(at_ratio(1 + 1e-6)(training.problem), at_time=training.t)
    }
    assert training_limit.judge(pretend(evidence, flows=wrong)).verdict is Verdict.FALSIFIED


def test_conserved(evidence):
    judged = conserved.judge(evidence)
    assert judged.verdict is Verdict.VERIFIED
    # Balanced factors stay balanced to rounding, imbalanced ones do drift at a finite step.
    assert judged.details["drift_at_the_largest_step"]["FAFO imbalanced: QK"] > 1e-3
    training = evidence.record.trainings["FAFO imbalanced"]
    columns = dict(training.columns) | {"conserved_qk": training.columns["conserved_qk"] + 1e-6}
    record = dataclasses.replace(
        evidence.record, trainings={"x": dataclasses.replace(training, columns=columns)}
    )
    assert conserved.judge(Evidence(Problem(), record)).verdict is Verdict.FALSIFIED
    record = dataclasses.replace(evidence.record, trainings={"CACO": evidence.record.trainings["CACO"]})
    assert conserved.judge(Evidence(Problem(), record)).verdict is Verdict.OUT_OF_SCOPE


def test_first_integral(evidence):
    assert first_integral.judge(evidence).verdict is Verdict.VERIFIED
    wrong = swapped(evidence.record, "trainings", at_ratio(1 + 1e-5))
    judged = first_integral.judge(pretend(Evidence(Problem(), wrong), **_routes(evidence)))
    assert all(error > 1e-6 for part, error in judged.details["errors"].items() if part.startswith("trained"))


def _routes(evidence: Evidence) -> dict:
    return {k: v for k, v in evidence.__dict__.items() if k not in ("problem", "record", "field")}


def test_exact_integrated(evidence):
    assert exact_integrated.judge(evidence).verdict is Verdict.VERIFIED
    losses = evidence.integrated_by_loss.loss
    other = integrate(at_ratio(1 + 1e-6)(Problem()), at_loss=losses)
    judged = exact_integrated.judge(pretend(evidence, integrated_by_loss=other))
    assert judged.verdict is Verdict.FALSIFIED
    nan = dataclasses.replace(other, mu_qk=np.nan * other.mu_qk)
    judged = exact_integrated.judge(pretend(evidence, integrated_by_loss=nan))
    assert judged.verdict is Verdict.FALSIFIED
    assert judged.details["worst"] == "mu_qk at losses"


def test_ov_logarithmic(evidence):
    judged = ov_logarithmic.judge(evidence)
    assert judged.verdict is Verdict.VERIFIED
    assert 0.99 < judged.details["mu_ov_over_log_t"] < 1.01
    slower = Problem(rates=LearningRates(lr_ov=0.5))
    route = solve_exact(slower, at_log_time=evidence.log_times)
    judged = ov_logarithmic.judge(pretend(evidence, by_time=route))
    assert judged.verdict is Verdict.FALSIFIED
    assert judged.first_violation is not None
    assert judged.first_violation["part"] == "ov_below, exact"
    assert judged.first_violation["mu_ov"] < judged.first_violation["bound"]


def test_qk_bounded(evidence):
    judged = qk_bounded.judge(evidence)
    assert judged.verdict is Verdict.VERIFIED
    assert judged.details["mu_qk_over_log_t_squared"] < 1e-6
    route = solve_exact(at_ratio(1.01)(Problem()), at_log_time=evidence.log_times)
    judged = qk_bounded.judge(pretend(evidence, by_time=route))
    assert judged.verdict is Verdict.FALSIFIED
    assert judged.first_violation is not None
    assert judged.first_violation["times_the_tolerance"] > 1.0


def test_bounds_are_out_of_scope_where_none_is_stated(evidence):
    uneven = Problem(parameterization="FAFO", start=Start(0.1, 0.1, 0.5, 0.5))
    routes = {name: evidence.by_time for name in ("by_time", "integrated_by_time")}
    other = Evidence(uneven, evidence.record)
    other.__dict__.update(routes)
    assert ov_logarithmic.judge(other).verdict is Verdict.OUT_OF_SCOPE
    assert qk_bounded.judge(other).verdict is Verdict.OUT_OF_SCOPE


def test_sharper(evidence):
    assert sharper.judge(evidence).verdict is Verdict.PROVED
    backwards = pretend(evidence, ratios=evidence.ratios[::-1])
    assert sharper.judge(backwards).verdict is Verdict.FALSIFIED
    same = pretend(evidence, integrated_ratios=[evidence.integrated_ratios[0]] * 5)
    assert sharper.judge(same).verdict is Verdict.FALSIFIED
