"""What was measured on real matrices: the evidence by which every claim about training is judged.

A record is measured once, and can be stored and loaded: a theory is then judged without training anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from qkflow.data import count_sequences
from qkflow.models import directions, modes
from qkflow.setting import (
    ArgumentError,
    Constants,
    LearningRates,
    OrthogonalSetting,
    Parameterization,
    Problem,
    Start,
)
from qkflow.train import circuit_sgd, effective_rates, population_gradients, train
from qkflow.trajectory import describe
from qkflow.verify.alignment import Alignment, measure_alignment
from qkflow.verify.horizon import resolution
from qkflow.verify.noise import SEEDS, Noise, measure_noise

SMALL = OrthogonalSetting(4, 5, 2, 3, math.inf, 3)
SMALL_RATES = LearningRates(lr_ov=1.0, ratio=10.0)
"""Where matrices are trained when the given setting is too large: ratio is not 1, and Q is not b."""
LARGEST_START = 3.0
"""The largest mu in its place. Where attention is all but complete, the manifold is unstable against unequal
attention to a class's tokens, and training a factorized QK circuit stretches rounding beyond all claims."""
SMALL_COMMON_VOCAB = 4
"""B in its place where the given one is finite; like Q, not b."""
TWO_MODES = OrthogonalSetting(3, 3, 2, 1, 4, 2)
"""A finite common vocabulary, small enough to be trained beside any other setting."""
TINY = OrthogonalSetting(3, 3, 2, 1, math.inf, 2)
"""Where minibatches and starts off the manifold are trained, for many seeds."""
MAX_SEQUENCES = 5_000
"""A larger population would take minutes to train in four parameterizations and six step sizes."""
HALVINGS = 5
MULTIPLES = (0.1, 1.0, 10.0)
"""Multiples of the ratio at which attention is seen to sharpen."""
POINTS = 12
SHARED = 8
"""Times at which every training is seen: the start, and the end's halvings."""
Columns = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Training:
    """One problem trained on the population, with a step size and its halvings, seen at the same times.

    Args:
        problem: what was trained, from its aligned start.
        columns: `step_size` (H,), each half of the one before; `step` (H, P), so that step times step size is
            the same in every row; and (H, P) mu_ov, mu_qk, alpha, log_loss, residuals, conserved quantities.
    """

    problem: Problem
    columns: Columns

    @property
    def t(self) -> np.ndarray:
        """(P,), the times."""
        return self.columns["step"][0] * self.columns["step_size"][0]

    @property
    def places(self) -> Columns:
        """Coordinates of the (H, P) columns: step and step_size."""
        return {"step": self.columns["step"], "step_size": self.columns["step_size"][:, None]}


@dataclasses.dataclass(frozen=True)
class Gradients:
    """What the full matrices would do at points of the manifold, without stepping in time.

    Args:
        problem: the setting, parameterization and rates; its start is not used.
        columns: (P,) arrays. The points mu_ov, mu_qk; log_loss there; drive_ov, drive_qk_shared and
            drive_qk_class, minus rate times gradient along the OV direction and the two QK modes; off_ov
            and off_qk, the part of the gradient off those directions, relative. At aligned factors, with
            imbalances imbalance_ov and imbalance_qk: rate_ov, rate_qk_shared and rate_qk_class, how many
            times as fast as collapsed.
    """

    problem: Problem
    columns: Columns


GROUPS = {
    "trainings": Training,
    "gradients": Gradients,
    "ratios": Training,
    "noise": Noise,
    "alignment": Alignment,
}
"""What a record has, and the kind of its parts."""


@dataclasses.dataclass(frozen=True)
class Record:
    """All that was measured.

    Args:
        setting: what the trainings share, for people to read.
        trainings: by name; "CACO", "FACO", "CAFO", "FAFO", an imbalanced and a two-mode circuit.
        gradients: by the same names.
        ratios: one parameterization at increasing ratios, with one step size.
        noise: minibatch training, by parameterization.
        alignment: starts off the manifold, by parameterization and start, such as "FAFO random".
    """

    setting: Mapping[str, Any]
    trainings: Mapping[str, Training]
    gradients: Mapping[str, Gradients]
    ratios: Mapping[str, Training]
    noise: Mapping[str, Noise] = dataclasses.field(default_factory=dict)
    alignment: Mapping[str, Alignment] = dataclasses.field(default_factory=dict)

    def save(self, path: str | os.PathLike) -> None:
        """Write one compressed .npz, whole or not at all."""
        path = os.fspath(path)
        arrays, problems = {}, {}
        for group in GROUPS:
            for name, part in getattr(self, group).items():
                problems[f"{group}/{name}"] = describe(part.problem)
                arrays |= {f"{group}/{name}/{key}": value for key, value in part.columns.items()}
        header = json.dumps({"setting": dict(self.setting), "problems": problems})
        draft = f"{path}.{os.getpid()}"
        try:
            with open(draft, "wb") as handle:
                np.savez_compressed(handle, header=np.array(header), **arrays)
            os.replace(draft, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(draft)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Record:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
            for place, numbers in header["problems"].items():
                group, name = place.split("/")
                prefix = place + "/"
                columns = {k.removeprefix(prefix): file[k] for k in file.files if k.startswith(prefix)}
                groups[group][name] = GROUPS[group](_problem(numbers), columns)
        return cls(header["setting"], **groups)


def _problem(numbers: Mapping[str, Any]) -> Problem:
    """The problem of `describe`."""
    c = Constants(**{name: float(numbers[name]) for name in Constants._fields})
    setting = OrthogonalSetting(*(c[:7]))
    return Problem(setting, numbers["parameterization"], LearningRates(c.lr_ov, c.ratio), Start(*c[9:]))


def _start(given: Start, kind: Parameterization) -> Start:
    """The given start where the parameterization allows it, its own default elsewhere."""
    default = Start.default(kind)
    return Start(
        mu_ov=given.mu_ov if given.mu_ov > 0 else default.mu_ov,
        mu_qk=default.mu_qk if kind.qk_factorized and given.mu_qk <= 0 else given.mu_qk,
        imbalance_ov=given.imbalance_ov if kind.ov_factorized else 0.0,
        imbalance_qk=given.imbalance_qk if kind.qk_factorized else 0.0,
    )


def _scaled_down(small: OrthogonalSetting, setting: OrthogonalSetting) -> OrthogonalSetting:
    """The small one with the other's score scale, its common vocabulary finite where the other's is."""
    common = math.inf if setting.n_common_vocab == math.inf else SMALL_COMMON_VOCAB
    return dataclasses.replace(small, n_common_vocab=common, score_scale=setting.score_scale)


def _within(start: Start) -> Start:
    mu_ov, mu_qk = np.clip([start.mu_ov, start.mu_qk], -LARGEST_START, LARGEST_START).tolist()
    return dataclasses.replace(start, mu_ov=mu_ov, mu_qk=mu_qk)


def noisy_problems(problem: Problem) -> dict[str, Problem]:
    """What is trained on minibatches: the problem, and the same with each circuit written the other way.

    In `TINY`, with the problem's score scale and start, a common vocabulary that is finite where the
    problem's is, and the rates of `trained_problems`.
    """
    kinds = [problem.parameterization.value]
    kinds.append(kinds[0].translate(str.maketrans("FC", "CF")))
    return {kind: _tiny(problem, Parameterization(kind)) for kind in kinds}


def aligning_problems(problem: Problem) -> dict[str, Problem]:
    """What is trained from starts off the manifold: FAFO, and the problem's own if it has a factor.

    In the same setting and with the same rates as `noisy_problems`.
    """
    kinds = {Parameterization.FAFO, problem.parameterization} - {Parameterization.CACO}
    return {kind.value: _tiny(problem, kind) for kind in Parameterization if kind in kinds}


def _tiny(problem: Problem, kind: Parameterization) -> Problem:
    rates = trained_problems(problem)[problem.parameterization.value].rates
    given = _within(problem.start)
    start = given if kind is problem.parameterization else _start(given, kind)
    return Problem(_scaled_down(TINY, problem.setting), kind, rates, start)


def trained_problems(problem: Problem) -> dict[str, Problem]:
    """What is trained for a problem: all four parameterizations, one imbalanced and one of two modes.

    They are trained in the problem's own setting, rates and start when its population has at most
    `MAX_SEQUENCES` sequences. Else they are trained in `SMALL`, with the problem's score scale, its start (no
    mu beyond `LARGEST_START`), a common vocabulary that is finite where the problem's is, and `SMALL_RATES`;
    the last two always in a small one.
    """
    fits = count_sequences(problem.setting) <= MAX_SEQUENCES
    setting = problem.setting if fits else _scaled_down(SMALL, problem.setting)
    rates = problem.rates if fits else SMALL_RATES
    given = problem.start if fits else _within(problem.start)
    problems = {k.value: Problem(setting, k, rates, _start(given, k)) for k in Parameterization}
    own = dataclasses.replace(problem, setting=setting, rates=rates, start=given)
    problems[own.parameterization.value] = own
    uneven = Start(0.1, 0.05, imbalance_ov=0.6, imbalance_qk=-0.4)
    return problems | {
        "FAFO imbalanced": Problem(SMALL, Parameterization.FAFO, SMALL_RATES, uneven),
        "FAFO two modes": Problem(
            TWO_MODES, Parameterization.FAFO, SMALL_RATES, Start(0.1, 0.05, imbalance_qk=0.3)
        ),
    }


def measure(
    problem: Problem,
    *,
    names: Sequence[str] | None = None,
    progress: Callable[[str], Any] | None = None,
    optimizer: Callable[[Any, Any], Any] = circuit_sgd,
) -> Record:
    """Train the matrices that `trained_problems` names, and measure their gradients.

    Args:
        problem: the problem that is to be verified.
        names: which of `trained_problems`; `None` is all, with the ratios, minibatches and starts off the
            manifold.
        progress: called with a line before each training, such as "training 3 of 14: CAFO".
        optimizer: makes the optax transformation of (h lr_ov, h lr_qk).
    """
    problems = trained_problems(problem)
    base = problems[problem.parameterization.value]
    whole = names is None
    names = list(problems) if names is None else names
    faster = [_at_multiple(base, multiple) for multiple in MULTIPLES] if whole else []
    noisy, aligning = (noisy_problems(problem), aligning_problems(problem)) if whole else ({}, {})
    lines = itertools.count(1)
    total = len(names) + len(faster) + len(noisy) + 2 * len(aligning)

    def say(line: str) -> None:
        if progress is not None:
            progress(f"training {next(lines)} of {total}: {line}")

    trainings, gradients, ratios, noise, alignment = {}, {}, {}, {}, {}
    for name in names:
        say(name)
        trainings[name] = _train(problems[name], HALVINGS, optimizer)
        gradients[name] = _gradients(problems[name])
    for trained in faster:
        say(f"{base.parameterization.value} at ratio {trained.rates.ratio:g}")
        ratios[f"ratio {trained.rates.ratio:g}"] = _train(trained, 0, optimizer)
    for name, trained in noisy.items():
        say(f"{name} on minibatches")
        noise[name] = measure_noise(trained, optimizer)
    for name, trained in aligning.items():
        for start in ("identity", "random"):
            say(f"{name} from {start} starts")
            alignment[f"{name} {start}"] = measure_alignment(trained, start, optimizer=optimizer)
    setting = {n: v for n, v in describe(base).items() if n.startswith("n_") or n in ("score_scale", "ratio")}
    return Record(
        setting | {"seeds": list(range(SEEDS)) if noise else [0]},
        trainings,
        gradients,
        ratios,
        {name: found for name, found in noise.items() if found is not None},
        {name: found for name, found in alignment.items() if found is not None},
    )


def _at_multiple(problem: Problem, multiple: float) -> Problem:
    rates = LearningRates(problem.rates.lr_ov, problem.rates.ratio * multiple)
    return dataclasses.replace(problem, rates=rates)


def _train(problem: Problem, halvings: int, optimizer: Callable[[Any, Any], Any]) -> Training:
    end, first = resolution(problem)
    rows = []
    for k in range(halvings + 1):
        steps = first * 2**k
        run = train(
            problem,
            steps=steps,
            step_size=end / steps,
            records=int(math.log2(steps)) + 1,
            optimizer=optimizer,
        )
        # Geometric records of a power of two are its halvings: those that every step size shares are kept.
        kept = np.flatnonzero(np.isin(run.extra["step"], [0, *(steps // 2**i for i in range(SHARED - 1))]))
        fields = {name: getattr(run, name) for name in ("mu_ov", "mu_qk", "alpha", "log_loss")}
        off_line = {n: c for n, c in run.extra.items() if n != "step" and not n.startswith("outside")}
        row = {name: np.asarray(column)[0, kept] for name, column in (fields | off_line).items()}
        rows.append(row | {"step": run.extra["step"][kept], "step_size": np.asarray(end / steps)})
    return Training(problem, {name: np.stack([row[name] for row in rows]) for name in rows[0]})


def _gradients(problem: Problem) -> Gradients:
    """Points drawn on the manifold, off the line where the circuit leaves it."""
    setting, kind = problem.setting, problem.parameterization
    random = np.random.default_rng(0)
    u, g = random.uniform(0.1, 6.0, POINTS), random.uniform(0.05, 4.0, POINTS)
    qk_line, ov_line = directions(setting)
    shared, by_class = modes(qk_line)
    gap = float(setting.score_scale) * (1 / setting.n_distinct_vocab + 1 / float(setting.n_common_vocab))
    tilt = random.uniform(0.5, 1.5, POINTS) if kind.qk_factorized else np.ones(POINTS)
    qk = (g / gap)[:, None, None] * (tilt[:, None, None] * shared + by_class)
    # Common keys have no column where their vocabulary is infinite: their entry is 0.
    distinct = np.array([matrix[qk_line > 0].mean() for matrix in qk])
    common = np.array([matrix[qk_line < 0].mean() if (qk_line < 0).any() else 0.0 for matrix in qk])
    compute = jax.jit(jax.vmap(lambda qk, ov: population_gradients(setting, qk, ov)))
    found = compute(qk, u[:, None, None] * ov_line)
    down_qk, down_ov = (
        -np.asarray(found.qk) * problem.rates.lr_qk,
        -np.asarray(found.ov) * problem.rates.lr_ov,
    )

    def along(matrices, direction):
        return np.tensordot(matrices, direction, 2) / np.vdot(direction, direction)

    def off(matrices, direction):
        rest = matrices - along(matrices, direction)[:, None, None] * direction
        return np.linalg.norm(rest, axis=(1, 2)) / np.linalg.norm(matrices, axis=(1, 2))

    uneven = random.uniform(-1.0, 1.0, (2, POINTS)) * [[kind.ov_factorized], [kind.qk_factorized]]
    rates = [
        effective_rates(dataclasses.replace(problem, start=Start(*point)))
        for point in zip(u, g, *uneven, strict=True)
    ]
    columns = {
        "mu_ov": u,
        "mu_qk": float(setting.score_scale) * (distinct - common),
        "line_mu_qk": g,
        "log_loss": np.log(np.asarray(found.loss)),
        "drive_ov": along(down_ov, ov_line),
        "drive_qk_shared": along(down_qk, shared),
        "drive_qk_class": along(down_qk, by_class),
        "off_ov": off(down_ov, ov_line),
        "off_qk": off(down_qk, qk_line),
        "imbalance_ov": uneven[0],
        "imbalance_qk": uneven[1],
        "rate_ov": np.array([rate.ov for rate in rates]),
        "rate_qk_shared": np.array([rate.qk_shared for rate in rates]),
        "rate_qk_class": np.array([rate.qk_class for rate in rates]),
    }
    return Gradients(problem, columns)


def require_float64() -> None:
    """Refuse float32, in which no identity could be told from an error.

    Raises:
        ArgumentError: when jax_enable_x64 is off.
    """
    if not jax.config.read("jax_enable_x64"):
        raise ArgumentError("Verifying needs float64: set jax_enable_x64 first.")
