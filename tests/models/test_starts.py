import numpy as np
import pytest

from qkflow.models import aligned_start, directions, identity_start, modes, random_start, vocabularies
from qkflow.models.starts import balance
from qkflow.setting import ArgumentError, OrthogonalSetting, Problem, Start

SETTINGS = [OrthogonalSetting(3, 4, 2, 1, 5, 6, 0.7), OrthogonalSetting(3, 4, 2, 1, np.inf, 6, 0.7)]
STARTS = [
    Start(0.3, 0.2),
    Start(0.3, 0.2, 0.5, -0.4),
    Start(0.0, 0.0, -0.5, 0.4),
    Start(0.1, -0.2, 1e-9, 2.0),
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_directions_have_the_singular_values_of_the_theory(setting):
    qk, ov = directions(setting)
    m_classes, b, q = 3, 4, 6
    common = q * m_classes / setting.n_common_vocab
    assert np.linalg.svd(ov, compute_uv=False) == pytest.approx([b**0.5] * 2 + [0], abs=1e-13)
    assert np.linalg.svd(qk, compute_uv=False)[:4] == pytest.approx(
        [(q / b + common) ** 0.5, (q / b) ** 0.5, (q / b) ** 0.5, 0], abs=1e-13
    )
    shared, rest = modes(qk)
    assert np.vdot(shared, rest) == pytest.approx(0, abs=1e-13)
    assert np.linalg.svd(shared, compute_uv=False)[0] == pytest.approx((q / b + common) ** 0.5)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("width", [None, 7])
def test_factors_start_on_the_line_with_their_imbalance(setting, start, width):
    problem = Problem(setting, "FAFO", start=start)
    layer = aligned_start(problem, width)
    qk, ov = directions(setting)
    gap = 0.7 * (1 / 4 + 1 / setting.n_common_vocab)
    # Rounding of a singular value decomposition of matrices of norm about 10.
    assert np.asarray(layer.qk.full()) == pytest.approx(start.mu_qk / gap * qk, abs=1e-14)
    assert np.asarray(layer.ov.full()) == pytest.approx(start.mu_ov * ov, abs=1e-14)
    for circuit, rank, imbalance in ((layer.qk, 3, start.imbalance_qk), (layer.ov, 2, start.imbalance_ov)):
        expected = np.diag([imbalance] * rank + [0.0] * (circuit.left.shape[1] - rank))
        assert np.asarray(circuit.conserved()) == pytest.approx(expected, abs=1e-13)


def test_collapsed_and_factorized_start_alike():
    start = Start(0.3, 0.2)
    layers = [aligned_start(Problem(SETTINGS[0], kind, start=start)) for kind in ("CACO", "FAFO")]
    assert np.asarray(layers[0].qk.full()) == pytest.approx(np.asarray(layers[1].qk.full()), abs=1e-14)
    assert np.asarray(layers[0].ov.full()) == pytest.approx(np.asarray(layers[1].ov.full()), abs=1e-14)


@pytest.mark.parametrize(("kind", "width", "rank"), [("FACO", 2, 3), ("CAFO", 1, 2), ("FAFO", 2, 3)])
def test_a_width_below_the_rank_is_refused(kind, width, rank):
    with pytest.raises(ArgumentError, match=f"`hidden_width` must be at least {rank} .* but is {width}"):
        aligned_start(Problem(SETTINGS[0], kind), width)


@pytest.mark.parametrize("imbalance", [0.0, 1e-12, -3.0, 1e8])
@pytest.mark.parametrize("sigma", [0.0, 1e-9, 2.0, -1e3])
def test_balanced_amplitudes(imbalance, sigma):
    a, v = (float(amplitude[0]) for amplitude in balance(np.array([sigma]), imbalance))
    assert a * v == pytest.approx(sigma, rel=1e-14, abs=0)
    # The difference of squares is rounded at their size.
    assert a**2 - v**2 == pytest.approx(imbalance, abs=1e-14 * (a**2 + v**2), rel=1e-14)


def test_the_identity_start_has_zero_scores_on_keys_and_queries_that_share_no_token():
    keys, queries = vocabularies(SETTINGS[0])
    factorized = identity_start(Problem(SETTINGS[0], "FAFO"), 0.1)
    assert factorized.qk.left.shape == (keys, keys + queries)
    assert not np.any(factorized.qk.full())
    assert np.asarray(factorized.qk.left).sum() == pytest.approx(0.1 * keys)
    assert np.asarray(factorized.qk.right).sum() == pytest.approx(0.1 * queries)
    assert np.asarray(factorized.ov.full()) == pytest.approx(0.01 * np.eye(3, keys))
    collapsed = identity_start(Problem(SETTINGS[0], "CACO"), 0.1)
    assert not np.any(collapsed.qk.full())
    assert np.asarray(collapsed.ov.full()) == pytest.approx(0.1 * np.eye(3, keys))
    assert identity_start(Problem(SETTINGS[0], "FAFO"), 0.1, 4).ov.left.shape == (3, 4)


def test_the_random_start_fills_its_interval_and_depends_on_its_seed():
    first, again, other = (random_start(Problem(SETTINGS[0], "FAFO"), 0.1, k) for k in (0, 0, 1))
    entries = np.asarray(first.qk.left).ravel()
    assert 0.099 < np.abs(entries).max() <= 0.1
    # 1,190 entries of standard deviation .058: 4 standard errors of the mean.
    assert abs(entries.mean()) < 4 * 0.058 / np.sqrt(entries.size)
    assert np.array_equal(first.ov.right, again.ov.right)
    assert not np.array_equal(first.ov.right, other.ov.right)
    assert not np.array_equal(first.ov.left[:, :3], first.qk.right[:3, :3])
