"""mu_OV, mu_QK and what is off the line, read off anyone's matrices with NumPy alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from qkflow.models.directions import directions, modes
from qkflow.setting import ArgumentError, OrthogonalSetting


class Reading(NamedTuple):
    """What the reduced flow knows of matrices, arrays of the shape of their leading axes.

    They are computed in float64, and float32 where the matrix was: a sign of how accurate it can be.

    Args:
        mu_ov: logit gap per unit of attention: coefficient of W_OV along its direction.
        mu_qk: score gap that the softmax sees: coefficient of W_QK times beta (1/b + 1/B).
        off_ov: Frobenius norm of the part of W_OV off its direction.
        off_qk: the same for W_QK.
        off_qk_modes: norm of the part of W_QK off the plane of its two modes, which a factorized QK circuit
            with a finite common vocabulary does not leave.
        norm_ov: Frobenius norm of W_OV.
        norm_qk: Frobenius norm of W_QK.
    """

    mu_ov: np.ndarray
    mu_qk: np.ndarray
    off_ov: np.ndarray
    off_qk: np.ndarray
    off_qk_modes: np.ndarray
    norm_ov: np.ndarray
    norm_qk: np.ndarray


def read_matrices(setting: OrthogonalSetting, w_qk: Any, w_ov: Any) -> Reading:
    """Project matrices, or a record of them, on the directions of the reduced flow.

    Keys are numbered class by class, b distinct tokens each, the B common tokens last (none where B is
    infinite); queries class by class, Q each; see `qkflow.models.directions`.

    Args:
        setting: concrete numbers.
        w_qk: W_QK, (..., keys, queries), the product W_K^T W_Q where it is factorized.
        w_ov: W_OV, (..., classes, keys), the product W_O W_V where it is factorized.

    Raises:
        ArgumentError: for matrices of other shapes.

    >>> setting = OrthogonalSetting(4, 5, 2, 3, 7, 3, score_scale=0.5)
    >>> qk, ov = directions(setting)
    >>> reading = read_matrices(setting, np.stack([0 * qk, 2 * qk]), 3 * ov)
    >>> reading.mu_ov.item(), reading.mu_qk.round(6).tolist(), reading.off_qk.round(12).tolist()
    (3.0, [0.0, 0.342857], [0.0, 0.0])
    """
    line_qk, line_ov = directions(setting)
    single_qk, single_ov = (getattr(w, "dtype", None) == np.float32 for w in (w_qk, w_ov))
    w_qk, w_ov = _matrices("w_qk", w_qk, line_qk), _matrices("w_ov", w_ov, line_ov)
    along_qk, off_qk = _split(w_qk, line_qk)
    along_ov, off_ov = _split(w_ov, line_ov)
    off_modes = w_qk
    for mode in modes(line_qk):
        off_modes = off_modes - _split(w_qk, mode)[0][..., None, None] * mode
    gap = float(setting.score_scale) * (1 / setting.n_distinct_vocab + 1 / float(setting.n_common_vocab))
    columns = (along_ov, along_qk * gap, off_ov, off_qk, _norm(off_modes), _norm(w_ov), _norm(w_qk))
    single = (single_ov, single_qk, single_ov, single_qk, single_qk, single_ov, single_qk)
    return Reading(*(column.astype(np.float32) if s else column for column, s in zip(columns, single)))


def _matrices(name: str, given: Any, line: np.ndarray) -> np.ndarray:
    matrices = np.asarray(given, dtype=float)
    if matrices.shape[-2:] != line.shape:
        shape = ", ".join(map(str, line.shape))
        raise ArgumentError(f"Argument `{name}` must have shape (..., {shape}), but has {matrices.shape}.")
    return matrices


def _norm(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.norm(matrices, axis=(-2, -1))


def _split(matrices: np.ndarray, line: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients along a direction, and the norms of what is off it."""
    along = np.tensordot(matrices, line, 2) / (line * line).sum()
    return along, _norm(matrices - along[..., None, None] * line)
