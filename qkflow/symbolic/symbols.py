"""The symbols of the derivation, spelt as in the paper."""

from __future__ import annotations

from typing import Any

import sympy as sp

Expr = Any
"""A SymPy expression (SymPy's own annotations are too loose to be checked)."""

M, b, m, n, B, Q = sp.symbols("M b m n B Q", positive=True)
beta, eta_OV, eta_QK, r, rho = sp.symbols("beta eta_OV eta_QK r rho", positive=True)
mu_OV, t = sp.symbols("mu_OV t", positive=True)
mu_QK, z = sp.symbols("mu_QK z", real=True)
alpha = sp.Symbol("alpha", positive=True)
lambda_OV, lambda_QK = sp.symbols("lambda_OV lambda_QK", real=True)
sigma, sigma_1, sigma_2, nu_1, nu_2 = sp.symbols("sigma sigma_1 sigma_2 nu_1 nu_2", positive=True)

CONSTANTS: dict[Expr, str] = {
    M: "n_classes",
    b: "n_distinct_vocab",
    m: "n_distinct",
    n: "n_common",
    B: "n_common_vocab",
    Q: "n_query_vocab",
    beta: "score_scale",
    eta_OV: "lr_ov",
    r: "ratio",
    lambda_OV: "imbalance_ov",
    lambda_QK: "imbalance_qk",
}
"""The name in `qkflow.setting.Constants` of each number of a problem."""
