"""Errors of theory, planted in the derivation: what is printed from it must be found wrong."""

import dataclasses

import sympy as sp

from qkflow.symbolic import Derivation
from qkflow.symbolic.symbols import (
    B,
    M,
    Q,
    b,
    beta,
    eta_OV,
    eta_QK,
    lambda_OV,
    lambda_QK,
    m,
    mu_OV,
    n,
    sigma,
)


def _altered(derivation: Derivation, names: str, change) -> Derivation:
    return dataclasses.replace(derivation, **{x: change(getattr(derivation, x)) for x in names.split()})


PLANTED = {
    "kappa doubled": lambda d: _altered(d, "drive_qk", lambda x: 2 * x),
    "M - 1 replaced by M": lambda d: _altered(d, "loss drive_ov drive_qk", lambda x: x.subs(M - 1, M)),
    "Q dropped from kappa": lambda d: _altered(d, "drive_qk", lambda x: x.subs(Q, 1)),
    "m/n inverted": lambda d: _altered(d, "attention", lambda x: x.subs({m: n, n: m}, simultaneous=True)),
    "b for sqrt(b) in R": lambda d: _altered(
        d, "rescaling_ov", lambda x: sp.sqrt(lambda_OV**2 + 4 * b**2 * mu_OV**2)
    ),
    "R = 1 in a factorized circuit": lambda d: _altered(
        d, "rescaling_ov rescaling_qk", lambda x: sp.Integer(1)
    ),
    "imbalance dropped from R": lambda d: _altered(
        d, "rescaling_ov rescaling_qk", lambda x: x.subs({lambda_OV: 0, lambda_QK: 0})
    ),
    "R of the product, not of its square root": lambda d: _altered(
        d, "rescaling_qk", lambda x: sp.sqrt(lambda_QK**2 + sigma**2)
    ),
    "eta_QK and eta_OV swapped": lambda d: _altered(
        d, "drive_ov drive_qk", lambda x: x.subs({eta_QK: eta_OV, eta_OV: eta_QK}, simultaneous=True)
    ),
    "sign of a gradient": lambda d: _altered(d, "drive_qk", lambda x: -x),
    "common keys that do not learn": lambda d: _altered(d, "line_gap", lambda x: x.subs(B, sp.oo)),
    "score scale dropped": lambda d: _altered(d, "drive_qk line_gap gap", lambda x: x.subs(beta, 1)),
}
"""The planted errors by name: each takes a derivation to a wrong one."""
