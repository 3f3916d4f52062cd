"""Gradient descent on the real matrices, recorded in the variables of the reduced flow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from qkflow.data import MAX_SEQUENCES, Sequences, count_sequences, population, sample
from qkflow.models import aligned_start, directions, identity_start, random_start
from qkflow.setting import ArgumentError, OrthogonalSetting, Problem, require
from qkflow.train.rates import circuit_sgd
from qkflow.train.record import Lines, counts_only, mean_loss, observe
from qkflow.trajectory import Trajectory

SMALL = OrthogonalSetting(4, 5, 2, 3, 7, 3)
"""The setting that is trained by default: 4,200 sequences."""
START_SCALE = 0.01
BATCH_SIZE = 32
EVALUATION_SEQUENCES = 4096
_EVALUATION_SEED = 2**31 - 1
_STATIC = ("graph", "shape")


@functools.partial(jax.jit, static_argnames=(*_STATIC, "batch_size", "optimizer"))
def _advance(
    carry, keys, data, first, last, score_scale, step_ov, step_qk, *, graph, shape, batch_size, optimizer
):
    """Parameters and optimizer memory of every seed after the steps `first` to `last` - 1.

    `data` is the population, or None to draw fresh sequences. Static are shapes and functions alone.
    """
    descent = optimizer(step_ov, step_qk)

    def loss(params, batch):
        return mean_loss(nnx.merge(graph, params), batch, shape, score_scale)

    def descend(carry, key):
        def step(i, carry):
            params, memory = carry
            batch = sample(jax.random.fold_in(key, i), shape, batch_size) if data is None else data
            updates, memory = descent.update(jax.grad(loss)(params, batch), memory, params)
            return optax.apply_updates(params, updates), memory

        return jax.lax.fori_loop(first, last, step, carry)

    return jax.vmap(descend)(carry, keys)


@functools.partial(jax.jit, static_argnames=_STATIC)
def _observe(params, initial, data, lines, score_scale, *, graph, shape):
    """The record of every seed, each column of shape (seeds,)."""

    def one(pair):
        model, start = (nnx.merge(graph, p) for p in pair)
        return observe(model, start, data, lines, shape, score_scale)

    # One seed after the other: the loss may run over a million sequences.
    return jax.lax.map(one, (params, initial))


def record_steps(steps: int, records: int) -> np.ndarray:
    """Step numbers of a record: 0, the unique rounded geometric steps from 1, and `steps`.

    >>> record_steps(1000, 4)
    array([   0,    1,   10,  100, 1000])
    """
    return np.unique([0, *np.rint(np.geomspace(1, steps, records)).astype(int), steps])


def _choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ArgumentError(f"Argument `{name}` must be one of {', '.join(choices)}, but is {value!r}.")


def _whole(x: np.ndarray) -> np.ndarray:
    return np.isfinite(x) & (x == np.floor(x)) & (x >= 1)


def _initial(problem: Problem, start: str, scale: float, hidden_width: int | None, seeds: int):
    """The graph of the layer and its parameters, with a leading axis of seeds."""
    if start == "aligned":
        models = [aligned_start(problem, hidden_width)] * seeds
    elif start == "identity":
        models = [identity_start(problem, scale, hidden_width)] * seeds
    else:
        models = [random_start(problem, scale, seed, hidden_width) for seed in range(seeds)]
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *map(nnx.state, models))
    return nnx.graphdef(models[0]), stacked


def train(
    problem: Problem | None = None,
    *,
    mode: str = "population",
    steps: int = 4000,
    step_size: float = 0.1,
    seeds: int = 1,
    start: str = "aligned",
    start_scale: float | None = None,
    hidden_width: int | None = None,
    batch_size: int | None = None,
    records: int = 50,
    progress: Callable[[int, int], Any] | None = None,
    optimizer: Callable[[Any, Any], optax.GradientTransformation] = circuit_sgd,
) -> Trajectory:
    """Train the matrices of a layer by gradient descent.

    A step of size H moves OV by H lr_ov and QK by H lr_ov ratio times the negative gradient of the mean
    cross-entropy; time is t = step H. All seeds advance together. A change of a rate, the ratio, the score
    scale, a start value, the step size, the number of steps or of records compiles nothing anew.

    Args:
        problem: setting, parameterization, rates and start, concrete scalars; `None` is `Problem(SMALL)`.
        mode: "population" (the mean over every sequence of the setting) or "sgd" (fresh random sequences).
        steps: N, number of steps.
        step_size: H.
        seeds: K; the seeds are 0 to K - 1. They decide a random start and the sequences of "sgd".
        start: "aligned" (the problem's own, on the line), "identity" or "random"; see `qkflow.models`.
        start_scale: size of the identity or of the random entries; by default .01.
        hidden_width: width of the factors; by default the rank (aligned) or the number of tokens.
        batch_size: sequences in a step of "sgd"; by default 32.
        records: number of geometric steps that are recorded, besides 0 and N; equal ones count once.
        progress: called with (steps done, steps) after each record.
        optimizer: makes the optax transformation of (H lr_ov, H lr_qk); hashable, and the same object when
            nothing is to be compiled anew.

    Returns:
        A trajectory with method `mode` and arrays of shape (seeds, points); t, log_t and `extra["step"]`
        have shape (points,). `extra` holds the residuals and conserved quantities of
        `qkflow.train.record.observe`. Loss and attention are means over every sequence; in "sgd" with more
        than `MAX_SEQUENCES` they are means over `EVALUATION_SEQUENCES` random ones, the same at every record.

    Raises:
        ArgumentError: for an argument outside its range or without effect, a population that is too large,
            or a training that leaves the finite numbers.

    >>> from qkflow.setting import OrthogonalSetting
    >>> trained = train(Problem(OrthogonalSetting(4, 5, 2, 3, 7, 3)), steps=10, records=3)
    >>> trained.mu_ov.shape, trained.extra["step"].tolist()
    ((1, 4), [0, 1, 3, 10])
    """
    _choice("mode", mode, ("population", "sgd"))
    _choice("start", start, ("aligned", "identity", "random"))
    problem = Problem(SMALL) if problem is None else problem.in_floats()
    kind = problem.parameterization
    if start == "aligned" and start_scale is not None:
        raise ArgumentError(
            "Argument `start_scale` is for the identity and random starts, but start is aligned."
        )
    if mode == "population" and batch_size is not None:
        raise ArgumentError("Argument `batch_size` is for the mode sgd, but mode is population.")
    if hidden_width is not None and not (kind.qk_factorized or kind.ov_factorized):
        raise ArgumentError("Argument `hidden_width` is for factorized circuits, but CACO has none.")
    batch_size = BATCH_SIZE if batch_size is None else batch_size
    for name, value in (("steps", steps), ("seeds", seeds), ("batch_size", batch_size), ("records", records)):
        require(name, value, _whole, "a whole number of at least 1")
    require("step_size", step_size, lambda x: (x > 0) & np.isfinite(x), "positive and finite")
    if start_scale is not None:
        require("start_scale", start_scale, lambda x: (x > 0) & np.isfinite(x), "positive and finite")
    if hidden_width is not None:
        require("hidden_width", hidden_width, _whole, "a whole number of at least 1")
    for name, value in problem.constants._asdict().items():
        if np.ndim(value):
            raise ArgumentError(f"Argument `{name}` must be a single number in training, but is an array.")

    seeds, steps, records = int(seeds), int(steps), int(records)
    hidden_width = None if hidden_width is None else int(hidden_width)
    batch = None if mode == "population" else int(batch_size)
    scale = START_SCALE if start_scale is None else float(start_scale)

    shape = counts_only(problem.setting)
    if batch is None or count_sequences(shape) <= MAX_SEQUENCES:
        evaluated = population(shape)
    else:
        evaluated = sample(jax.random.key(_EVALUATION_SEED), shape, EVALUATION_SEQUENCES)
    evaluated = Sequences(*map(jnp.asarray, evaluated))
    lines = Lines(*map(jnp.asarray, directions(shape)))

    # Without randomness all seeds are one; it is trained once and shown as many times.
    trained = 1 if batch is None and start != "random" else seeds
    keys = jax.vmap(jax.random.key)(jnp.arange(trained))
    graph, initial = _initial(problem, start, scale, hidden_width, trained)

    step_size, beta = float(step_size), float(problem.setting.score_scale)
    step_ov, step_qk = step_size * float(problem.rates.lr_ov), step_size * float(problem.rates.lr_qk)
    carry = initial, jax.vmap(optimizer(step_ov, step_qk).init)(initial)
    rows: list[dict[str, np.ndarray]] = []
    recorded = record_steps(steps, records)
    done = 0
    for step in recorded.tolist():
        carry = _advance(
            carry,
            keys,
            evaluated if batch is None else None,
            done,
            step,
            beta,
            step_ov,
            step_qk,
            graph=graph,
            shape=shape,
            batch_size=batch,
            optimizer=optimizer,
        )
        done = step
        row = _observe(carry[0], initial, evaluated, lines, beta, graph=graph, shape=shape)
        rows.append({name: np.asarray(value) for name, value in row.items()})
        # The loss itself may underflow.
        if not all(np.isfinite(value).all() for name, value in rows[-1].items() if name != "log_loss"):
            raise ArgumentError(
                f"Argument `step_size` must be smaller: with {step_size} the matrices are no longer finite "
                f"at step {step}."
            )
        if progress is not None:
            progress(step, steps)

    t = recorded * step_size
    table = {
        name: np.broadcast_to(np.stack([row[name] for row in rows], axis=-1), (seeds, len(recorded)))
        for name in rows[0]
    }
    named = ("mu_ov", "mu_qk", "alpha", "log_one_minus_alpha", "log_loss")
    return Trajectory(
        problem=problem,
        method=mode,
        t=t,
        log_t=np.log(t, out=np.full_like(t, -np.inf), where=t > 0),
        **{name: table.pop(name) for name in named},
        extra={"step": recorded, **table},
        options={
            "mode": mode,
            "steps": steps,
            "step_size": step_size,
            "seeds": list(range(seeds)),
            "start": start,
            "start_scale": None if start == "aligned" else scale,
            "hidden_width": hidden_width,
            "batch_size": batch,
            "records": records,
        },
        stats={"sequences": len(evaluated.classes)},
    )
