"""The command line: parse, call, print."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import numpy as np

import qkflow
from qkflow.setting import (
    ArgumentError,
    LearningRates,
    Number,
    OrthogonalSetting,
    Parameterization,
    Problem,
    Start,
    exact,
)
from qkflow.train.loop import SMALL
from qkflow.trajectory import POINT_FIELDS, Trajectory, describe, dumps, write_text

SETTING_FLAGS = {
    "n_classes": "M, classes",
    "n_distinct_vocab": "b, distinct tokens of a class",
    "n_distinct": "m, distinct tokens in a sequence",
    "n_common": "n, common tokens in a sequence",
    "n_common_vocab": "B, common tokens in all; a number or inf",
    "n_query_vocab": "Q, query tokens of a class",
    "score_scale": "beta, multiplies every score",
}
START_FLAGS = {
    "mu_ov_0": "mu_OV at the start (default 0 collapsed, .01 factorized)",
    "mu_qk_0": "mu_QK at the start, the scaled gap (default 0 collapsed, .01 factorized)",
    "imbalance_ov": "lambda_OV of a factorized OV circuit (default 0)",
    "imbalance_qk": "lambda_QK of a factorized QK circuit (default 0)",
}
NUMBER = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one sentence, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Turn argparse's complaint into ours."""
        raise ArgumentError(message[:1].upper() + message[1:] + ".")


def _setting_flags(parser: argparse.ArgumentParser, plain: OrthogonalSetting) -> None:
    group = parser.add_argument_group("setting")
    for name, text in SETTING_FLAGS.items():
        _number(group, name, f"{text} (default {getattr(plain, name):g})", getattr(plain, name))
    _number(group, "lr_ov", "eta_OV, learning rate of the OV circuit (default 1)", 1.0)
    _number(group, "ratio", "r = eta_QK / eta_OV (default 1)", 1.0)
    names = [p.value for p in Parameterization]
    group.add_argument(
        "--parameterization", choices=names, default="CACO", help="attention first (default CACO)"
    )
    for name, text in START_FLAGS.items():
        _number(group, name, text, None)


def _number(group: Any, name: str, text: str, default: float | None) -> None:
    group.add_argument("--" + name.replace("_", "-"), type=_exact, default=default, metavar="X", help=text)


def _exact(text: str) -> Number:
    """The number that a flag spells: an int, a `Fraction`, or a float for inf and nan."""
    number = exact(text.strip())
    if isinstance(number, str):
        raise argparse.ArgumentTypeError(f"invalid number: {text.strip()!r}")
    return number


def _problem(args: argparse.Namespace, exactly: bool = False) -> Problem:
    """The problem of the flags, in floats or, for certificates, in exact decimals."""
    kind = Parameterization(args.parameterization)
    default = Start.default(kind)
    ov, qk = (exact(str(mu)) for mu in (default.mu_ov, default.mu_qk))
    given = {"mu_ov_0": ov, "mu_qk_0": qk, "imbalance_ov": 0, "imbalance_qk": 0}
    given |= {n: getattr(args, n) for n in START_FLAGS if getattr(args, n) is not None}
    names = [*SETTING_FLAGS, "lr_ov", "ratio"]
    given |= {name: getattr(args, name) for name in names}
    if not exactly:
        given = {name: _float(value) for name, value in given.items()}
    setting = OrthogonalSetting(**{name: given[name] for name in SETTING_FLAGS})
    start = Start(given["mu_ov_0"], given["mu_qk_0"], given["imbalance_ov"], given["imbalance_qk"])
    return Problem(setting, kind, LearningRates(given["lr_ov"], given["ratio"]), start)


def _float(number: Number) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _parser() -> Parser:
    parser = Parser(prog="qkflow", description=qkflow.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=qkflow.__version__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="{derive,solve,train,verify,reproduce}")

    def verb(name: str, run: Callable[[argparse.Namespace], int], text: str) -> Parser:
        sub = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.set_defaults(run=run)
        return sub

    derive = verb("derive", _derive, "print the derivation as Markdown with LaTeX")
    names = [p.value for p in Parameterization]
    derive.add_argument("--parameterization", choices=names, help="one of the four (default: all)")

    solve = verb("solve", _solve, "the state of the flow at losses, times or attention masses")
    _setting_flags(solve, OrthogonalSetting())
    methods = ["exact", "integrate", "certify"]
    text = "default exact; certify: balls proved to hold the exact values, flags read as exact decimals"
    solve.add_argument("--method", choices=methods, default="exact", help=text)
    target = solve.add_mutually_exclusive_group()
    for name in ("loss", "time", "log-time", "attention"):
        target.add_argument(f"--at-{name}", type=_exact, nargs="+", metavar="X", help=f"stop at each {name}")
    solve.add_argument("--solver", metavar="NAME", help="a diffrax solver, for integrate (default Dopri8)")
    solve.add_argument("--rtol", type=float, metavar="X", help="for integrate (default 1e-10)")

    train = verb("train", _train, "train the real matrices")
    _setting_flags(train, SMALL)
    train.add_argument(
        "--mode", choices=["population", "sgd"], default="population", help="default population"
    )
    _count(train, "steps", 4000, "N, number of steps")
    train.add_argument("--step-size", type=float, default=0.1, metavar="H", help="t = step H (default .1)")
    _count(train, "seeds", 1, "K, seeds 0 to K-1")
    _count(train, "batch_size", None, "sequences in a batch, for sgd (default 32)")
    _count(train, "records", 50, "geometrically spaced steps to record")
    starts = ["aligned", "identity", "random"]
    train.add_argument("--start", choices=starts, default="aligned", help="default aligned")
    train.add_argument("--start-scale", type=float, metavar="X", help="size of an identity or random start")
    _count(train, "hidden_width", None, "rows of each factor")
    train.add_argument("--out", metavar="FILE", help="write the JSON document here as well")

    verify = verb("verify", _verify, "hold theory, integration and training against each other")
    _setting_flags(verify, OrthogonalSetting())
    text = "prove the bounds for all t with ball arithmetic, flags read as exact decimals"
    verify.add_argument("--rigorous", action="store_true", help=text)
    verify.add_argument("--report", metavar="DIR", help="write DIR/report.html and DIR/report.json")

    reproduce = verb("reproduce", _reproduce, "compute a published figure again")
    figures = "fig2: maps of trained layers; fig3: loss at fixed attention; fig4: scalar equations"
    reproduce.add_argument("figure", choices=["fig2", "fig3", "fig4"], help=figures)
    text = "steps of fig2 and fig3: quick takes under a minute (default), full the published ones"
    reproduce.add_argument("--budget", choices=["quick", "full"], help=text)
    text = "of fig2 and fig3: seeds 0 to N-1 (default 2 for quick, 5 for full)"
    reproduce.add_argument("--seeds", type=int, metavar="N", help=text)
    reproduce.add_argument("--out", metavar="DIR", default="figures", help="where to draw (default figures)")

    for sub in (solve, train, verify, reproduce):
        sub.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return parser


def _count(parser: argparse.ArgumentParser, name: str, default: int | None, text: str) -> None:
    shown = "" if default is None else f" (default {default})"
    flag = "--" + name.replace("_", "-")
    parser.add_argument(flag, type=int, default=default, metavar="N", help=text + shown)


def _derive(args: argparse.Namespace) -> int:
    print(qkflow.derive(args.parameterization))
    return 0


def _solve(args: argparse.Namespace) -> int:
    certified = args.method == "certify"
    problem = _problem(args, exactly=certified)
    targets = {f"at_{n}": getattr(args, f"at_{n}") for n in ("loss", "time", "log_time", "attention")}
    if not certified:
        targets = {name: values and [_float(v) for v in values] for name, values in targets.items()}
    options: dict[str, Any] = {}
    if args.solver is not None:
        options["solver"] = _solver(args.solver)
    if args.rtol is not None:
        options["rtol"] = args.rtol
    result = qkflow.solve(problem, method=args.method, **targets, **options)
    if args.json:
        print(dumps(result.document()))
        return 0
    print(_heading(problem))
    print(_table(result, POINT_FIELDS) if isinstance(result, Trajectory) else result.table())
    return 0


def _solver(name: str) -> Any:
    import diffrax

    solver = getattr(diffrax, name, None)
    if not (isinstance(solver, type) and issubclass(solver, diffrax.AbstractAdaptiveSolver)):
        raise ArgumentError(f"Argument `solver` must be an adaptive solver of diffrax, but is {name!r}.")
    try:
        return solver()
    except TypeError:
        raise ArgumentError(
            f"Argument `solver` must be a complete solver, but {name!r} is abstract."
        ) from None


def _train(args: argparse.Namespace) -> int:
    problem = _problem(args)
    for name in START_FLAGS:
        if args.start != "aligned" and getattr(args, name) is not None:
            raise ArgumentError(f"Argument `{name}` is for the aligned start, but start is {args.start}.")
    names = ("mode", "steps", "step_size", "seeds", "batch_size", "records", "start", "start_scale")
    options = {name: getattr(args, name) for name in (*names, "hidden_width")}
    if args.out is not None:
        _writable(args.out)
    result = qkflow.train(problem, progress=lambda k, n: _progress(f"step {k} of {n}"), **options)
    text = dumps(result.document())
    if args.out:
        write_text(args.out, text + "\n")
    if args.json:
        print(text)
        return 0
    print(_heading(problem))
    if args.seeds > 1:
        print(f"mean over {args.seeds} seeds")
    print(_table(result, ("step", "t", "mu_ov", "mu_qk", "alpha", "loss", *list(result.extra)[1:])))
    return 0


def _verify(args: argparse.Namespace) -> int:
    problem = _problem(args, exactly=args.rigorous)
    if args.report is not None:
        _directory(args.report)
    report = qkflow.verify(problem, rigorous=args.rigorous, progress=_progress)
    if args.report:
        write_text(os.path.join(args.report, "report.html"), report.html())
        write_text(os.path.join(args.report, "report.json"), dumps(report.document()) + "\n")
    if args.json:
        print(dumps(report.document()))
    else:
        print(_heading(problem))
        print(report.table())
        if args.report:
            print(f"written to {os.path.join(args.report, 'report.html')} and report.json")
    return 0 if report.ok else 1


def _reproduce(args: argparse.Namespace) -> int:
    _directory(args.out)
    shown = [-np.inf]

    def progress(done: int, steps: int) -> None:
        if time.monotonic() - shown[0] > 5:
            shown[0] = time.monotonic()
            _progress(f"step {done:,} of {steps:,}")

    options = {"budget": args.budget, "seeds": args.seeds, "progress": progress}
    result = qkflow.reproduce(args.figure, out=args.out, **options)
    print(dumps(result.document()) if args.json else result.table())
    return 0


def _writable(path: str) -> None:
    folder = os.path.dirname(path) or "."
    other = os.path.exists(path) and not os.path.isfile(path)
    if not path or other or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise ArgumentError(
            f"Argument `out` must be a file in a folder that can be written, but is {path!r}."
        )


def _directory(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        raise ArgumentError(f"A folder must be possible at {path!r}, but cannot be made there.") from None


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _heading(problem: Problem) -> str:
    words = [f"{name}={value}" for name, value in describe(problem).items()]
    return textwrap.fill("  ".join(words), width=110, break_on_hyphens=False)


def _table(result: Trajectory, names: Sequence[str]) -> str:
    """Columns that line up, 12 significant digits, seeds averaged."""
    columns = []
    for name in names:
        values = np.asarray(result.extra[name] if name in result.extra else getattr(result, name))
        if values.ndim > 1:
            values = values.mean(axis=0)
        cells = [f"{v:d}" if values.dtype.kind == "i" else f"{v:.12g}" for v in values.tolist()]
        width = max(map(len, (name, *cells)))
        columns.append([cell.rjust(width) for cell in (name, *cells)])
    return "\n".join("  ".join(row) for row in zip(*columns, strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line in float64.

    Args:
        argv: the words after `qkflow`; `None` takes the process's.

    Returns:
        Exit status: 0, 1 when a claim is falsified, 2 for bad input, which is one sentence on stderr, and
        130 when interrupted.
    """
    words = sys.argv[1:] if argv is None else argv
    jax.config.update("jax_enable_x64", True)
    try:
        # A leading space makes argparse read "-1e-3" as a value and not as an option.
        args = _parser().parse_args([f" {w}" if NUMBER.match(w) else w for w in words])
        return args.run(args)
    except (ArgumentError, ArithmeticError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted; trainings that are kept go on from their last checkpoint.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"A file could not be written: {error}.", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
