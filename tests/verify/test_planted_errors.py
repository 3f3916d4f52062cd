"""Every planted error falsifies the claims that it touches, and no other; without one, none is falsified.

Errors of theory are planted in the symbolic derivation or in a bound, printed, and judged against one stored
training record. Errors of training are trained anew in the small setting. By how much each claim fails is
shown in the summary of the test run.
"""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import optax
import pytest

from qkflow.flow import asymptotics, derived
from qkflow.setting import Problem
from qkflow.symbolic import derive, load_field
from qkflow.train import circuit_labels, circuit_sgd
from qkflow.verify import Record, Verdict, measure, verify
from qkflow.verify.verify import MODULES
from tests.planted import PLANTED
from tests.verify.stored import stored

TRAINED = ("CACO", "FAFO imbalanced", "FAFO two modes")
"""Every path of the flow: collapsed, factorized with imbalances, two modes."""
CLAIMS = [
    module.CLAIM.id
    for module in MODULES
    if module.CLAIM.id not in ("ov_rate", "qk_rate", "attention_rate", "sharpness_order")
]
"""All but those that solve twelve more problems with each theory: in their tests, constants are planted."""
FLOW = {"derivation", "scalar_map", "gradient_descent_order", "training_limit"}
"""Claims that a wrong velocity anywhere in the flow touches."""

SOLVED = {"first_integral", "exact_integrated", "ov_logarithmic", "qk_bounded", "sharper"}
"""Claims about solutions, which a flow that never learns does not have."""


@functools.cache
def record() -> Record:
    whole = stored()
    return dataclasses.replace(whole, trainings={name: whole.trainings[name] for name in TRAINED})


@pytest.fixture
def falsified(record_property):
    """Identifiers of the falsified claims; by how much they fail goes into the summary."""

    def judge(name, field=derived, seen=None) -> set[str]:
        report = verify(Problem(), record=seen or record(), field=field, claims=CLAIMS)
        found = {claim.id: claim.margin for claim in report.claims if claim.verdict is Verdict.FALSIFIED}
        margins = [
            f"{claim} {1 / margin:.1e}" if margin else f"{claim} inf" for claim, margin in found.items()
        ]
        record_property("planted", f"{name}: {', '.join(margins) or 'none'}")
        return set(found)

    return judge


def test_the_derived_field_falsifies_nothing(falsified):
    assert falsified("nothing", load_field(derive())) == set()


SEEN_BY = {
    "kappa doubled": FLOW | {"reduction", "first_integral"},
    "M - 1 replaced by M": FLOW
    | {"reduction", "loss_identity", "first_integral", "ov_logarithmic", "sharper"},
    "Q dropped from kappa": FLOW | {"reduction", "first_integral"},
    "m/n inverted": FLOW | {"reduction", "loss_identity", "first_integral"},
    "b for sqrt(b) in R": FLOW | {"rescaling"},
    "R = 1 in a factorized circuit": FLOW | {"rescaling"},
    "imbalance dropped from R": FLOW | {"rescaling"},
    "R of the product, not of its square root": FLOW | {"rescaling"},
    "eta_QK and eta_OV swapped": FLOW | {"reduction", "sharper"},  # the problem's own rates are equal
    "sign of a gradient": FLOW | {"reduction"} | SOLVED,
    "common keys that do not learn": FLOW | {"rescaling"},
    "score scale dropped": {"derivation"},
}
"""The claims that an error touches. The others must hold: a bound, for instance, is one of any such flow."""


@pytest.mark.parametrize("name", list(PLANTED))
def test_an_error_of_theory_falsifies_what_it_touches(falsified, name):
    assert falsified(name, load_field(PLANTED[name](derive()))) == SEEN_BY[name]


def test_a_predictor_that_returns_the_start_is_falsified(falsified):
    still = types.ModuleType("still")
    still.__dict__.update(vars(derived))
    still.__dict__.update(
        drive_ov=lambda c, u, g, log_scale=0.0: jnp.zeros_like(u * g),
        drive_qk=lambda c, u, g, log_scale=0.0: jnp.zeros_like(u * g),
    )
    touched = {"derivation", "reduction", "scalar_map"} | SOLVED - {"qk_bounded"}
    assert falsified("zero drives", still) == touched


def test_a_bound_with_half_its_constant_is_falsified(falsified, monkeypatch):
    right = asymptotics._x
    monkeypatch.setattr(asymptotics, "_x", lambda *arguments: right(*arguments) / 2.0)
    assert falsified("X halved in the bounds of mu_QK") == {"qk_bounded"}


def labels_swapped(step_ov, step_qk):
    return circuit_sgd(step_qk, step_ov)


def qk_ascends(step_ov, step_qk):
    return circuit_sgd(step_ov, -step_qk)


def ov_too_fast(step_ov, step_qk):
    return circuit_sgd(1.001 * step_ov, step_qk)


def momentum(step_ov, step_qk):
    circuits = {"ov": optax.sgd(step_ov, 0.5), "qk": optax.sgd(step_qk, 0.5)}
    return optax.partition(circuits, circuit_labels)


def decay(step_ov, step_qk):
    return optax.chain(optax.add_decayed_weights(1e-4), circuit_sgd(step_ov, step_qk))


def one_factor_faster(step_ov, step_qk):
    def scale(updates, state, params=None):
        updates["qk"]["left"] = updates["qk"]["left"].replace(1.1 * updates["qk"]["left"][...])
        return updates, state

    return optax.chain(
        circuit_sgd(step_ov, step_qk), optax.GradientTransformation(lambda params: optax.EmptyState(), scale)
    )


def one_class_unseen(step_ov, step_qk):
    """The gradient of a population that lacks its first class in the OV circuit."""

    def drop(updates, state, params=None):
        return jax.tree.map(lambda x: x.at[0].set(0.0) if x.shape[0] == 4 else x, updates), state

    return optax.chain(
        optax.GradientTransformation(lambda params: optax.EmptyState(), drop), circuit_sgd(step_ov, step_qk)
    )


PATH = {"scalar_map", "gradient_descent_order", "training_limit"}
"""Claims about where gradient descent goes."""
TRAININGS = {
    labels_swapped: PATH | {"first_integral"},
    qk_ascends: PATH | {"first_integral"},
    ov_too_fast: PATH | {"first_integral"},
    momentum: PATH,
    decay: PATH | {"first_integral"},
    one_class_unseen: PATH | {"line", "loss_identity", "first_integral"},
}


@pytest.mark.parametrize("optimizer", list(TRAININGS))
def test_an_error_of_training_falsifies_what_it_touches(falsified, optimizer):
    wrong = measure(Problem(), names=["CACO"], optimizer=optimizer)
    assert falsified(optimizer.__name__, seen=wrong) == TRAININGS[optimizer]


def test_unequal_rates_of_two_factors_break_conservation(falsified):
    wrong = measure(Problem(), names=["FAFO imbalanced"], optimizer=one_factor_faster)
    touched = PATH | {"conserved", "first_integral"}
    assert falsified("one factor faster", seen=wrong) == touched
