r"""Which of the four parameterizations has the sharpest attention at equal loss: a map, not one order.

At equal loss z = alpha(g) u is equal, g = mu_QK, u = mu_OV. Along every trajectory z and g rise together. So
where A has (u_A, g), B is sharper at A's loss if and only if B's curve passes g with less u: then z_B(g) <
z_A, and B is beyond g once it has A's z. u_B(g) follows from the first integral I_B(g) = k' (F_B(u_B) -
F_B(u0)), whose left side knows only the QK circuit. Two consequences, for balanced circuits, B infinite and
score scale 1:

* OV factorized or not, the same QK circuit and start: at equal g, I is equal, so u_F = u0_F + sqrt(b)
  (u_C^2 - u0_C^2). The factorized OV circuit is the sharper one while u0_F + sqrt(b) (u^2 - u0_C^2) < u: from
  the same start u0 < 1/(2 sqrt(b)) until u = 1/sqrt(b) - u0, and never after, whatever the ratio.
* QK factorized or not, the same OV circuit and start: the sharper is the one with the lesser I at equal g.
  From the same start g0 the factorized I grows (1 + rho e^g)/(a g) against 1 + rho e^g, a = 2 sqrt(bQ): it is
  the sharper one for ever if a g0 >= 1; else only beyond one crossing g, the same for all ratios and for both
  OV circuits. A tiny start puts this crossing far away.

Both circuits factorized against both collapsed mixes the two: the order flips with ratio and loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from qkflow.flow import derived
from qkflow.flow._relation import Relation
from qkflow.setting import LearningRates, OrthogonalSetting, Parameterization, Problem, Start

_HALVINGS = 45


@dataclasses.dataclass(frozen=True)
class SharpnessMap:
    """1 - alpha of the four parameterizations at equal losses.

    Args:
        ratios: (R,) eta_QK / eta_OV.
        starts: (S,) mu_OV and mu_QK at the start of factorized circuits; collapsed ones start at 0.
        losses: (L,).
        log_rest: by parameterization, log(1 - alpha), (R, S, L); NaN where a start's loss is lower.
    """

    ratios: np.ndarray
    starts: np.ndarray
    losses: np.ndarray
    log_rest: dict[str, np.ndarray]

    @property
    def orders(self) -> np.ndarray:
        """(R, S, L) texts, the sharpest first, such as "FACO > CACO > FAFO > CAFO"; "" where NaN."""
        names = np.array(list(self.log_rest))
        stacked = np.stack(list(self.log_rest.values()), -1)
        ranked = names[np.argsort(stacked, axis=-1, kind="stable")]
        texts = np.apply_along_axis(" > ".join, -1, ranked)
        return np.where(np.isnan(stacked).any(-1), "", texts)

    def document(self) -> dict[str, Any]:
        """Plain JSON values: the grid and the orders."""
        axes = {name: [float(x) for x in getattr(self, name)] for name in ("ratios", "starts", "losses")}
        return axes | {"orders": self.orders.tolist()}


def sharpness_map(
    setting: OrthogonalSetting,
    ratios: Sequence[float],
    starts: Sequence[float],
    losses: Sequence[float],
    *,
    lr_ov: float = 1.0,
    field: Any = derived,
) -> SharpnessMap:
    """The map, from the first integral alone: nothing is followed in time.

    Args:
        setting: the data, concrete numbers.
        ratios: R learning-rate ratios.
        starts: S positive starts of factorized circuits.
        losses: L losses.
        lr_ov: eta_OV; it does not matter.
        field: the derived field.

    >>> setting = OrthogonalSetting(4, 5, 2, 3, n_query_vocab=3)
    >>> found = sharpness_map(setting, [1.0, 10.0], [0.01], [1e-4])
    >>> found.orders.ravel().tolist()
    ['FACO > CACO > FAFO > CAFO', 'FACO > FAFO > CACO > CAFO']
    """
    axes = tuple(np.asarray(x, float) for x in (ratios, starts, losses))
    shape = tuple(len(axis) for axis in axes)
    log_rest = {kind.value: np.empty(shape) for kind in Parameterization}
    for s, start in enumerate(axes[1]):
        for kind in Parameterization:
            begin = Start(start if kind.ov_factorized else 0.0, start if kind.qk_factorized else 0.0)
            relation = Relation(Problem(setting, kind, LearningRates(lr_ov, 1.0), begin), field)
            log_rest[kind.value][:, s] = _log_rest(relation, axes[0][:, None], axes[2][None, :])
    return SharpnessMap(axes[0], axes[1], axes[2], log_rest)


def _log_rest(relation: Relation, ratio: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """log(1 - alpha) where alpha(g) u(g) is the loss's z, by bisection in g; `relation` has ratio 1."""
    goal = np.log(relation.c.n_classes - 1.0) - np.log(np.expm1(loss)) + 0.0 * ratio

    def beyond(rise):
        g = relation.g0 + rise
        return np.exp(relation.log_mu_ov(g, np.log(ratio)) - np.logaddexp(0.0, -relation.log_rho - g)) >= goal

    low, high = np.zeros_like(goal), np.ones_like(goal)
    with np.errstate(over="ignore"):
        while not (reached := beyond(high)).all():
            high = np.where(reached, high, 2.0 * high)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            over = beyond(middle)
            low, high = np.where(over, low, middle), np.where(over, middle, high)
    rest = -np.logaddexp(0.0, relation.log_rho + relation.g0 + high)
    return np.where(relation.u0 * (1.0 - relation.rest_0) < goal, rest, np.nan)
