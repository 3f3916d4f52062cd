"""What was measured on real matrices: the evidence by which every claim about training is judged.

A record is measured once, and can be stored and loaded: a theory is then judged without training anything.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from qkflow.data import count_sequences
from qkflow.flow import derived
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
from qkflow.verify.descent import descend

SMALL = OrthogonalSetting(4, 5, 2, 3, math.inf, 3)
SMALL_RATES = LearningRates(lr_ov=1.0, ratio=10.0)
"""Where matrices are trained when the given setting is too large: ratio is not 1, and Q is not b."""
TWO_MODES = OrthogonalSetting(3, 3, 2, 1, 4, 2)
"""A finite common vocabulary, small enough to be trained beside any other setting."""
MAX_SEQUENCES = 5_000
"""A larger population would take minutes to train in four parameterizations and six step sizes."""
HALVINGS = 5
LEARNED = (0.1, 0.2, 0.05)
"""Training ends where the flow's loss is this part of the start's; the first at which the order is clean."""
CLEAN = 0.035
"""How far the order seen from one step size to the next may be from 1 at the largest steps."""
UNSEEN = 1e-10
"""A mu that differs less from one step size to the next shows no order at the smallest ones."""
FIRST_STEPS = (64, 128, 256, 512, 1024)
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


@dataclasses.dataclass(frozen=True)
class Record:
    """All that was measured.

    Args:
        setting: what the trainings share, for people to read.
        trainings: by name; "CACO", "FACO", "CAFO", "FAFO", an imbalanced and a two-mode circuit.
        gradients: by the same names.
        ratios: one parameterization at increasing ratios, with one step size.
    """

    setting: Mapping[str, Any]
    trainings: Mapping[str, Training]
    gradients: Mapping[str, Gradients]
    ratios: Mapping[str, Training]

    def save(self, path: str | os.PathLike) -> None:
        """Write one compressed .npz, whole or not at all."""
        path = os.fspath(path)
        arrays, problems = {}, {}
        for group in ("trainings", "gradients", "ratios"):
            for name, part in getattr(self, group).items():
                problems[f"{group}/{name}"] = describe(part.problem)
                arrays |= {f"{group}/{name}/{key}": value for key, value in part.columns.items()}
        header = json.dumps({"setting": dict(self.setting), "problems": problems})
        draft = f"{path}.{os.getpid()}"
        with open(draft, "wb") as handle:
            np.savez_compressed(handle, header=np.array(header), **arrays)
        os.replace(draft, path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Record:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            groups: dict[str, dict[str, Any]] = {"trainings": {}, "gradients": {}, "ratios": {}}
            for place, numbers in header["problems"].items():
                group, name = place.split("/")
                prefix = place + "/"
                columns = {k.removeprefix(prefix): file[k] for k in file.files if k.startswith(prefix)}
                kind = Gradients if group == "gradients" else Training
                groups[group][name] = kind(_problem(numbers), columns)
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


def trained_problems(problem: Problem) -> dict[str, Problem]:
    """What is trained for a problem: all four parameterizations, one imbalanced and one of two modes.

    They are trained in the problem's own setting, rates and start when its population has at most
    `MAX_SEQUENCES` sequences, else in `SMALL`; the last two always in a small one.
    """
    fits = count_sequences(problem.setting) <= MAX_SEQUENCES
    setting, rates = (problem.setting, problem.rates) if fits else (SMALL, SMALL_RATES)
    given = problem.start if fits else Start()
    problems = {k.value: Problem(setting, k, rates, _start(given, k)) for k in Parameterization}
    if fits:
        problems[problem.parameterization.value] = problem
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
        names: which of `trained_problems`; `None` is all, with the ratios.
        progress: called with a line before each training.
        optimizer: makes the optax transformation of (h lr_ov, h lr_qk).
    """
    say = progress or (lambda line: None)
    problems = trained_problems(problem)
    base = problems[problem.parameterization.value]
    trainings, gradients = {}, {}
    for name in problems if names is None else names:
        say(f"training {name}")
        trained = problems[name]
        trainings[name] = _train(trained, HALVINGS, optimizer)
        gradients[name] = _gradients(trained)
    ratios = {}
    for multiple in MULTIPLES if names is None else ():
        rates = LearningRates(base.rates.lr_ov, base.rates.ratio * multiple)
        say(f"training {base.parameterization.value} at ratio {rates.ratio:g}")
        faster = dataclasses.replace(base, rates=rates)
        ratios[f"ratio {rates.ratio:g}"] = _train(faster, 0, optimizer)
    setting = {n: v for n, v in describe(base).items() if n.startswith("n_") or n in ("score_scale", "ratio")}
    return Record(setting | {"start": "aligned", "seeds": [0]}, trainings, gradients, ratios)


def resolution(problem: Problem) -> tuple[float, int]:
    """How long to train, and in how many steps at first, for the error of a step to be of first order.

    The time at which the loss is one of the parts `LEARNED` of the start's, and the smallest power of two
    from which on halving the step halves the scalar map's distance to the flow within `CLEAN`: the first
    such pair, or the cleanest of all.
    """
    best = (math.inf, 1e3 / problem.rates.lr_ov, FIRST_STEPS[-1])
    for part in LEARNED:
        end = _time_of(problem, part)
        if end is None:
            break
        for steps in FIRST_STEPS:
            runs = np.array([descend(problem, [steps * k], end / (steps * k)) for k in (1, 2, 4)])[:, :, 0]
            first, second = abs(runs[0] - runs[1]), abs(runs[1] - runs[2])
            with np.errstate(divide="ignore", invalid="ignore"):
                slopes = np.log2(first / second)
            off = float(np.max(np.where(first <= UNSEEN * abs(runs[2]), 0.0, abs(slopes - 1.0))))
            best = min(best, (off, end, steps))
            if off <= CLEAN:
                return end, steps
    return best[1:]


def _time_of(problem: Problem, part: float) -> float | None:
    """About when the loss is this part of the start's, by the map (512 steps to ever later ends)."""
    goal = _log_loss(problem, problem.start.mu_ov, problem.start.mu_qk) + math.log(part)

    def passed(end):
        mu_ov, mu_qk = descend(problem, [512], end / 512)
        return _log_loss(problem, mu_ov[0], mu_qk[0]) <= goal

    end = 1e-6 / problem.rates.lr_ov
    while not passed(end):
        if end > 1e30:
            return None
        end *= 2.0
    low, high = end / 2.0, end
    for _ in range(6):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if passed(middle) else (middle, high)
    return high


def _log_loss(problem: Problem, mu_ov: float, mu_qk: float) -> float:
    c = problem.constants
    return float(derived.log_loss(c, derived.alpha(c, mu_qk) * mu_ov))


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
        off_line = {name: column for name, column in run.extra.items() if name != "step"}
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
