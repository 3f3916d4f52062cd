"""The population gradient with respect to single matrix entries, at any point of the symmetric manifold.

There every distinct token of a class has the same entries and so has every common token. The gradient by one
entry follows from the loss on one sequence in which one position is probed, times the probability that the
entry takes part in a sequence: the rest is symmetry.
"""

from __future__ import annotations

import dataclasses
import functools

import sympy as sp

from qkflow.symbolic.loss import Loss, Score, Tokens, attention, sequence_loss
from qkflow.symbolic.symbols import B, Expr, M, Q, alpha, b, m, mu_OV, mu_QK, n, z


@dataclasses.dataclass(frozen=True)
class ManifoldGradient:
    """Loss, attention and gradient entries on the manifold, in alpha, z = alpha mu_OV and the numbers.

    Attributes:
        loss: in z.
        attention: attention mass on the distinct tokens, as a function of mu_QK.
        right: dL/dW_OV[c, d], d a distinct token of class c.
        wrong: dL/dW_OV[c', d], c' another class.
        common_value: dL/dW_OV[c, k], k a common token.
        distinct_score: dL/dW_QK[d, q], d and q of one class (of two classes they never meet: 0).
        common_score: dL/dW_QK[k, q].
    """

    loss: Expr
    attention: Expr
    right: Expr
    wrong: Expr
    common_value: Expr
    distinct_score: Expr
    common_score: Expr


def manifold_gradient(score: Score, loss: Loss) -> ManifoldGradient:
    """Differentiate the loss on one sequence by probed entries and average over the population.

    Raises:
        ValueError: when what comes out is no function of mu_OV and mu_QK alone.
    """
    s_d, s_k, v_wrong, v_common = sp.symbols("s_d s_k v_wrong v_common", real=True)
    s_d_probe, s_k_probe, right, wrong, common_right, common_wrong = probes = sp.symbols("p:6", real=True)
    # Class groups: the right one, one wrong class that is probed, the other wrong classes.
    counts = (sp.Integer(1), sp.Integer(1), M - 2)
    distinct, common = (v_wrong + mu_OV, v_wrong, v_wrong), (v_common,) * 3
    probed = [
        Tokens(m - 1, s_d, distinct),
        Tokens(sp.Integer(1), s_d_probe, (right, wrong, v_wrong)),
        Tokens(n - 1, s_k, common),
        Tokens(sp.Integer(1), s_k_probe, (common_right, common_wrong, v_common)),
    ]
    at_manifold = dict(zip(probes, (s_d, s_k, *distinct[:2], *common[:2]), strict=True))

    # mu_QK is the gap of the two scores; alpha replaces it through the attention mass that it gives.
    unit = sp.Symbol("e^score_k", positive=True)
    gap = sp.Symbol("e^mu_QK", positive=True)
    exponentials = {sp.exp(score(s_d)): unit * gap, sp.exp(score(s_k)): unit}
    mass = attention([Tokens(m, s_d, distinct), Tokens(n, s_k, common)], score)[0].subs(exponentials)
    mass = sp.cancel(mass)
    (gap_of_alpha,) = sp.solve(mass - alpha, gap)

    @functools.cache
    def inner(part: Expr) -> Expr:
        # From the inside out, so that sums stay small, and each once: far faster than one cancellation.
        if isinstance(part, sp.exp):
            return sp.expand_power_exp(sp.exp(sp.expand(part.args[0]).subs(mu_OV, z / alpha)))
        return sp.cancel(part) if part.is_Add and not part.has(sp.exp) else part

    def tidy(expression: Expr) -> Expr:
        in_alpha = expression.subs(exponentials).subs(gap, gap_of_alpha)
        return sp.factor(sp.cancel(sp.bottom_up(in_alpha, inner)))

    one = sequence_loss(probed, counts, score, loss)

    def by(probe: Expr) -> Expr:
        return tidy(sp.diff(one, probe).subs(at_manifold))

    on_manifold = one.subs(at_manifold)
    logs = {
        x: -sp.log(sp.collect(sp.expand(tidy(1 / x.args[0])), sp.exp(-z))) for x in on_manifold.atoms(sp.log)
    }
    gradient = ManifoldGradient(
        loss=on_manifold.xreplace(logs),
        attention=mass.subs(gap, sp.exp(mu_QK)),
        right=by(right) * (1 / M) * (m / b),
        wrong=by(wrong) * (1 / M) * (m / b),
        common_value=sp.factor((by(common_right) + (M - 1) * by(common_wrong)) / M) * (n / B),
        distinct_score=by(s_d_probe) * (1 / M) * (1 / Q) * (m / b),
        common_score=by(s_k_probe) * (1 / M) * (1 / Q) * (n / B),
    )
    found = set().union(*(value.free_symbols for value in vars(gradient).values()))
    left = found & {s_d, s_k, v_wrong, v_common, unit, *probes}
    if left:
        raise ValueError(
            f"The gradient on the manifold still depends on {left}: the reduction does not close."
        )
    return gradient
