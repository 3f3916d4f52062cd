"""Certified balls: what they must hold, what they must not, and how they are written."""

import json
import random
from fractions import Fraction

import pytest
from flint import arb, ctx

import qkflow
from benchmarks import certify as benchmark
from qkflow.cli import main
from qkflow.flow import _panels
from qkflow.flow._balls import Curve, working
from qkflow.flow.certify import FIELDS, RADIUS, _time_at, certify, decimal
from qkflow.flow.exact import solve_exact
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Parameterization, Problem, Start
from tests.published import END_POINTS
from tests.reference import Reference

ALL = list(Parameterization)


def interval(number):
    """The rational ends of what `decimal` writes."""
    written = decimal(number)
    mid, radius = Fraction(written["mid"]), Fraction(written["radius"])
    return mid - radius, mid + radius


# Containment


@pytest.mark.parametrize("k", range(12))
def test_an_independent_value_lies_in_the_ball_and_not_in_one_moved(k):
    """One setting of `make certify` for each parameterization and kind of target."""
    for n in range(k, 10_000, 12):
        result = benchmark.judge(n)
        if "beyond" not in result:
            assert benchmark.held(result), result
            return


def test_a_slightly_other_problem_is_seen():
    """A ratio that is wrong in the 22nd digit: the balls are narrow enough to exclude its values."""
    there = certify(Problem(rates=LearningRates(ratio=1 + Fraction(1, 10**22))), at_loss="1e-3")
    state = benchmark.values(Reference(Problem(), 60).solve("loss", Fraction(1, 1000)))
    here = certify(Problem(), at_loss="1e-3")
    for name in ("t", "mu_ov", "mu_qk", "alpha"):
        value = Fraction(str(state[name]))
        low, high = interval(getattr(here, name)[0])
        assert low <= value <= high
        low, high = interval(getattr(there, name)[0])
        assert not low <= value <= high


def time_at_12():
    trail = _panels.Trail(Curve(Problem()), arb(1))
    return _time_at(trail, arb(12), trail.state(arb(12)))


def test_what_is_cut_off_is_counted(monkeypatch):
    """With few terms and too small a bound on the others, the ball is wrong."""
    with working(128):
        true = time_at_12()
        bound = _panels._tail
        monkeypatch.setattr(_panels, "_tail", lambda *numbers: bound(*numbers) * arb(2) ** -100)
        assert time_at_12().overlaps(true)  # one term in two bits is more than enough
        ctx.cap = 12
        assert not time_at_12().overlaps(true)


def test_the_early_stretch_is_counted(monkeypatch):
    """Where the quadrature begins far too late, the ball is wide, and holds the time."""
    with working(128):
        true = time_at_12()
        begin, bound = _panels.Trail.clock, Curve.latest
        monkeypatch.setattr(_panels.Trail, "clock", lambda self, about: begin(self, about * arb(2) ** 110))
        late = time_at_12()
        assert late.contains(true)
        assert late.rad() > 1e-6 * true
        monkeypatch.setattr(Curve, "latest", lambda self, state: bound(self, state) / 100)
        assert not time_at_12().overlaps(true)


# Agreement


@pytest.mark.parametrize("parameterization", ALL)
def test_exact_and_certified_agree(parameterization):
    """To the documented accuracy of the exact solution, early and late."""
    for ratio in (0.01, 1.0, 100.0):
        problem = Problem(parameterization=parameterization, rates=LearningRates(ratio=ratio))
        times = (7.0, 14.0, 28.0, 690.0, 2e3, 1e4)
        certified = certify(problem, at_log_time=times)
        for k, time in enumerate(times):
            exact = solve_exact(problem, at_log_time=time)
            for name in ("mu_ov", "mu_qk", "alpha", "log_one_minus_alpha", "log_loss", "z"):
                true = float(getattr(certified, name)[k])
                assert abs(float(getattr(exact, name)[0]) - true) <= 1e-11 * abs(true), (ratio, time, name)


def test_a_start_far_below_zero():
    """An imbalanced circuit that rises through zero: mu_QK is flat for long, then steep."""
    setting = OrthogonalSetting(45, 1920, 427, 371, n_query_vocab=1608, score_scale=0.2476)
    start = Start(0.0, -2.676, 0.0, -2.921)
    problem = Problem(setting, "FACO", LearningRates(11.94, 0.002527), start)
    true = float(certify(problem, at_log_time=345).mu_ov[0])
    assert abs(float(solve_exact(problem, at_log_time=345.0).mu_ov[0]) - true) <= 1e-11 * true


def test_the_reference_table_to_all_digits():
    for ratio, row in END_POINTS.items():
        point = certify(Problem(rates=LearningRates(ratio=str(ratio))), at_loss="1e-4")
        for name, printed in zip(("mu_ov", "mu_qk", "alpha", "t"), row):
            low, high = interval(getattr(point, name)[0])
            assert f"{float(low):.15g}" == f"{float(high):.15g}" == f"{printed:.15g}"


# Numbers


def test_a_string_is_a_decimal_and_a_float_its_binary_value():
    def mu_qk(ratio, loss):
        return certify(Problem(rates=LearningRates(ratio=ratio)), at_loss=loss).mu_qk[0]

    decimals = mu_qk("0.1", "1e-4")
    assert decimals.overlaps(mu_qk(Fraction(1, 10), "1/10000"))
    assert not decimals.overlaps(mu_qk(0.1, "1e-4"))
    assert not decimals.overlaps(mu_qk("0.1", 1e-4))
    assert decimals.overlaps(mu_qk(0.1, 1e-4) + arb(0, 1e-14))


def test_what_was_asked_for_is_given_back():
    half, tiny = certify(Problem(), at_attention=["0.5", "1e-1"]).alpha
    assert half == arb(1) / 2
    assert (tiny * 10).contains(1)
    late = certify(Problem(), at_log_time=10_000)
    assert late.log_t[0] == 10_000
    assert certify(Problem(), at_time=1).log_t[0] == 0
    # mu_QK = 0 on the way up: no relative radius would do, but the target tells it exactly
    passing = certify(Problem(start=Start(0, -1)), at_attention=Fraction(1, 11))
    assert passing.mu_qk[0] == 0
    assert passing.t[0] > 0


@pytest.mark.parametrize("parameterization", ALL)
def test_time_zero_is_the_start(parameterization):
    problem = Problem(parameterization=parameterization)
    for point in (certify(problem, at_time=0), certify(problem, at_log_time="-inf")):
        assert point.t[0] == 0
        assert point.log_t[0] == arb.neg_inf()
        assert point.mu_ov[0] == problem.start.mu_ov
        assert point.mu_qk[0] == problem.start.mu_qk
    if parameterization is Parameterization.CACO:
        assert certify(problem, at_attention=Fraction(1, 11)).t[0] == 0


EDGES = [
    (Problem(), {"at_log_time": -10_000}),
    (Problem(), {"at_log_time": "1e9"}),
    (Problem(), {"at_loss": "1e-4000"}),
    (Problem(), {"at_attention": 1 - Fraction(1, 10**40)}),
    (Problem(), {"at_attention": Fraction(1, 11) + Fraction(1, 10**40)}),
    (Problem(parameterization="FAFO", start=Start(Fraction(1, 10**60), "1e-60")), {"at_loss": "1e-3"}),
    (Problem(start=Start(0, -700)), {"at_loss": "1e-3"}),
    (Problem(start=Start(0, 700)), {"at_loss": "1e-3"}),
    (
        Problem(OrthogonalSetting(n_common_vocab=60), "FACO", start=Start(3, -2, imbalance_qk="0.7")),
        {"at_log_time": 30},
    ),
]


@pytest.mark.parametrize(("problem", "target"), EDGES, ids=range(len(EDGES)))
def test_far_ends(problem, target):
    point = certify(problem, **target)
    for name in FIELDS:
        number = getattr(point, name)[0]
        assert number.rad() <= abs(number).lower() * arb("1e-20")
        assert decimal(number)


# Writing


def test_what_is_written_holds_the_ball():
    """Exactly, in rational numbers, and with at most a small part more."""
    random.seed(0)
    for bits in (30, 128, 700):
        with working(bits):
            for _ in range(200):
                mid = arb(random.getrandbits(bits) - 2 ** (bits - 1)) * arb(2) ** random.randint(-1500, 1500)
                number = arb(mid, abs(mid) * arb(2) ** -random.randint(1, bits) * random.randint(0, 1))
                man, exponent = number.mid().man_exp()
                middle = Fraction(int(man)) * Fraction(2) ** int(exponent)
                man, exponent = number.rad().man_exp()
                radius = Fraction(int(man)) * Fraction(2) ** int(exponent)
                low, high = interval(number)
                assert low <= middle - radius
                assert middle + radius <= high
                assert high - low <= Fraction(21, 10) * radius + abs(middle) / 10**58


def test_the_document_is_strict_json_and_narrow(capsys):
    words = "solve --method certify --ratio .1 --at-log-time -inf 1e4 --parameterization FACO"
    assert main(words.split()) == 0
    table = capsys.readouterr().out
    assert main([*words.split(), "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert document["method"] == "certify"
    assert document["exact"]["ratio"] == "1/10"
    assert document["exact"]["mu_qk_0"] == "1/100"
    assert document["versions"]["python-flint"]
    assert document["stats"]["bits"]
    start, late = document["points"]
    assert start["log_t"] is None
    assert start["t"] == {"mid": "0", "radius": "0"}
    assert set(late) == set(FIELDS)
    for number in late.values():
        assert Fraction(number["radius"]) <= RADIUS * abs(Fraction(number["mid"]))
        assert number["mid"][:20] in table


def test_without_a_target_fifty_losses():
    points = qkflow.solve(method="certify")
    assert len(points.t) == 50
    assert 0 < float(points.t[0]) < 1e-6
    assert points.loss[-1].overlaps(arb("1e-4") + arb(0, 1e-18))


# Refusals


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"at_loss": 0}, "`at_loss` must be positive, but is 0."),
        ({"at_loss": "3"}, "`at_loss` must be at most the start's (2.9957"),
        ({"at_loss": "nan"}, "`at_loss` must be a finite number"),
        ({"at_loss": "abc"}, "`at_loss` must be a finite number, but is 'abc'."),
        ({"at_time": -1}, "`at_time` must be at least 0, but is -1."),
        ({"at_log_time": "inf"}, "`at_log_time` must be a finite number"),
        ({"at_attention": "0.05"}, "`at_attention` must be at least the start's (0.0909"),
        ({"at_attention": 1}, "`at_attention` must be below 1, but is 1."),
        ({}, "Exactly one of"),
    ],
)
def test_questions_without_an_answer(target, words):
    with pytest.raises(ArgumentError) as caught:
        certify(Problem(), **target)
    assert words in str(caught.value)


def test_arrays_are_refused():
    with pytest.raises(ArgumentError, match="`ratio` must be one number for a certificate"):
        certify(Problem(rates=LearningRates(ratio=[1.0, 2.0])), at_loss=1e-3)
