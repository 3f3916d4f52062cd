"""From the loss to the scalar flow: everything that the printed field and the documents are made of."""

from __future__ import annotations

import dataclasses
import functools

import sympy as sp

from qkflow.symbolic.circuits import Blocks, factor_rescaling, singular_values, two_modes
from qkflow.symbolic.gradient import ManifoldGradient, manifold_gradient
from qkflow.symbolic.loss import Loss, Score, cross_entropy, scaled_score
from qkflow.symbolic.symbols import (
    B,
    Expr,
    M,
    Q,
    alpha,
    b,
    beta,
    eta_OV,
    eta_QK,
    lambda_OV,
    lambda_QK,
    mu_OV,
    mu_QK,
    r,
    sigma,
    sigma_1,
    sigma_2,
    z,
)


def factors(product: Expr) -> tuple[Expr, ...]:
    """The factors of a product as SymPy holds it."""
    return sp.Mul.make_args(product)


@dataclasses.dataclass(frozen=True)
class Derivation:
    """The derived scalar flow. Replacing a field (`dataclasses.replace`) changes all that follows from it.

    Expressions are written in alpha and z = alpha mu_OV where that is shorter; `explicit` undoes that.

    Attributes:
        score: the score of an entry w of W_QK.
        loss_of_logits: the loss when the right class has logit l_right and the M - 1 wrong ones l_wrong.
        gradient: gradient entries on the symmetric manifold.
        loss: the loss there, a function of z.
        attention: alpha as a function of mu_QK.
        direction_ov: W_OV = mu_OV * direction_ov.
        direction_qk: W_QK moves along this direction; a class's distinct entries sum to 1.
        drive_ov: -eta_OV dL/dW_OV = drive_ov * direction_ov.
        drive_qk: -eta_QK dL/dW_QK = drive_qk * direction_qk.
        line_gap: the score gap of direction_qk itself.
        singular_value_ov: of direction_ov, M - 1 times.
        singular_values_qk: nu_1 (once) and nu_2 (M - 1 times) of direction_qk.
        modes_qk: entries of the W_QK whose singular amplitudes are sigma_1, sigma_2.
        gap: its score gap.
        rescaling_ov: R_OV, a function of lambda_OV and mu_OV.
        rescaling_qk: R_QK, a function of lambda_QK and one singular amplitude sigma.
    """

    score: Expr
    loss_of_logits: Expr
    gradient: ManifoldGradient
    loss: Expr
    attention: Expr
    direction_ov: Blocks
    direction_qk: Blocks
    drive_ov: Expr
    drive_qk: Expr
    line_gap: Expr
    singular_value_ov: Expr
    singular_values_qk: tuple[Expr, Expr]
    modes_qk: Blocks
    gap: Expr
    rescaling_ov: Expr
    rescaling_qk: Expr

    def explicit(self, expression: Expr) -> Expr:
        """The expression in mu_OV, mu_QK and the numbers of the problem."""
        return expression.subs(z, alpha * mu_OV).subs(alpha, self.attention).subs(eta_QK, r * eta_OV)

    @functools.cached_property
    def odds(self) -> Expr:
        """alpha / (1 - alpha), a function of mu_QK."""
        return sp.factor(sp.cancel(self.attention / (1 - self.attention)))

    @functools.cached_property
    def separated(self) -> tuple[Expr, Expr, Expr]:
        """`(k', f, h)` with drive_qk/drive_ov = k' f(mu_OV)/h(mu_QK), where f(1) = 1 and h(-infinity) = 1.

        Raises:
            ValueError: when the ratio of the two drives does not separate.
        """
        ratio = sp.factor(self.explicit(sp.cancel(self.drive_qk / self.drive_ov)))
        k, of_ov, of_qk = sp.Integer(1), sp.Integer(1), sp.Integer(1)
        for factor in factors(ratio):
            unknown = factor.free_symbols & {mu_OV, mu_QK}
            if unknown == {mu_OV}:
                of_ov *= factor
            elif unknown == {mu_QK}:
                of_qk *= factor
            elif not unknown:
                k *= factor
            else:
                raise ValueError(f"The flow does not separate: {factor} holds both unknowns.")
        at_one, at_zero = of_ov.subs(mu_OV, 1), of_qk.subs(sp.exp(mu_QK), 0)
        return sp.factor(k * at_one * at_zero), of_ov / at_one, sp.expand(sp.cancel(at_zero / of_qk))

    @property
    def separation(self) -> Expr:
        """k': (1 + (m/n) e^mu_QK) d tau = k' mu_OV d omega."""
        return self.separated[0]

    @functools.cached_property
    def rate_qk(self) -> Expr:
        """d mu_QK/dt of the collapsed circuit over -dL/d mu_QK.

        Raises:
            ValueError: when the one is no multiple of the other.
        """
        steepest = -sp.diff(self.loss, z) * mu_OV * alpha * (1 - alpha)
        rate = sp.expand(sp.simplify(sp.cancel(self.line_gap * self.drive_qk / steepest)))
        if rate.free_symbols & {alpha, z, mu_OV}:
            raise ValueError("The rate of mu_QK is no multiple of -dL/d mu_QK.")
        return sp.factor_terms(rate)

    @property
    def kappa(self) -> Expr:
        """`rate_qk` over eta_QK where scores are not scaled."""
        return (self.rate_qk / eta_QK).subs(beta, 1).subs(eta_QK, r * eta_OV)


@functools.lru_cache(maxsize=8)
def derive(score: Score = scaled_score, loss: Loss = cross_entropy) -> Derivation:
    """Derive the scalar flow from the loss of the attention model on one sequence.

    Args:
        score: the score of an entry of W_QK, linear in it.
        loss: the loss of the logits.

    Raises:
        ValueError: when the gradient does not keep W_OV and W_QK on the symmetric manifold and its line.

    >>> derive().drive_ov
    alpha*eta_OV/(b*(M + exp(z) - 1))
    >>> derive().separation
    b*beta*r*(M - 1)/(M*Q)
    """
    gradient = manifold_gradient(score, loss)
    if gradient.common_value != 0:
        raise ValueError("The columns of common tokens do not stay zero.")

    span = sp.factor(gradient.right - gradient.wrong)
    direction_ov = Blocks(sp.cancel(gradient.right / span), sp.cancel(gradient.wrong / span), sp.Integer(0))
    drive_ov = sp.factor(-eta_OV * span)

    # SymPy factors alpha - 1 out; what is left over is put as 1 - alpha, which is positive.
    drive_qk = sp.factor(-eta_QK * gradient.distinct_score * b / (1 - alpha)) * (1 - alpha)
    common = sp.cancel(gradient.common_score / gradient.distinct_score) / b
    direction_qk = Blocks(1 / b, sp.Integer(0), common)
    if not (direction_ov.own.free_symbols | common.free_symbols) <= {M, b, B}:
        raise ValueError("The gradient does not keep to a fixed direction.")

    uniform_ov, contrast_ov = singular_values(direction_ov, sp.Integer(1))
    if uniform_ov != 0:
        raise ValueError("The OV direction has two different singular values.")
    modes = two_modes(direction_qk)
    gap = sp.expand(score(modes.own) - score(modes.common))
    return Derivation(
        score=score(sp.Symbol("w")),
        loss_of_logits=loss(sp.symbols("l_right l_wrong"), (sp.Integer(1), M - 1)),
        gradient=gradient,
        loss=gradient.loss,
        attention=gradient.attention,
        direction_ov=direction_ov,
        direction_qk=direction_qk,
        drive_ov=drive_ov,
        drive_qk=drive_qk,
        line_gap=sp.factor_terms(score(direction_qk.own) - score(direction_qk.common)),
        singular_value_ov=contrast_ov,
        singular_values_qk=singular_values(direction_qk, Q),
        modes_qk=modes,
        gap=sp.factor_terms(gap.coeff(sigma_1)) * sigma_1 + sp.factor(gap.coeff(sigma_2)) * sigma_2,
        rescaling_ov=factor_rescaling(lambda_OV).subs(sigma, contrast_ov * mu_OV),
        rescaling_qk=factor_rescaling(lambda_QK),
    )
