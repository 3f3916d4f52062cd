"""The leading orders have the stated constants, and what is left beside them vanishes as it is proved to."""

import math

import mpmath
import numpy as np
import pytest

from qkflow.flow._relation import Relation
from qkflow.flow.exact import solve_exact
from qkflow.flow.rates import attention_gap, beyond, leading, remainders
from qkflow.flow.sharpness import sharpness_map
from qkflow.setting import LearningRates, OrthogonalSetting, Parameterization, Problem, Start
from qkflow.verify.late import LOG_TIMES

M, B_, m, n, Q, BETA, ETA, R = 4, 5, 2, 3, 3, 0.3, 0.7, 2.0
SETTING = OrthogonalSetting(M, B_, m, n, math.inf, Q, BETA)
TWO_MODES = OrthogonalSetting(M, B_, m, n, 7, Q, BETA)
RATES = LearningRates(ETA, R)


def problem(kind: str, setting: OrthogonalSetting = SETTING, start: Start | None = None) -> Problem:
    return Problem(setting, kind, RATES, start or Start.default(Parameterization(kind)))  # type: ignore[arg-type]


UNEVEN = {
    "two modes": problem("FACO", TWO_MODES, Start(0.2, 0.05)),
    "two modes, imbalanced": problem("FAFO", TWO_MODES, Start(0.1, -2.0, 0.6, -0.4)),
    "imbalanced": problem("FAFO", SETTING, Start(0.1, -2.0, 0.6, -0.4)),
    "collapsed, finite": problem("CAFO", TWO_MODES, Start(0.5, -1.0, 0.3)),
}


def test_constants_in_plain_arithmetic():
    """Q is not b, the score scale is not 1; with B finite, kappa (collapsed) or nu_1 (factorized) changes."""
    for big, setting in ((math.inf, SETTING), (7.0, TWO_MODES)):
        kappa = (1 / B_ + 1 / big) / (M * Q)
        gamma = R * B_ * kappa * BETA**2 * (M - 1) / 2
        a_gamma = 2 * math.sqrt(Q / B_ + M * Q / big) * R * B_ * BETA * (M - 1) / (M * Q) / 2
        if big == math.inf:
            assert a_gamma == pytest.approx(2 * math.sqrt(B_ * Q) / BETA * gamma, rel=1e-14)
        found = {kind: leading(problem(kind, setting)) for kind in ("CACO", "FACO", "CAFO", "FAFO")}
        expected = {
            "CACO": gamma,
            "FACO": a_gamma,
            "CAFO": gamma / math.sqrt(B_),
            "FAFO": a_gamma / math.sqrt(B_),
        }
        for kind, value in expected.items():
            order = found[kind]
            assert order.gamma == pytest.approx(value, rel=1e-13), kind
            assert (order.power_qk, order.power_ov) == (kind[0] == "F", 1 if kind[2] == "F" else 2)
            assert order.log_rho == pytest.approx(math.log(m / n))
            pace = 2 * ETA / math.sqrt(B_) if kind[2] == "F" else ETA / B_
            assert order.log_pace == pytest.approx(math.log(pace))
            log_t, g = 100.0, 3.0
            rest = order.log_rest(log_t, g)
            assert rest == pytest.approx(-math.log(value * g**order.power_qk * log_t**order.power_ov))
            assert order.mu_qk(log_t, g) == pytest.approx(-rest - math.log(m / n))


def test_the_first_integral_is_that_of_the_exact_route():
    """Solved anew in logarithms; 1e-9 is what the conditioning of mu_OV in mu_QK leaves here."""
    for case in (*UNEVEN.values(), problem("FACO"), problem("CACO")):
        exact = solve_exact(case, at_log_time=LOG_TIMES)
        relation = Relation(case)
        assert np.allclose(relation.mu_ov(exact.mu_qk), exact.mu_ov, rtol=1e-9, atol=0), case
        area = relation.log_x(exact.mu_qk) - math.log(relation.separation)
        assert np.allclose(np.log(relation.area(exact.mu_ov)), area, atol=2e-9)


def test_the_defect_against_thirty_digits():
    relation = Relation(problem("FACO"))
    g, a = np.array([0.011, 0.1, 1.0, 20.0, 600.0]), 2 * math.sqrt(B_ * Q) / BETA
    # S = a mu_QK up to the factor that tau carries, which cancels in S I
    for x, defect in zip(g, relation.at(g).defect, strict=True):
        with mpmath.workdps(30):
            whole = mpmath.log(x / mpmath.mpf(0.01)) + (mpmath.ei(x) - mpmath.ei(mpmath.mpf(0.01))) * m / n
            expected = mpmath.log(x * whole * n / m) - x
        assert defect == pytest.approx(float(expected), abs=1e-12), (x, a)


def test_the_second_mode_fades_slowly():
    """S / (2 nu_1 mu_QK) -> 1 as mu_QK^-(1 - nu_2/nu_1): neither nu_2 nor kappa is the constant."""
    relation = Relation(UNEVEN["two modes"])
    nu_1, nu_2 = math.sqrt(Q / B_ + M * Q / 7), math.sqrt(Q / B_)
    g = 10.0 ** np.arange(2, 21)
    off = 1.0 - relation.at(g).slope / (2 * nu_1 * g)
    assert (off > 0).all()
    assert (np.diff(off) < 0).all()
    power = np.diff(np.log(off)) / np.diff(np.log(g))
    assert power[-1] == pytest.approx(-(1 - nu_2 / nu_1), rel=1e-2)
    value, bound = beyond(UNEVEN["two modes"], [1e2, 1e4, 1e6])
    assert (abs(value) <= bound).all()
    assert (np.diff(bound) < 0).all()


@pytest.mark.parametrize("name", ["CACO", "FACO", "CAFO", "FAFO", *UNEVEN])
def test_beyond_any_horizon_the_remainder_is_bounded(name):
    case = UNEVEN.get(name) or problem(name)
    g = np.array([1e2, 1e3, 1e4, 1e6])
    value, bound = beyond(case, g)
    assert (abs(value) <= bound + 1e-12 * g).all()
    assert bound[-1] < 1e-5 or name.startswith("two modes")


def test_every_remainder_lies_in_its_interval_in_uneven_circuits():
    for name, case in UNEVEN.items():
        for quantity, remainder in remainders(solve_exact(case, at_log_time=LOG_TIMES)).items():
            assert remainder.outside().max() <= 1.0, (name, quantity)
            assert remainder.value == pytest.approx(remainder.next, rel=0.02, abs=2e-5), (name, quantity)


def test_the_gap_bound_in_plain_arithmetic():
    start = Start(0.3, 0.4)
    rho0 = m / n * math.exp(0.4)
    a0, k = rho0 / (1 + rho0), R * (M - 1) / (M * Q) * BETA**2
    collapsed = (1 - a0) * 0.3 + 1 / (2 * math.sqrt(rho0 * k / 2))
    assert attention_gap(problem("CACO", SETTING, start)) == pytest.approx(collapsed, rel=1e-13)
    r_qk = 2 * math.sqrt(B_ * Q) * 0.4 / BETA
    balanced = (1 - a0) * 0.3 + 1 / (a0 * k / (2 * math.sqrt(B_)) * r_qk)
    assert attention_gap(problem("FAFO", SETTING, start)) == pytest.approx(balanced, rel=1e-13)


def test_the_gap_bound_holds_in_uneven_circuits():
    """On the whole curve: from close to the start until mu_QK = 600."""
    for case in (*UNEVEN.values(), problem("CACO"), problem("FAFO")):
        relation = Relation(case)
        g = relation.g0 + np.geomspace(1e-6, 600.0, 400)
        used = relation.mu_ov(g) / (1 + m / n * np.exp(g)) / attention_gap(case)
        assert 1e-3 < used.max() <= 1.0


def test_sharpness_at_equal_loss():
    """Calculated by hand for the derivation: 1 - alpha at loss 1e-4, factorized circuits started at .01."""
    setting = OrthogonalSetting(4, 5, 2, 3, math.inf, 3)
    drawn = sharpness_map(setting, [1.0, 10.0], [0.01], [1e-4])
    expected = {
        "CACO": (0.07101, 0.007617),
        "FACO": (0.001987, 0.0001186),
        "CAFO": (0.4606, 0.1563),
        "FAFO": (0.4214, 0.006778),
    }
    for kind, values in expected.items():
        assert np.exp(drawn.log_rest[kind]).ravel() == pytest.approx(values, rel=5e-4)
    assert drawn.orders.ravel().tolist() == ["FACO > CACO > FAFO > CAFO", "FACO > FAFO > CACO > CAFO"]
    # A start that is beyond the loss from the outset has no place in the map.
    assert sharpness_map(setting, [1.0], [20.0], [1e-4]).orders.tolist() == [[[""]]]


def test_crossings_of_the_order():
    """A factorized OV circuit is the sharper one while u0_F + sqrt(b) (u^2 - u0_C^2) < u."""
    start = Start(0.1, 0.1)
    for qk in "CF":
        one, other = (Relation(problem(f"{qk}A{ov}O", SETTING, start)) for ov in "CF")
        g = 0.1 + np.geomspace(1e-4, 8.0, 60)
        u, u_f = one.mu_ov(g), other.mu_ov(g)
        assert np.allclose(u_f, 0.1 + math.sqrt(B_) * (u**2 - 0.1**2), rtol=1e-9)
        assert ((u_f < u) == (u < 1 / math.sqrt(B_) - 0.1)).all()
        assert set(np.sign(u_f - u)) == {-1.0, 1.0}
    # The crossing of the QK circuits does not know the OV circuit.
    g = 0.01 + np.geomspace(1e-3, 8.0, 200)
    found = []
    for ov in "CF":
        one, other = (Relation(problem(f"{qk}A{ov}O", SETTING, Start(0.2, 0.01))) for qk in "CF")
        found.append(one.mu_ov(g) > other.mu_ov(g))
    assert (found[0] == found[1]).all()
    assert set(found[0]) == {False, True}
    assert (np.diff(found[0].astype(int)) >= 0).all()
