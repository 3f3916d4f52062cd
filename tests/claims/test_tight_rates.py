"""Claims on tight rates and on the order of the parameterizations: held, and falsified by wrong constants."""

import dataclasses
import math

import numpy as np
import pytest

from qkflow import plots
from qkflow.flow import rates
from qkflow.flow.exact import solve_exact
from qkflow.setting import LearningRates, OrthogonalSetting, Parameterization, Problem, Start
from qkflow.verify import Verdict, attention_rate, attention_to_one, late, ov_rate, qk_rate, sharpness_order
from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import Evidence
from tests.verify.stored import stored


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """The paper's problem; its routes at few times, for which the solver of the record's serves."""
    found = Evidence(Problem(), stored())
    route = solve_exact(found.problem, at_log_time=[-math.inf, -5.0, 8.0, 11.0, 14.0, 20.0, 50.0, 1e4])
    found.__dict__.update(by_time=route, integrated_by_time=route, integrated_by_loss=route)
    return found


@pytest.fixture(autouse=True)
def _nothing_planted_is_remembered():
    yield
    late._remainders.cache_clear()


def judged(module, evidence: Evidence) -> Claim:
    late._remainders.cache_clear()
    return module.judge(evidence)


SATURATED = {f"{kind}, r = {r}" for kind in ("CACO", "FACO") for r in ("0.01", "1", "100")} | {
    "FAFO, r = 1",
    "FAFO, r = 100",
    "CAFO, r = 100",
}


def test_ov_rate(evidence):
    """In all twelve cases, also where rho e^mu_QK is not yet large."""
    found = judged(ov_rate, evidence)
    assert found.verdict is Verdict.VERIFIED
    assert set(found.details["cases"].values()) == {"verified"}
    for values in found.details["remainders_at_log_t_690_2e3_1e4"].values():
        assert abs(values[0]) > abs(values[1]) > abs(values[2])


@pytest.mark.parametrize("module", [qk_rate, attention_rate])
def test_rates_of_mu_qk_and_of_attention(evidence, module):
    found = judged(module, evidence)
    assert found.verdict is Verdict.VERIFIED
    cases = found.details["cases"]
    assert {name for name, verdict in cases.items() if verdict == "verified"} == SATURATED
    assert {verdict for name, verdict in cases.items() if name not in SATURATED} == {
        "undecided: not yet saturated"
    }
    assert "CAFO, r = 1 (undecided: not yet saturated)" in found.why
    for name, values in found.details["remainders_at_log_t_690_2e3_1e4"].items():
        if name in SATURATED:
            assert abs(values[0]) > abs(values[1]) > abs(values[2])


def faster(order, factor):
    return dataclasses.replace(order, gamma=factor * order.gamma)


WRONG = {
    "1 % too much": lambda order: faster(order, 1.01),
    "1 % too little": lambda order: faster(order, 0.99),
    "kappa doubled": lambda order: faster(order, 2.0),
    "gamma for gamma'": lambda order: faster(order, math.sqrt(50.0) if order.power_ov == 1 else 1.0),
    "a mu_QK dropped": lambda order: dataclasses.replace(
        order, gamma=order.gamma / (100.0 if order.power_qk else 1.0), power_qk=0
    ),
    "log t for log^2 t": lambda order: dataclasses.replace(order, power_ov=1),
}
TOUCHED = {"gamma for gamma'": ("CAFO", "FAFO"), "a mu_QK dropped": ("FACO", "FAFO")}


@pytest.mark.parametrize("module", [qk_rate, attention_rate])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_constant_is_falsified(evidence, monkeypatch, module, name):
    """In every case that it touches, and in no other."""
    right = rates.leading
    monkeypatch.setattr(rates, "leading", lambda *args: WRONG[name](right(*args)))
    found = judged(module, evidence)
    assert found.verdict is Verdict.FALSIFIED
    assert found.margin is not None
    assert found.margin < 0.99
    wrong = {part[:4] for part, error in found.details["errors"].items() if error > 1.0}
    every = ("CACO", "CAFO") if module is attention_rate else ("CACO", "FACO")
    if name in TOUCHED:
        assert wrong == set(TOUCHED[name])
    elif name == "log t for log^2 t":
        assert wrong == {"CACO", "FACO"}
    else:
        assert wrong == {"CACO", "FACO", "CAFO", "FAFO"} >= set(every)


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_wrong_constant_of_z_is_falsified(evidence, monkeypatch, factor):
    right = rates.leading
    monkeypatch.setattr(
        rates,
        "leading",
        lambda *args: dataclasses.replace(order := right(*args), log_pace=order.log_pace + math.log(factor)),
    )
    found = judged(ov_rate, evidence)
    assert found.verdict is Verdict.FALSIFIED
    wrong = {part.split(":")[0] for part, error in found.details["errors"].items() if error > 1.0}
    assert len(wrong) == 12


def test_another_trajectory_is_falsified(evidence, monkeypatch):
    """Constants and intervals of the problem, states of one that learns attention 1 % faster."""
    cases = {
        name: dataclasses.replace(
            solve_exact(
                dataclasses.replace(case.problem, rates=LearningRates(ratio=1.01 * case.problem.rates.ratio)),
                at_log_time=late.LOG_TIMES,
            ),
            problem=case.problem,
        )
        for name, case in late.cases(evidence).items()
    }
    monkeypatch.setattr(late, "_cases", lambda problem, field: cases)
    assert judged(qk_rate, evidence).verdict is Verdict.FALSIFIED


def test_growth_where_the_next_orders_oppose_each_other_decides_nothing(evidence):
    """FAFO at a large ratio: log log t / log t against 1/mu_QK."""
    fast = Evidence(dataclasses.replace(evidence.problem, rates=LearningRates(ratio=100.0)), evidence.record)
    found = judged(qk_rate, fast)
    assert found.verdict is Verdict.VERIFIED
    assert found.details["cases"]["FAFO, r = 10000"].startswith("undecided: next orders of opposite sign")
    values = found.details["remainders_at_log_t_690_2e3_1e4"]["FAFO, r = 10000"]
    assert abs(values[0]) < abs(values[1])


def test_log_squared_as_a_rate_is_falsified(evidence):
    """mu_QK >= .5 gamma mu_OV^2 / (1 + rho) for all t, by the same machinery; with its first violation."""
    route = evidence.by_time
    gamma, rho = rates.leading(evidence.problem).gamma, 0.1
    claim = Claim(
        id="log_squared",
        statement="mu_QK >= .5 gamma mu_OV^2/(1 + rho) for all t",
        source="nobody",
        shown="-",
        scope=Scope.BOUND,
        compared="exact mu_QK and the bound",
        reason="routes agree to 1e-8",
        tolerance=1e-8,
    )
    below = 0.5 * gamma * np.asarray(route.mu_ov) ** 2 / (1.0 + rho)
    excess = (below - np.asarray(route.mu_qk)) / np.maximum(1.0, below)
    found = claim.judged({"exact": excess}, at={"exact": {"log_t": route.log_t}}, horizon="log t = 1e4")
    assert found.verdict is Verdict.FALSIFIED
    assert found.first_violation is not None
    assert found.first_violation["log_t"] == 50.0
    assert claim.judged({"exact": excess[:6]}).verdict is Verdict.VERIFIED  # to log t = 20 it held


def test_attention_to_one(evidence, monkeypatch):
    found = attention_to_one.judge(evidence)
    assert found.verdict is Verdict.VERIFIED
    falling = dataclasses.replace(evidence.by_time, mu_qk=np.asarray(evidence.by_time.mu_qk)[::-1])
    other = Evidence(evidence.problem, evidence.record)
    other.__dict__.update(by_time=falling, integrated_by_time=falling)
    assert attention_to_one.judge(other).verdict is Verdict.FALSIFIED
    monkeypatch.setattr(attention_to_one, "attention_gap", lambda *args: 0.5 * rates.attention_gap(*args))
    halved = attention_to_one.judge(evidence)
    assert halved.verdict is Verdict.FALSIFIED
    assert halved.first_violation is not None
    assert halved.first_violation["part"].startswith("(1 - alpha) mu_OV")


def test_every_rate_is_judged_in_another_setting(evidence):
    """Finite common vocabulary, Q different from b, a score scale, non-zero start, imbalance."""
    setting = OrthogonalSetting(6, 12, 4, 7, 20, 5, 1 / math.sqrt(50))
    problem = Problem(setting, "FAFO", LearningRates(0.5, 3.0), Start(0.2, -0.5, 0.4, -0.3))  # type: ignore[arg-type]
    other = Evidence(problem, evidence.record)
    route = solve_exact(problem, at_log_time=np.asarray(evidence.by_time.log_t))
    other.__dict__.update(by_time=route, integrated_by_time=route, integrated_by_loss=route)
    for module in (ov_rate, qk_rate, attention_rate, attention_to_one, sharpness_order):
        found = judged(module, other)
        assert found.verdict is Verdict.VERIFIED, (found.id, found.first_violation)


def test_sharpness_order(evidence):
    found = sharpness_order.judge(evidence)
    assert found.verdict is Verdict.VERIFIED
    assert "trained" in found.details["errors"]
    orders = np.array(found.details["map"]["orders"])
    # It is not one order: with the ratio and with the start, FAFO passes CAFO and CACO.
    assert len(np.unique(orders)) >= 3
    assert orders[0, 0, 0] == "FACO > CACO > CAFO > FAFO"
    assert orders[-1, 0, 0] == "FACO > FAFO > CACO > CAFO"


def test_a_wrong_order_is_seen(evidence):
    """Curves of FAFO that follow twice the ratio that their first integral is told."""
    curves = sharpness_order._solved(evidence.problem, 3.0, 0.01, evidence.field)
    right = sharpness_order.contradictions(curves, evidence.field)["by"]
    assert right.max() <= 1e-8
    case, u, g = curves["FAFO"]
    slower = dataclasses.replace(case, rates=LearningRates(ratio=case.rates.ratio / 10.0))
    wrong = sharpness_order.contradictions(dict(curves) | {"FAFO": (slower, u, g)}, evidence.field)["by"]
    assert wrong.max() > 0.1
    trained = {
        kind.value: (
            evidence.record.trainings[kind.value].problem,
            *(evidence.record.trainings[kind.value].columns[name][-1] for name in ("mu_ov", "mu_qk")),
        )
        for kind in Parameterization
    }
    assert np.isfinite(sharpness_order.contradictions(trained, evidence.field)["by"]).sum() > 20
    swapped = dict(trained) | {"CACO": (trained["CACO"][0], *trained["CAFO"][1:])}
    assert sharpness_order.contradictions(swapped, evidence.field)["by"].max() > 0.02


def test_the_map_is_drawn():
    orders = [[["A > B", ""]], [["B > A", "A > B"]]]
    figure = plots.sharpness_map(
        {"ratios": [0.1, 1.0], "starts": [0.01], "losses": [0.1, 1e-4], "orders": orders}
    )
    drawn = plots.svg(figure)
    assert "1: A &gt; B" in drawn
    assert "2: B &gt; A" in drawn
    assert drawn.count("at loss") == 2
