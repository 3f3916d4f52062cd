"""First integral and closed forms of each parameterization, by separation of the derived flow."""

from __future__ import annotations

import dataclasses

import sympy as sp

from qkflow.setting import Parameterization
from qkflow.symbolic.derivation import Derivation
from qkflow.symbolic.symbols import (
    B,
    Expr,
    lambda_QK,
    m,
    mu_OV,
    mu_QK,
    n,
    nu_1,
    nu_2,
    rho,
    sigma,
    sigma_1,
    sigma_2,
)

mu_OV_0, sigma_1_0, sigma_2_0 = sp.symbols("mu_OV_0 sigma_1_0 sigma_2_0", positive=True)
K = sp.Symbol("K", real=True)
Delta = sp.Symbol("Delta", nonnegative=True)


@dataclasses.dataclass(frozen=True)
class ClosedForm:
    """F_QK(mu_QK) - F_QK(mu_QK_0) = k (F_OV(mu_OV) - F_OV(mu_OV_0)), solved for what it can be solved for.

    A factorized QK circuit is taken with B infinite; `weight_qk` and `f_qk` hold mu_QK > 0 there, and `f_qk`
    no imbalance. `rho` stands for m/n.

    Attributes:
        rate_ov: d mu_OV/dt in alpha, z.
        rate_qk: d mu_QK/dt in alpha, z.
        k: the constant of the first integral.
        weight_qk: dF_QK/d mu_QK.
        weight_ov: dF_OV/d mu_OV.
        f_qk: F_QK.
        f_ov: F_OV.
        mu_ov: mu_OV as a function of Delta = (F_QK(mu_QK) - F_QK(mu_QK_0)) / k.
        mu_qk: mu_QK as a function of K = k (F_OV - F_OV(start)) + F_QK(start); None for a factorized QK.
        sigma_2: of a balanced factorized QK with finite B, as a function of sigma_1; None for a collapsed QK.
    """

    rate_ov: Expr
    rate_qk: Expr
    k: Expr
    weight_qk: Expr
    weight_ov: Expr
    f_qk: Expr
    f_ov: Expr
    mu_ov: Expr
    mu_qk: Expr | None
    sigma_2: Expr | None


def _positive(expression: Expr) -> Expr:
    """The expression where mu_QK > 0."""
    stand_in = sp.Symbol("mu_QK", positive=True)
    return expression.subs(mu_QK, stand_in).subs(stand_in, mu_QK)


def infinite_line(derivation: Derivation) -> tuple[Expr, Expr, Expr]:
    """Score gap of the QK direction, singular amplitude and rescaling as functions of mu_QK, for B infinite.

    Both modes have one singular value then.
    """
    d = derivation
    gap, nu_1, nu_2 = (x.subs(1 / B, 0) for x in (d.line_gap, *d.singular_values_qk))
    if sp.simplify(nu_1 - nu_2) != 0:
        raise ArithmeticError("The two modes differ without a common vocabulary.")
    amplitude = nu_2 * mu_QK / gap
    return gap, amplitude, sp.sqrt(sp.expand(d.rescaling_qk.subs(sigma, amplitude) ** 2))


def closed_form(derivation: Derivation, parameterization: Parameterization) -> ClosedForm:
    """Integrate and solve the separated flow of one parameterization.

    Raises:
        ArithmeticError: when what was integrated does not give the flow back.

    >>> from qkflow.symbolic import derive
    >>> closed_form(derive(), Parameterization.CACO).mu_qk
    K - LambertW(rho*exp(K))
    """
    d = derivation
    rescaling_ov = d.rescaling_ov if parameterization.ov_factorized else sp.Integer(1)
    if parameterization.qk_factorized:
        gap_rate, _, rescaling_qk = infinite_line(d)
    else:
        gap_rate, rescaling_qk = d.line_gap, sp.Integer(1)
    rate_ov, rate_qk = d.drive_ov * rescaling_ov, gap_rate * d.drive_qk * rescaling_qk

    separation, of_ov, of_qk = d.separated
    k = sp.factor_terms(separation * gap_rate)
    of_qk = of_qk.subs(m, rho * n)
    weight_qk, weight_ov = of_qk / rescaling_qk, of_ov / rescaling_ov
    f_ov = sp.simplify(sp.integrate(weight_ov, mu_OV))
    u = sp.Symbol("mu_QK", positive=parameterization.qk_factorized, real=True)
    f_qk = sp.integrate(sp.expand(weight_qk.subs(lambda_QK, 0).subs(mu_QK, u)), u).subs(u, mu_QK)
    f_qk = sp.factor_terms(f_qk)

    roots = sp.solve(f_ov - f_ov.subs(mu_OV, mu_OV_0) - Delta, mu_OV)
    (mu_ov,) = (x for x in roots if sp.simplify(x.subs(Delta, 0) - mu_OV_0) == 0)
    mu_qk = two = None
    if parameterization.qk_factorized:
        flow_1, flow_2 = (
            sp.integrate(1 / (x * d.rescaling_qk.subs({sigma: s, lambda_QK: 0})), s)
            for x, s in ((nu_1, sigma_1), (nu_2, sigma_2))
        )
        tie = flow_1 - flow_1.subs(sigma_1, sigma_1_0) - flow_2 + flow_2.subs(sigma_2, sigma_2_0)
        (two,) = sp.solve(tie, sigma_2)
        two = sigma_2_0 * sp.simplify(two / sigma_2_0)
    else:
        (mu_qk,) = sp.solve(f_qk - K, mu_QK)

    along = sp.diff(f_qk, mu_QK) * rate_qk.subs(lambda_QK, 0) - k * sp.diff(f_ov, mu_OV) * rate_ov
    along = d.explicit(along.subs(rho, m / n))
    if sp.simplify(_positive(along) if parameterization.qk_factorized else along) != 0:
        raise ArithmeticError("The first integral is not conserved by the flow.")
    return ClosedForm(rate_ov, rate_qk, k, weight_qk, weight_ov, f_qk, f_ov, mu_ov, mu_qk, two)
