"""Bounds are proved where they hold, refuted where they first fail, and left undecided otherwise."""

import functools
import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from flint import arb

from qkflow.flow._balls import working
from qkflow.flow.asymptotics import growth_bounds
from qkflow.flow.certify import certify
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Parameterization, Problem, Start
from qkflow.verify import _slopes
from qkflow.verify._line import Line
from qkflow.verify._statements import FORMS, RATE, Statement
from qkflow.verify._time import Clock
from qkflow.verify.rigorous import bound_balls, prove
from tests.flow.test_asymptotics import random_problem

KINDS = list(Parameterization)
COUNT = {"CACO": 5, "FACO": 7, "CAFO": 5, "FAFO": 7}


def some_problems(seed, count, common=(math.inf,)):
    """Random settings of all parameterizations; a finite vocabulary goes with a collapsed QK circuit."""
    random = np.random.default_rng(seed)
    for i in range(count):
        kind = KINDS[i % 4]
        yield random_problem(random, kind, common[i % len(common)] if not kind.qk_factorized else math.inf)


def verdicts(proofs):
    return {name: proof.verdict for name, proof in proofs.items()}


# What is true


@pytest.mark.parametrize("kind", KINDS)
def test_every_bound_of_the_default_setting_is_proved(kind):
    proofs = prove(Problem(parameterization=kind))
    bounds = growth_bounds(Problem(parameterization=kind), 1.0)
    assert list(proofs) == [name for name, bound in bounds.items() if bound.value is not None]
    assert len(proofs) == COUNT[kind.value]
    assert set(verdicts(proofs).values()) == {"proved"}


def test_bounds_of_random_settings_are_proved():
    for problem in some_problems(1, 40, (math.inf, 30.0)):
        proofs = prove(problem)
        assert len(proofs) == COUNT[problem.parameterization.value]
        assert set(verdicts(proofs).values()) == {"proved"}, (verdicts(proofs), problem)


def test_what_is_stated_off_the_line_is_proved():
    """Two amplitudes or an imbalance of QK: alpha is only known to grow."""
    two = OrthogonalSetting(4, 5, 2, 3, 7, 3)
    skew = Start(0.1, -0.1, 0.5, 0.5)
    assert verdicts(prove(Problem(two, "FACO"))) == {"ov_below": "proved", "ov_above": "proved"}
    assert verdicts(prove(Problem(two, "FAFO"))) == {"ov_below": "proved", "ov_above_balanced": "proved"}
    assert verdicts(prove(Problem(two, "FAFO", start=skew))) == {"ov_below": "proved"}
    proof = prove(Problem(two, "FACO"), ["ov_above"], constant="1/1000")["ov_above"]
    assert (proof.verdict, proof.why) == ("undecided", "proved up to h = 0. The curve is not explicit.")


# The balls are about the bounds that are plotted, and about the trajectory


def test_the_bounds_are_those_of_growth_bounds():
    """What cancels in float64 is the rise above the start, so that is allowed its rounding."""
    names = set()
    log_t, rise = np.array([-5.0, 3.0, 12.0, 700.0]), np.array([0.5, 2.0, 11.0, 650.0])
    for problem in some_problems(2, 24, (math.inf, 30.0)):
        mu_ov = problem.constants.mu_ov_0 + rise
        plotted = growth_bounds(problem, log_t, mu_ov)
        for k, u in enumerate(mu_ov):
            proved = bound_balls(problem, float(log_t[k]), float(u))
            assert list(proved) == list(plotted)
            for name, bound in plotted.items():
                assert (bound.value is None) == (proved[name] is None)
                if bound.value is not None and proved[name] < 1e300:
                    value = float(proved[name])
                    assert bound.value[k] == pytest.approx(value, rel=1e-12, abs=1e-12), (name, problem)
                    names.add(name)
    assert names == set(FORMS) - {RATE}


@pytest.mark.parametrize("kind", KINDS)
def test_the_curve_is_the_trajectory(kind):
    """As certified in another variable by another quadrature."""
    problem = Problem(OrthogonalSetting(4, 5, 2, 3, math.inf, 3), kind, LearningRates(0.7, 2.0))
    for place in (Fraction(1, 2**10), Fraction(2)):
        with working(128):
            clock = Clock(Line(problem))
            time, state, mu_qk = clock(place), clock.line.at(place), clock.line.mu_qk(place)
            assert time.rad() < 1e-8 * time
        log_t = time.log()
        ends = [end.fmpq() for end in (log_t.lower(), log_t.upper())]
        certified = certify(problem, at_log_time=[Fraction(int(q.p), int(q.q)) for q in ends])
        for name, here in (("mu_qk", mu_qk), ("mu_ov", state.mu_ov), ("alpha", state.alpha)):
            before, after = getattr(certified, name)
            assert before < here < after
            assert after - before < 1e-7 * here


def test_inverse_and_slope_belong_to_the_bound():
    """The bound at T is the state; the range of the slope holds the quotient of differences of X or t and T.

    All are balls: they must not be disjoint. Over 2^-14 of h ranges are narrow, most quotients well known.
    """
    known = dict.fromkeys(FORMS, 0)
    for problem in some_problems(3, 16):
        with working(200):
            clock = Clock(Line(problem))
            line = clock.line
            for name, form in FORMS.items():
                if not form.scope(line):
                    continue
                statement = Statement(name, clock, Fraction(1))
                for h in (Fraction(1, 64), Fraction(3, 4), Fraction(5)):
                    more, less = statement.sides(h)
                    state = line.at(h).mu_ov if statement.of_ov else line.mu_qk(h)
                    needed = more if form.below else less
                    assert abs(float(form.bound(line, needed) / state) - 1) < 1e-30, name
                    for last in (h * (1 + Fraction(1, 2**14)), 2 * h):
                        low, high = statement.slope(h, last)
                        more_there, less_there = statement.sides(last)
                        quotient = ((more_there - more) / (less_there - less)).log()
                        assert not quotient < low, (name, problem)
                        assert not quotient > high, (name, problem)
                        assert last == 2 * h or high - low < 0.01 * (1 + line.at(h).mu_ov), name
                        known[name] += float(quotient.rad()) < 1e-3
    assert min(known.values()) >= 12, known


# What is wrong


def crossing(violation) -> tuple[float, float]:
    return float(violation.kept_to.mu_qk), float(violation.at.mu_qk)


@pytest.mark.parametrize("ratio", ["1/100", 1, 100])
def test_log_squared_is_no_rate(ratio):
    """mu_QK >= .5 gamma mu_OV^2/(1 + rho) holds until 2 (1 + rho) g = g + rho (e^g - 1), and fails there."""
    problem = Problem(rates=LearningRates(ratio=ratio))
    proof = prove(problem, [RATE], constant="1/2")[RATE]
    violation = proof.violation
    assert proof.verdict == "refuted"
    rho = mpmath.mpf(5) / 50
    root = mpmath.findroot(lambda g: g + rho * mpmath.expm1(g) - 2 * (1 + rho) * g, 4)
    low, high = crossing(violation)
    assert low < root < high < low * (1 + 1e-7)
    assert violation.by > 0
    assert violation.kept_to.log_t < violation.at.log_t
    gamma = float(Fraction(ratio)) * 50 * 19 / (20 * 50 * 50) / 2
    u, g = float(violation.at.mu_ov), float(violation.at.mu_qk)
    assert float(violation.by) == pytest.approx(0.5 * gamma * u**2 / (1 + float(rho)) - g, abs=1e-12)
    assert prove(problem, [RATE], constant="1/1000")[RATE].verdict == "refuted"


@pytest.mark.parametrize("kind", ["CACO", "CAFO"])
def test_the_linear_bound_halved_fails_at_once(kind):
    proof = prove(Problem(parameterization=kind), ["qk_above_linear"], constant="1/2")["qk_above_linear"]
    violation = proof.violation
    assert (proof.verdict, violation.at_once) == ("refuted", True)
    assert violation.kept_to.mu_qk == 0
    assert violation.kept_to.log_t == arb.neg_inf()
    # it fails everywhere up to that place: X < 2 (1 + rho) h
    for h in np.linspace(0, float(violation.at.mu_qk), 50)[1:]:
        assert h + 0.1 * np.expm1(h) < 2.2 * h


@pytest.mark.parametrize("kind", ["FACO", "FAFO"])
def test_the_secant_bound_halved_fails_where_the_secant_falls_below(kind):
    g0, rho = mpmath.mpf(0.01), mpmath.mpf(1) / 10
    proof = prove(Problem(parameterization=kind), ["qk_above_secant"], constant="1/2")["qk_above_secant"]

    def secant(g):
        return (mpmath.log(g / g0) + rho * (mpmath.ei(g) - mpmath.ei(g0))) / (g - g0)

    lowest = mpmath.findroot(lambda g: mpmath.diff(secant, g), 3)
    least = secant(lowest)
    root = mpmath.findroot(lambda g: secant(g) - 2 * least, (g0 + 1, lowest), solver="anderson")
    assert proof.verdict == "refuted"
    low, high = crossing(proof.violation)
    assert low < root < high < low * (1 + 1e-7)
    with working(128):
        enclosed = Line(Problem(parameterization=kind)).least_slope
    assert float(enclosed) == pytest.approx(float(least), rel=1e-13)
    assert enclosed.rad() < 1e-20
    # touched: any smaller constant fails
    almost = prove(Problem(parameterization=kind), ["qk_above_secant"], constant="0.999999")[
        "qk_above_secant"
    ]
    assert almost.verdict == "refuted"
    assert float(almost.violation.kept_to.mu_qk) == pytest.approx(float(lowest), rel=1e-2)


def test_a_late_violation_in_time_is_found():
    """No inequality between rates decides this one: the bound's time is first ahead, then behind."""
    problem = Problem(parameterization="CAFO")
    proof = prove(problem, ["ov_above_balanced"], constant="1/1000")["ov_above_balanced"]
    violation = proof.violation
    assert (proof.verdict, violation.at_once) == ("refuted", False)
    for place, fails in ((violation.kept_to, False), (violation.at, True)):
        log_t = float(place.log_t)
        state = certify(problem, at_log_time=log_t)
        bound = bound_balls(problem, log_t + math.log(1e-3))["ov_above_balanced"]
        assert bool(state.mu_ov[0] > bound) == fails
    assert float(state.mu_ov[0] - bound) == pytest.approx(float(violation.by), rel=1e-3)


def test_wrong_constants_agree_with_the_trajectory():
    """Where a bound with a wrong constant is proved, float64 sees no violation; where refuted, one there."""
    seen = {"proved": 0, "refuted": 0}
    for i, problem in enumerate(some_problems(5, 12)):
        factor = Fraction(1, (3, 30, 300)[i % 3])
        with working(128):
            line = Line(problem)
            places = [Fraction(k**4, 2**16) for k in range(1, 60)]
            for name, form in FORMS.items():
                if name.startswith("ov") or not form.scope(line):
                    continue
                proof = prove(problem, [name], constant=1 / factor if form.below else factor)[name]
                sides = [Statement(name, Clock(line), proof.constant).sides(h) for h in places]
                failing = [h for h, (more, less) in zip(places, sides) if more < less]
                assert proof.verdict in seen
                seen[proof.verdict] += 1
                if proof.verdict == "proved":
                    assert not failing
                else:
                    first = proof.violation.kept_to.mu_qk - line.g0
                    assert all(ball_of >= first for ball_of in map(arb, map(float, failing)))
                    assert proof.violation.by > 0
    assert min(seen.values()) > 0


# What cannot be decided, and what must be noticed


def test_a_small_allowance_leaves_it_undecided():
    proof = prove(Problem(), ["qk_above_log"], constant="1/2", intervals=3)["qk_above_log"]
    assert (proof.verdict, proof.intervals, proof.bits, proof.violation) == ("undecided", 3, 1024, None)
    assert proof.why.startswith("3 intervals prove it only up to h = ")
    assert prove(Problem(), ["qk_above_log"], constant="1/2")["qk_above_log"].verdict == "refuted"


def test_a_wrong_least_slope_is_noticed(monkeypatch):
    right = Line.least_slope.func
    wrong = functools.cached_property(lambda line: 1.01 * right(line))
    wrong.__set_name__(Line, "least_slope")
    monkeypatch.setattr(Line, "least_slope", wrong)
    assert prove(Problem(parameterization="FACO"))["qk_above_secant"].verdict == "refuted"


def test_a_wrong_delay_is_noticed(monkeypatch):
    """d is the largest (1 - alpha) u when u0 = 0; a hundredth of it is too little at a small ratio."""
    problem = Problem(rates=LearningRates(ratio="1/100"))
    right = _slopes.delay
    assert prove(problem, ["ov_above_saturated"])["ov_above_saturated"].verdict == "proved"
    monkeypatch.setattr(_slopes, "delay", lambda line: right(line) / 100)
    proof = prove(problem, ["ov_above_saturated"])["ov_above_saturated"]
    assert proof.verdict == "refuted"
    assert proof.violation.by > 0


def test_the_lemma_on_diffuse_attention_bounds_it():
    """At many places, and as sharply as it can: halved it would be wrong."""
    closest = 0.0
    for problem in some_problems(6, 24):
        with working(128):
            line = Line(problem)
            places = [Fraction(k**4, 2**16) for k in range(40)]
            diffuse = [line.at(h).rest * line.at(h).mu_ov for h in places]
            for k, h in enumerate(places):
                bound = line.most_diffuse(h) * (1 + arb(2) ** -100)
                assert all(later <= bound for later in diffuse[k:])
                closest = max(closest, *(float(later / bound) for later in diffuse[k:]))
    assert closest > 0.99


# Arguments and documents


def test_documents_are_strict_json():
    proof = prove(Problem(), ["qk_above_linear"], constant="1/2")["qk_above_linear"]
    document = json.loads(json.dumps(proof.document(), allow_nan=False))
    assert document["constant"] == "1/2"
    assert document["violation"]["kept_to"] == {
        "mu_qk": {"mid": "0", "radius": "0"},
        "mu_ov": {"mid": "0", "radius": "0"},
        "log_t": None,
    }
    assert float(document["violation"]["by"]["mid"]) > 0
    assert prove(Problem())["ov_below"].document()["violation"] is None


def test_numbers_are_exact():
    """0.3 as a decimal and as its binary value are different problems, and both are proved."""
    starts = [Start(mu_ov=x, mu_qk=x) for x in ("0.3", 0.3)]
    lines = []
    for start in starts:
        problem = Problem(parameterization="FAFO", start=start)
        assert set(verdicts(prove(problem)).values()) == {"proved"}
        with working(128):
            lines.append(Line(problem))
    assert not lines[0].u0.overlaps(lines[1].u0)


@pytest.mark.parametrize("bad", [{"names": ["ov_abov"]}, {"constant": 0}, {"constant": "-1"}])
def test_bad_arguments(bad):
    with pytest.raises(ArgumentError, match=f"Argument `{next(iter(bad))}` must be"):
        prove(Problem(), **bad)
