"""Every planted error of theory or of the optimizer falsifies a claim; without one, none is falsified.

Errors of theory are planted in the symbolic derivation, printed, and judged against one stored training
record. Errors of the optimizer are trained anew.
"""

import functools
import types

import jax.numpy as jnp
import optax
import pytest

from qkflow.flow import derived
from qkflow.setting import Problem
from qkflow.symbolic import derive, load_field
from qkflow.train import circuit_labels, circuit_sgd
from qkflow.verify import measure, verify
from tests.planted import PLANTED
from tests.verify.stored import stored

QUICK = ("reduction", "rescaling", "loss_identity", "line", "scalar_map", "conserved")
"""The claims that compile no solver."""


@functools.cache
def record():
    return stored()


def falsified(field=derived, **options) -> set[str]:
    report = verify(Problem(), record=options.pop("record", None) or record(), field=field, claims=QUICK)
    return {claim.id for claim in report.claims if claim.verdict.value == "falsified"}


def test_the_derived_field_falsifies_nothing():
    assert falsified(load_field(derive())) == set()


SEEN_BY = {
    "kappa doubled": {"reduction", "scalar_map"},
    "M - 1 replaced by M": {"reduction", "scalar_map", "loss_identity"},
    "Q dropped from kappa": {"reduction", "scalar_map"},
    "m/n inverted": {"reduction", "scalar_map", "loss_identity"},
    "b for sqrt(b) in R": {"rescaling", "scalar_map"},
    "R = 1 in a factorized circuit": {"rescaling", "scalar_map"},
    "eta_QK and eta_OV swapped": {"reduction", "scalar_map"},
    "sign of a gradient": {"reduction", "scalar_map"},
}
"""The claims that an error touches; the others must hold."""


@pytest.mark.parametrize("name", list(PLANTED))
def test_an_error_of_theory_falsifies_what_it_touches(name):
    assert falsified(load_field(PLANTED[name](derive()))) == SEEN_BY[name]


def test_a_predictor_that_returns_the_start_is_falsified():
    still = types.ModuleType("still")
    still.__dict__.update(vars(derived))
    still.__dict__.update(
        drive_ov=lambda c, u, g, log_scale=0.0: jnp.zeros_like(u * g),
        drive_qk=lambda c, u, g, log_scale=0.0: jnp.zeros_like(u * g),
    )
    assert falsified(still) == {"reduction", "scalar_map"}


def labels_swapped(step_ov, step_qk):
    return circuit_sgd(step_qk, step_ov)


def qk_ascends(step_ov, step_qk):
    return circuit_sgd(step_ov, -step_qk)


def ov_too_fast(step_ov, step_qk):
    return circuit_sgd(1.001 * step_ov, step_qk)


def momentum(step_ov, step_qk):
    circuits = {"ov": optax.sgd(step_ov, 0.5), "qk": optax.sgd(step_qk, 0.5)}
    return optax.partition(circuits, circuit_labels)


def one_factor_faster(step_ov, step_qk):
    def scale(updates, state, params=None):
        updates["qk"]["left"] = updates["qk"]["left"].replace(1.1 * updates["qk"]["left"][...])
        return updates, state

    return optax.chain(
        circuit_sgd(step_ov, step_qk), optax.GradientTransformation(lambda params: optax.EmptyState(), scale)
    )


@pytest.mark.parametrize("optimizer", [labels_swapped, qk_ascends, ov_too_fast, momentum])
def test_an_error_of_the_optimizer_is_falsified(optimizer):
    wrong = measure(Problem(), names=["CACO"], optimizer=optimizer)
    assert falsified(record=wrong) == {"scalar_map"}


def test_unequal_rates_of_two_factors_break_conservation():
    wrong = measure(Problem(), names=["FAFO imbalanced"], optimizer=one_factor_faster)
    assert falsified(record=wrong) == {"scalar_map", "conserved"}
