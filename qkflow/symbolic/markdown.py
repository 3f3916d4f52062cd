"""The derivation as a person reads it: Markdown with LaTeX, its formulas printed from the expressions."""

from __future__ import annotations

import re

import sympy as sp

from qkflow.setting import Parameterization
from qkflow.symbolic import integral
from qkflow.symbolic.derivation import Derivation, derive
from qkflow.symbolic.integral import closed_form, infinite_line
from qkflow.symbolic.symbols import B, Expr, Q, b, lambda_QK, m, mu_OV, n, rho

COMMON = r"""
## Setting

There are $M$ equally likely classes. Class $c$ has $b$ distinct tokens $D_c$ and $Q$ query tokens $Q_c$;
$B$ common tokens serve all classes. A sequence holds $m$ tokens of its class's $D_c$ and $n$ common tokens,
drawn symmetrically, and a query from $Q_c$, which selects but is not attended. Embeddings are orthonormal.
$\eta_{OV}$ and $\eta_{QK}$ are the learning rates, $r = \eta_{QK} / \eta_{OV}$. No two of these numbers are
taken to be equal.

## Loss

Token $j$ scores, with $w_{jq} = x_j^\top W_{QK} x_q$,

$$
s_j = <score>
$$

and is attended with mass $a_j$, the softmax of the scores; the logits are $W_{OV} \sum_j a_j x_j$. Where
the $M - 1$ wrong classes have one logit, the loss on a sequence is

$$
<loss_of_logits>
$$

$L$ is its mean over classes, queries and drawn tokens.

## Gradient on the symmetric manifold

On the symmetric manifold the distinct tokens of a class share their entries, and so do all common tokens.
Let $\mu_{QK}$ be the score of a distinct token less that of a common one, and $\mu_{OV}$ the entry of
$W_{OV}$ that joins a distinct token to its own class less the one that joins it to another. The distinct
tokens get the attention

$$
\alpha = <attention>,
$$

the right logit leads by $z = \alpha \mu_{OV}$, and the loss is

$$
L = <loss>
$$

To differentiate by one entry, change it in the loss on one sequence and average: a class comes up with
probability $1/M$, a query of the class with $1/Q$, a distinct token of the class with $m/b$, a common token
with $n/B$. For $d \in D_c$, $q \in Q_c$, another class $c'$ and a common token $k$:

$$
\frac{\partial L}{\partial W_{OV}[c, d]} = <right>, \qquad
\frac{\partial L}{\partial W_{OV}[c', d]} = <wrong>, \qquad
\frac{\partial L}{\partial W_{OV}[c, k]} = <common_value>
$$

$$
\frac{\partial L}{\partial W_{QK}[d, q]} = <distinct_score>, \qquad
\frac{\partial L}{\partial W_{QK}[k, q]} = <common_score>
$$

A distinct token never meets another class's query: there the gradient is 0.

## Two directions, two drives

So both gradients keep to fixed directions,

$$
-\eta_{OV} \frac{\partial L}{\partial W_{OV}} = G_{OV} D_{OV}, \qquad
-\eta_{QK} \frac{\partial L}{\partial W_{QK}} = G_{QK} D_{QK}
$$

| entry | its own class | another class | common |
| --- | --- | --- | --- |
| $D_{OV}$ | $<ov_own>$ | $<ov_other>$ | $<ov_common>$ |
| $D_{QK}$ | $<qk_own>$ | $<qk_other>$ | $<qk_common>$ |

$$
G_{OV} = <drive_ov>, \qquad G_{QK} = <drive_qk>
$$

A collapsed circuit moves along its line. $W_{OV} = \mu_{OV} D_{OV}$ gives $\dot\mu_{OV} = G_{OV}$. The
score gap of $D_{QK}$ itself is $g = <line_gap>$, so

$$
\dot\mu_{QK} = g G_{QK} = <rate_qk> \left(-\frac{\partial L}{\partial \mu_{QK}}\right)
$$

Let $\kappa$ be this factor over $\eta_{QK}$ where scores are not scaled:

$$
\kappa = <kappa>
$$

The paper's equation has $\kappa = <kappa_paper>$: as many query tokens as distinct tokens, $Q = b$, and an
infinite common vocabulary, $B \to \infty$, in which no common token repeats and so none learns. In general
an entry of $W_{QK}$ is trained by one query in $M Q$, and with finite $B$ common keys learn too, so that the
gap opens from both sides.
"""

FACTORIZED = r"""
## Factorized circuits

Let the factors of $W = A F^\top$ be aligned with the singular vectors $U$, $V$ and values $\nu$ of its
direction, with some $O$ of orthonormal columns:

$$
A = U \mathrm{diag}(a) O^\top, \qquad F = V \mathrm{diag}(v) O^\top
$$

The gradient flow under the drive $G$ keeps this form, with $\dot a = G \nu v$ and $\dot v = G \nu a$. So
each singular amplitude $\sigma = a v$ follows $\dot\sigma = G \nu (a^2 + v^2)$ while $\lambda = a^2 - v^2$
is conserved:

$$
\dot\sigma = \nu R(\sigma) G, \qquad R(\sigma) = <rescaling>
$$

Balanced factors have $\lambda = 0$; then zero is a saddle.
"""

FACTORIZED_OV = r"""
$D_{OV}$ has one singular value, $<singular_ov>$, $M - 1$ times. With $\sigma = <sigma_ov>$,

$$
\dot\mu_{OV} = R_{OV} G_{OV}, \qquad R_{OV} = <rescaling_ov>
$$
"""

FACTORIZED_QK = r"""
$D_{QK}$ has two singular values, once that of the mode in which all classes agree and $M - 1$ times that of
their contrasts:

$$
\nu_1 = <nu_1>, \qquad \nu_2 = <nu_2>
$$

The $W_{QK}$ with amplitudes $\sigma_1$, $\sigma_2$ in these modes holds, for the distinct tokens and
queries of one class, for those of two classes, and for common tokens,

$$
<mode_own>, \qquad <mode_other>, \qquad <mode_common>
$$

$$
\mu_{QK} = <gap>, \qquad \dot\sigma_i = \nu_i R(\sigma_i) G_{QK}
$$

With finite $B$ the two amplitudes leave the line. For $B \to \infty$ they are one:

$$
\sigma_1 = \sigma_2 = <line_amplitude>, \qquad
\dot\mu_{QK} = <line_gap_infinite> R_{QK} G_{QK}, \qquad R_{QK} = <rescaling_qk>
$$
"""

ENDING = r"""
## <name>: scalar flow

$$
\dot\mu_{OV} = <rate_ov>
$$

$$
\dot\mu_{QK} = <rate_qk>
$$

<infinite>

## <name>: first integral

The quotient of the two rates separates. With $\rho = m/n$,

$$
<d_f_qk> = k <d_f_ov>, \qquad k = <k>
$$

$$
F_{QK}(\mu_{QK}) - F_{QK}(\mu_{QK}(0)) = k \left[ F_{OV}(\mu_{OV}) - F_{OV}(\mu_{OV}(0)) \right]
$$

$$
F_{QK} = <f_qk>, \qquad F_{OV} = <f_ov>
$$

<balanced>

## <name>: closed form

With $\Delta = \left[F_{QK}(\mu_{QK}) - F_{QK}(\mu_{QK}(0))\right] / k$,

$$
\mu_{OV} = <mu_ov>
$$

<inverse>

## <name>: time

Along this curve time is a quadrature,

$$
t = \int \frac{d\mu_{OV}}{\dot\mu_{OV}} = \int <density> d\mu_{OV}
$$
"""

INVERSE = r"""
and the other way round, with $K = k \left[F_{OV}(\mu_{OV}) - F_{OV}(\mu_{OV}(0))\right] +
F_{QK}(\mu_{QK}(0))$ and the Lambert function $W$,

$$
\mu_{QK} = <mu_qk>
$$
"""

TWO_MODES = r"""
With finite $B$ the same division gives one relation for the two amplitudes and one quadrature,

$$
\frac{d\sigma_1}{\nu_1 R(\sigma_1)} = \frac{d\sigma_2}{\nu_2 R(\sigma_2)}, \qquad
\left(<weight_line>\right) \frac{d\sigma_1}{\nu_1 R(\sigma_1)} = <separation> <d_f_ov>
$$

For balanced factors the first is $\sigma_2 = <sigma_2>$, so that $\mu_{QK}$ is an explicit function of
$\sigma_1$. A start given as $\mu_{QK}(0)$ lies on the line: $\sigma_i(0) = \nu_i \mu_{QK}(0) / g$.
"""

NAMES = {
    sp.Symbol("w"): "w_{jq}",
    sp.Symbol("l_right"): r"\ell_{\mathrm{right}}",
    sp.Symbol("l_wrong"): r"\ell_{\mathrm{wrong}}",
    integral.Delta: r"\Delta",
    integral.mu_OV_0: r"\mu_{OV}(0)",
    integral.sigma_1_0: r"\sigma_1(0)",
    integral.sigma_2_0: r"\sigma_2(0)",
}


def tex(expression: Expr) -> str:
    """The LaTeX of an expression.

    >>> tex(sp.sqrt(b) * mu_OV)
    '\\\\sqrt{b} \\\\mu_{OV}'
    """
    # GitHub renders no \operatorname.
    return sp.latex(expression, symbol_names=NAMES).replace(r"\operatorname", r"\mathrm")


def _weighted(weight: Expr, differential: str) -> str:
    text = tex(weight)
    return f"\\left({text}\\right) {differential}" if weight.is_Add else f"{text} {differential}"


def _fill(template: str, formulas: dict[str, Expr | str]) -> str:
    def formula(match: re.Match[str]) -> str:
        value = formulas[match[1]]
        return value if isinstance(value, str) else tex(value)

    return re.sub(r"<(\w+)>", formula, template.strip())


def document(parameterization: Parameterization | None = None, derivation: Derivation | None = None) -> str:
    """The derivation in Markdown, with formulas in LaTeX (`$` and `$$`).

    Args:
        parameterization: whose flow and closed form end the document; None takes all four.
        derivation: what to print, `derive()` by default.

    >>> print(document(Parameterization.CACO).splitlines()[0])
    # CACO: from the loss to the closed form
    """
    d = derivation or derive()
    kinds = [parameterization] if parameterization else list(Parameterization)
    parts = [f"# {', '.join(p.value for p in kinds)}: from the loss to the closed form", _common(d)]
    ov, qk = any(p.ov_factorized for p in kinds), any(p.qk_factorized for p in kinds)
    if ov or qk:
        parts.append(_factorized(d, ov, qk))
    parts += [_ending(d, kind) for kind in kinds]
    return "\n\n".join(parts) + "\n"


def _common(d: Derivation) -> str:
    blocks = {"ov": d.direction_ov, "qk": d.direction_qk}
    return _fill(
        COMMON,
        {
            **vars(d.gradient),
            **{name: getattr(d, name) for name in ("score", "loss_of_logits", "attention", "loss")},
            **{f"{name}_{k}": x for name, block in blocks.items() for k, x in block._asdict().items()},
            "drive_ov": d.drive_ov,
            "drive_qk": d.drive_qk,
            "line_gap": d.line_gap,
            "kappa": d.kappa,
            "rate_qk": d.rate_qk,
            "kappa_paper": d.kappa.subs(1 / B, 0).subs(Q, b),
        },
    )


def _factorized(d: Derivation, ov: bool, qk: bool) -> str:
    line_gap, amplitude, rescaling_qk = infinite_line(d)
    template = FACTORIZED + FACTORIZED_OV * ov + FACTORIZED_QK * qk
    return _fill(
        template,
        {
            "rescaling": d.rescaling_qk.subs(lambda_QK, sp.Symbol("lambda")),
            "singular_ov": d.singular_value_ov,
            "sigma_ov": d.singular_value_ov * mu_OV,
            "rescaling_ov": d.rescaling_ov,
            "nu_1": d.singular_values_qk[0],
            "nu_2": d.singular_values_qk[1],
            **{f"mode_{k}": x for k, x in d.modes_qk._asdict().items()},
            "gap": d.gap,
            "line_amplitude": amplitude,
            "line_gap_infinite": line_gap,
            "rescaling_qk": rescaling_qk,
        },
    )


def _ending(d: Derivation, kind: Parameterization) -> str:
    form = closed_form(d, kind)
    formulas = {
        **vars(form),
        "name": kind.value,
        "density": sp.factor(1 / form.rate_ov),
        "weight_line": d.separated[2].subs(m, rho * n),
        "d_f_ov": _weighted(form.weight_ov, r"d\mu_{OV}"),
        "d_f_qk": _weighted(form.weight_qk, r"d\mu_{QK}"),
        "separation": d.separation,
        "infinite": "",
        "balanced": "",
    }
    if kind.qk_factorized:
        formulas["infinite"] = r"Here, and below unless said otherwise, $B \to \infty$."
        formulas["balanced"] = (
            r"$F_{QK}$ is that of balanced factors; with an imbalance it stays a quadrature."
        )
    formulas["inverse"] = _fill(TWO_MODES if kind.qk_factorized else INVERSE, formulas)
    return re.sub(r"\n{3,}", "\n\n", _fill(ENDING, formulas))
