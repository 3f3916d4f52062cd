"""The derivation: its results, that they hang on the loss, and that errors planted in it are printed."""

import ast
import dataclasses
import types

import numpy as np
import pytest
import sympy as sp

from qkflow.setting import Parameterization, Problem
from qkflow.symbolic import derive, document, field_source, generate, load_field
from qkflow.symbolic.circuits import Blocks, singular_values, two_modes
from qkflow.symbolic.integral import Delta, K, closed_form, infinite_line, mu_OV_0, sigma_1_0, sigma_2_0
from qkflow.symbolic.loss import cross_entropy
from qkflow.symbolic.symbols import (
    B,
    M,
    Q,
    alpha,
    b,
    beta,
    eta_OV,
    eta_QK,
    lambda_OV,
    lambda_QK,
    m,
    mu_OV,
    mu_QK,
    n,
    nu_1,
    nu_2,
    r,
    rho,
    sigma,
    sigma_1,
    sigma_2,
    z,
)
from tests.planted import PLANTED
from tests.published import END_POINTS

E = sp.exp(z) + M - 1
CONSTANTS = Problem().constants._replace(
    n_classes=4, n_distinct_vocab=5, n_distinct=2, n_common=3, n_common_vocab=7
)
CONSTANTS = CONSTANTS._replace(n_query_vocab=6, ratio=10.0, lr_ov=0.5, score_scale=1.5)
CONSTANTS = CONSTANTS._replace(imbalance_ov=3.0, imbalance_qk=-0.9)


def equal(derived, expected):
    return sp.simplify(derived - expected) == 0


class TestFlow:
    def test_scalars(self):
        d = derive()
        assert equal(d.loss, sp.log(1 + (M - 1) * sp.exp(-z)))
        assert equal(d.attention, m * sp.exp(mu_QK) / (m * sp.exp(mu_QK) + n))
        assert equal(d.drive_ov, eta_OV * alpha / (b * E))
        slope = (M - 1) * alpha * (1 - alpha) * mu_OV / E
        assert equal(d.line_gap * d.drive_qk, eta_QK * beta**2 * (1 / b + 1 / B) / (M * Q) * slope)
        assert equal(d.kappa, (1 / b + 1 / B) / (M * Q))
        assert equal(d.kappa.subs(1 / B, 0).subs(Q, b), 1 / (M * b**2))
        assert equal(d.separation, r * b * beta * (M - 1) / (M * Q))

    def test_circuits(self):
        d = derive()
        assert equal(d.rescaling_ov**2, lambda_OV**2 + 4 * b * mu_OV**2)
        assert equal(d.rescaling_qk**2, lambda_QK**2 + 4 * sigma**2)
        assert equal(d.singular_values_qk[0] ** 2, Q / b + Q * M / B)
        assert equal(d.singular_values_qk[1] ** 2, Q / b)
        own = sigma_1 / nu_1 / (b * M) + sigma_2 / nu_2 * (1 - 1 / M) / b
        assert equal(d.gap, beta * (own + sigma_1 / (nu_1 * B)))
        assert equal(infinite_line(d)[2] ** 2, lambda_QK**2 + 4 * b * Q * (mu_QK / beta) ** 2)

    def test_a_start_on_the_line(self):
        d = derive()
        on_line = {sigma_1: nu_1 * mu_QK / d.line_gap, sigma_2: nu_2 * mu_QK / d.line_gap}
        assert equal(d.gap.subs(on_line), mu_QK)


class TestTheLossDecides:
    def test_score_scale_squared(self):
        changed = derive(score=lambda entry: beta**2 * entry)
        assert equal(changed.drive_qk, beta * derive().drive_qk)
        assert equal(changed.line_gap, beta * derive().line_gap)
        assert "c.score_scale**2" in field_source(changed)
        assert "c.score_scale**2" not in field_source(derive())
        ours, theirs = load_field(derive()), load_field(changed)
        assert theirs.separation(CONSTANTS) == pytest.approx(1.5 * ours.separation(CONSTANTS), rel=1e-15)
        assert r"\beta^{2} w_{jq}" in document(Parameterization.CACO, changed)

    def test_loss_doubled(self):
        changed = derive(loss=lambda logits, counts: 2 * cross_entropy(logits, counts))
        assert equal(changed.drive_ov, 2 * derive().drive_ov)
        assert equal(changed.drive_qk, 2 * derive().drive_qk)

    def test_a_loss_without_reduction_is_refused(self):
        with pytest.raises(ValueError, match="does not close"):
            derive(loss=lambda logits, counts: cross_entropy(logits, counts) + logits[0] ** 2)


class TestMatrices:
    """Singular values, modes and the flow of factors against concrete matrices, in float64 (so to 1e-12)."""

    numbers = types.MappingProxyType({M: 4, b: 3, B: 7, Q: 2})

    def matrix(self, blocks):
        own, other, common = (float(x.subs(dict(self.numbers))) for x in blocks)
        classes, vocab, commons, queries = (self.numbers[x] for x in (M, b, B, Q))
        distinct = np.kron(np.where(np.eye(classes) == 1, own, other), np.ones((vocab, queries)))
        return np.vstack([distinct, np.full((commons, classes * queries), common)])

    def test_singular_values(self):
        d = derive()
        values = np.linalg.svd(self.matrix(d.direction_qk), compute_uv=False)
        one, two = (float(x.subs(dict(self.numbers))) for x in d.singular_values_qk)
        np.testing.assert_allclose(values, [one, two, two, two, 0, 0, 0, 0], atol=1e-12)
        ov = self.matrix(d.direction_ov)[:, ::2]
        values = np.linalg.svd(ov, compute_uv=False)
        np.testing.assert_allclose(values, [float(sp.sqrt(3))] * 3 + [0], atol=1e-12)

    def test_other_blocks(self):
        blocks = Blocks(sp.Rational(2, 5), sp.Rational(1, 7), sp.Rational(-1, 3))
        one, two = (float(x.subs(dict(self.numbers))) for x in singular_values(blocks, Q))
        values = np.linalg.svd(self.matrix(blocks), compute_uv=False)
        np.testing.assert_allclose(values, [one, two, two, two, 0, 0, 0, 0], atol=1e-12)

    def test_modes_and_factors(self):
        d = derive()
        amplitudes = (0.7, 1.9)
        one, two = (float(x.subs(dict(self.numbers))) for x in d.singular_values_qk)
        u, _, vt = np.linalg.svd(self.matrix(d.direction_qk))
        sigmas, nus = np.array([amplitudes[0], *[amplitudes[1]] * 3]), np.array([one, two, two, two])
        expected = (u[:, :4] * sigmas) @ vt[:4]
        modes = two_modes(d.direction_qk)
        at = {sigma_1: amplitudes[0], sigma_2: amplitudes[1], nu_1: one, nu_2: two}
        np.testing.assert_allclose(self.matrix(Blocks(*(x.subs(at) for x in modes))), expected, atol=1e-12)

        # Gradient flow of aligned factors: dW/dt = (dA/dt) F^T + A (dF/dt)^T.
        imbalance, drive = 0.3, 1.7
        squared = (imbalance + np.sqrt(imbalance**2 + 4 * sigmas**2)) / 2
        o = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 4)))[0]
        a, f = (u[:, :4] * np.sqrt(squared)) @ o.T, (vt[:4].T * (sigmas / np.sqrt(squared))) @ o.T
        np.testing.assert_allclose(a @ f.T, expected, atol=1e-12)
        pull = drive * self.matrix(d.direction_qk)
        moved = (pull @ f) @ f.T + a @ (pull.T @ a).T
        rescaling = sp.lambdify((lambda_QK, sigma), d.rescaling_qk)
        np.testing.assert_allclose(
            moved, (u[:, :4] * nus * rescaling(imbalance, sigmas)) @ vt[:4] * drive, atol=1e-12
        )


class TestClosedForms:
    def test_first_integrals(self):
        d = derive()
        gamma = r * b * d.kappa * (M - 1) / 2 * beta**2
        caco, faco, cafo, fafo = (closed_form(d, p) for p in Parameterization)
        assert equal(caco.k, 2 * gamma)
        assert equal(cafo.k, 2 * gamma)
        assert equal(faco.k, (2 * gamma).subs(1 / B, 0))
        assert equal(fafo.k, faco.k)
        assert equal(caco.f_qk, mu_QK + rho * sp.exp(mu_QK))
        assert cafo.f_qk == caco.f_qk
        assert equal(faco.f_qk, beta * (sp.log(mu_QK) + rho * sp.Ei(mu_QK)) / (2 * sp.sqrt(b * Q)))
        assert fafo.f_qk == faco.f_qk
        assert equal(caco.f_ov, mu_OV**2 / 2)
        assert faco.f_ov == caco.f_ov
        assert equal(cafo.f_ov, sp.sqrt(lambda_OV**2 + 4 * b * mu_OV**2) / (4 * b))
        assert fafo.f_ov == cafo.f_ov
        assert equal(caco.mu_qk, K - sp.LambertW(rho * sp.exp(K)))
        assert cafo.mu_qk == caco.mu_qk
        assert faco.sigma_2 == fafo.sigma_2 == sigma_2_0 * (sigma_1 / sigma_1_0) ** (nu_2 / nu_1)

    @pytest.mark.parametrize("kind", Parameterization)
    def test_mu_ov_solves_the_first_integral(self, kind):
        form = closed_form(derive(), kind)
        numbers = {b: 3, lambda_OV: sp.Rational(7, 5), mu_OV_0: sp.Rational(1, 3), Delta: sp.Rational(11, 4)}
        gained = form.f_ov.subs(mu_OV, form.mu_ov) - form.f_ov.subs(mu_OV, mu_OV_0)
        assert abs(sp.N((gained - Delta).subs(numbers), 40)) < 1e-38

    def test_a_wrong_first_integral_is_refused(self):
        d = derive()
        wrong = PLANTED["kappa doubled"](d)
        object.__setattr__(wrong, "separated", d.separated)
        with pytest.raises(ArithmeticError, match="not conserved"):
            closed_form(wrong, Parameterization.CACO)

    @pytest.mark.parametrize("ratio", END_POINTS)
    def test_reference(self, ratio):
        """CACO from zero at loss 1e-4: 15 digits are given, 12 asked for."""
        lead, gap, *_ = END_POINTS[ratio]
        form = closed_form(derive(), Parameterization.CACO)
        at = {M: 20, b: 50, Q: 50, beta: 1, r: sp.nsimplify(ratio)}
        gained = (form.k * (form.f_ov.subs(mu_OV, lead))).subs(1 / B, 0).subs(at)
        value = form.mu_qk.subs(K, gained + form.f_qk.subs(mu_QK, 0)).subs(rho, sp.Rational(5, 50))
        assert float(sp.N(value, 30)) == pytest.approx(gap, rel=1e-12)


def _probe(field):
    state = (1.3, 0.4)
    sigma = 0.8
    return np.array(
        [
            field.log_odds(CONSTANTS, 0.4),
            field.log_loss(CONSTANTS, 2.0),
            field.drive_ov(CONSTANTS, *state),
            field.drive_qk(CONSTANTS, *state),
            1 / field.time_density(CONSTANTS, *state),
            field.separation(CONSTANTS),
            field.rescaling_ov(CONSTANTS, 1.3),
            field.rescaling_qk(CONSTANTS, sigma),
            field.line_gap(CONSTANTS),
        ]
    )


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_are_printed(name):
    d = derive()
    wrong = PLANTED[name](d)
    assert field_source(wrong) != field_source(d)
    assert hash(load_field(wrong)) is not None
    ours, theirs = _probe(load_field(d)), _probe(load_field(wrong))
    assert np.abs(theirs / ours - 1).max() > 0.05, "the error changes no value"
    # What follows from the drives follows from the wrong ones too.
    assert theirs[4] == pytest.approx(theirs[2], rel=1e-14)
    mu_ov, weight = 1.3, 1 + np.exp(theirs[0])
    assert theirs[3] / theirs[2] == pytest.approx(theirs[5] * mu_ov / weight, rel=1e-14)


def test_a_flow_without_stable_form_is_refused():
    odd = dataclasses.replace(derive(), drive_ov=derive().drive_ov * (1 + alpha))
    with pytest.raises(ValueError, match="No stable form"):
        field_source(odd)


def test_every_function_is_documented():
    functions = [x for x in ast.parse(field_source(derive())).body if isinstance(x, ast.FunctionDef)]
    assert all(ast.get_docstring(x) for x in functions if not x.name.startswith("_"))


def test_generated_files_are_current():
    """When this fails: `python -m qkflow.symbolic.generate`."""
    texts = generate.generated()
    assert len(texts) == 5
    for path, text in texts.items():
        assert (generate.ROOT / path).read_text(encoding="utf-8") == text, path


def test_documents_hold_the_formulas():
    text = document()
    for kind in Parameterization:
        assert f"## {kind.value}: closed form" in text
    assert "<" not in text
    assert "None" not in text
    assert text.count("$$") % 2 == 0
    assert r"K - W\left(\rho e^{K}\right)" in text
