import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qkflow.data import Sequences, population
from qkflow.models import Attention, Matrix, Product, aligned_start, directions, modes
from qkflow.setting import OrthogonalSetting, Problem, Start
from qkflow.train.record import Lines, inside_ov, inside_qk, observe

SETTING = OrthogonalSetting(3, 4, 2, 1, 5, 6)
QK, OV = directions(SETTING)


def record(model, initial=None, scale=1.0):
    batch = Sequences(*map(jnp.asarray, population(SETTING)))
    columns = jax.jit(lambda b: observe(model, initial or model, b, Lines(QK, OV), SETTING, scale))(batch)
    return {name: float(value) for name, value in columns.items()}


def test_the_gap_is_the_difference_of_mean_entries_times_the_score_scale():
    qk = np.random.default_rng(0).normal(size=QK.shape)
    own = np.mean([qk[4 * c : 4 * c + 4, 6 * c : 6 * c + 6].mean() for c in range(3)])
    columns = record(Attention(Matrix(qk), Matrix(0.3 * OV)), scale=0.7)
    assert columns["mu_qk"] == pytest.approx(0.7 * (own - qk[12:].mean()), rel=1e-13)
    assert columns["mu_ov"] == pytest.approx(0.3, rel=1e-13)


def test_the_residual_is_the_part_off_the_line():
    assert record(Attention(Matrix(0 * QK), Matrix(0 * OV)))["residual_qk"] == 0.0
    off = np.zeros_like(OV)
    off[:, 12:] = 0.5  # common columns, orthogonal to the line
    columns = record(Attention(Matrix(2 * QK), Matrix(3 * OV + off)))
    assert columns["residual_qk"] == pytest.approx(0, abs=1e-15)
    expected = np.linalg.norm(off) / np.linalg.norm(3 * OV + off)
    assert columns["residual_ov"] == pytest.approx(expected, rel=1e-13)


def test_two_modes_are_off_the_line_but_on_their_plane():
    shared, rest = modes(QK)
    columns = record(Attention(Product(2 * shared + 3 * rest, np.eye(18)), Matrix(OV)))
    assert columns["residual_qk"] > 0.1
    assert columns["residual_qk_modes"] < 1e-14


def test_conserved_quantities_compare_with_the_start():
    start = aligned_start(Problem(SETTING, "CAFO", start=Start(0.5, 0.0, 0.3)))
    later = aligned_start(Problem(SETTING, "CAFO", start=Start(0.9, 0.0, 0.3)))
    other = aligned_start(Problem(SETTING, "CAFO", start=Start(0.9, 0.0, 0.2)))
    assert record(later, start)["conserved_ov"] < 1e-14
    # lambda differs by .1 in 2 modes; A^T A and B B^T have sqrt(2) a^2 and sqrt(2) v^2, a^2 + v^2 = R.
    expected = 0.1 / np.sqrt(0.2**2 + 4 * 4 * 0.9**2)
    assert record(other, start)["conserved_ov"] == pytest.approx(expected, rel=1e-12)
    assert "conserved_qk" not in record(later, start)


@pytest.mark.parametrize("common", [5, np.inf])
def test_inside_is_what_the_singular_spaces_hold(common):
    setting = OrthogonalSetting(3, 4, 2, 1, common, 6)
    for inside, direction in zip((inside_qk, inside_ov), directions(setting), strict=True):
        u, s, vt = np.linalg.svd(direction, full_matrices=False)
        u, vt = u[:, s > 1e-9], vt[s > 1e-9]
        matrix = np.random.default_rng(0).normal(size=direction.shape)
        assert inside(matrix, setting) == pytest.approx(u @ (u.T @ matrix @ vt.T) @ vt, abs=1e-13)
