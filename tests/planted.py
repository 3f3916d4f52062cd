"""Errors of theory, planted in the derivation: what is printed from it must be found wrong."""

import dataclasses

import sympy as sp

from qkflow.symbolic import Derivation
from qkflow.symbolic.symbols import M, Q, b, eta_OV, eta_QK, lambda_OV, m, mu_OV, n


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
    "eta_QK and eta_OV swapped": lambda d: _altered(
        d, "drive_ov drive_qk", lambda x: x.subs({eta_QK: eta_OV, eta_OV: eta_QK}, simultaneous=True)
    ),
    "sign of a gradient": lambda d: _altered(d, "drive_qk", lambda x: -x),
}
"""The planted errors by name: each takes a derivation to a wrong one."""
