"""The directions of the two circuits: their singular values, their modes, and how factors rescale the rate.

Both directions are matrices of equal blocks, seen from the M classes: a class has b columns (its distinct
tokens) in which its own rows hold one number and the rows of other classes another, and B columns (the common
tokens) in which all rows hold a third. OV has one row a class, QK (transposed) has Q, one for each query.
"""

from __future__ import annotations

from typing import NamedTuple

import sympy as sp

from qkflow.symbolic.symbols import B, Expr, M, b, nu_1, nu_2, sigma, sigma_1, sigma_2


class Blocks(NamedTuple):
    """A block matrix: own class's distinct tokens, other classes' distinct tokens, common tokens."""

    own: Expr
    other: Expr
    common: Expr


def singular_values(direction: Blocks, rows: Expr) -> tuple[Expr, Expr]:
    """The singular values of the uniform mode (once) and of the contrast modes (M - 1 times).

    The Gram matrix of the rows is constant on pairs of classes. One class against the others is an equitable
    partition of it, so the 2 x 2 quotient has its eigenvalues; eigenvectors are (1, 1) and, for each choice
    of that class, (M - 1, -1).

    Args:
        direction: the block matrix.
        rows: rows a class, 1 for OV and Q for QK.

    >>> singular_values(Blocks(1, 0, 0), sp.Integer(1))
    (sqrt(b), sqrt(b))
    """
    own, other, common = direction
    same = b * own**2 + (M - 1) * b * other**2 + B * common**2
    different = 2 * b * own * other + (M - 2) * b * other**2 + B * common**2
    quotient = rows * sp.Matrix([[same, (M - 1) * different], [different, same + (M - 2) * different]])
    values = []
    for vector in (sp.Matrix([1, 1]), sp.Matrix([M - 1, -1])):
        image = (quotient * vector).applyfunc(sp.factor)
        value = sp.expand(sp.factor(image[1] / vector[1]))
        if sp.simplify(image - value * vector) != sp.zeros(2, 1):
            raise ArithmeticError("The modes of the direction are not those of its symmetry.")
        values.append(sp.sqrt(value))
    return values[0], values[1]


def two_modes(direction: Blocks) -> Blocks:
    """The matrix with singular amplitudes sigma_1 (uniform mode) and sigma_2 (contrast modes).

    Projecting the rows on the uniform vector averages them over classes; the rest is the contrast part.
    """
    mean = (direction.own + (M - 1) * direction.other) / M
    uniform = Blocks(mean, mean, direction.common)
    parts = ((sigma_1 / nu_1) * u + (sigma_2 / nu_2) * sp.factor(x - u) for x, u in zip(direction, uniform))
    return Blocks(*parts)


def factor_rescaling(imbalance: Expr) -> Expr:
    """R: how the factors of W = A F^T, aligned with its direction U diag(nu) V^T, rescale the rate.

    With A = U diag(a) O^T, F = V diag(v) O^T and -eta dL/dW = drive U diag(nu) V^T, dA/dt is
    drive U diag(nu v) O^T and dF/dt is drive V diag(nu a) O^T: the form is kept, and a and v climb
    drive nu a v. So sigma = a v has the rate nu R drive, and the imbalance a^2 - v^2 is conserved.

    >>> factor_rescaling(sp.Integer(0))
    2*sigma
    """
    a, v, squared = sp.symbols("a v a^2", positive=True)
    rate_a, rate_v = sp.diff(a * v, a), sp.diff(a * v, v)  # over nu * drive
    if sp.expand(a * rate_a - v * rate_v) != 0:
        raise ArithmeticError("The imbalance is not conserved.")

    def in_sigma(expression: Expr) -> Expr:
        return expression.subs(v, sigma / a).subs(a, sp.sqrt(squared))

    roots = sp.solve(in_sigma(a**2 - v**2) - imbalance, squared)
    (root,) = (x for x in roots if x.subs(imbalance, 0).is_positive)
    rate = in_sigma(rate_a * v + a * rate_v).subs(squared, root)
    return sp.simplify(sp.sqrt(sp.factor(sp.radsimp(sp.expand(rate**2)))))
