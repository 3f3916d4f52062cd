"""What `verify` found: as a table, as strict JSON and as one self-contained page."""

from __future__ import annotations

import dataclasses
import html
import importlib
import inspect
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from qkflow.setting import Parameterization, Problem
from qkflow.trajectory import SCHEMA, Trajectory, describe, provenance
from qkflow.verify.claim import Claim, Verdict

_CSS = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .5rem; border-bottom: 1px solid #ddd; }
td:nth-child(2) { width: 44%; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
small { color: #555; } figure { margin: 1.2rem 0; break-inside: avoid; } figcaption { color: #444; }
svg { max-width: 100%; height: auto; } tr { break-inside: avoid; }
.verdict { font-weight: 600; white-space: nowrap; }
.proved, .verified { color: #00603c; } .falsified { color: #a32a00; }
.undecided, .out_of_scope { color: #555; }
pre { font-size: .8rem; white-space: pre-wrap; background: #f7f7f7; padding: .6rem; }
h3 { font-size: 1rem; } a { color: #0b5394; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } }
"""


_SYMBOLS = (
    "u = mu_OV, the logit gap per unit of attention; g = mu_QK, the score gap; alpha, the attention on "
    "distinct tokens; z = alpha u; rho = m/n; a0 = alpha at the start; rho0 = rho e^g0; "
    "kappa = (1/b + 1/B)/(M Q); k = r b kappa beta^2 (M-1); gamma = k/2; gamma' = k/(2 sqrt(b)); "
    "a = 2 sqrt(b Q)/beta; X = k (F_OV(u) - F_OV(u0)) with dF_OV = u du/R_OV; "
    "L(Y) = log Y + log log Y + log(e/(e-1)); A(g0), the least slope of a secant of log g + rho Ei(g) from "
    "g0; h, the step size; t = steps times h."
)


class Curves(NamedTuple):
    """What the figures of a report are drawn from.

    Args:
        growth: the problem at increasing log times, exact.
        bounds: its bounds at the same times.
        integrated: the problem, integrated.
        flow: the same parameterization where its matrices were trained, exact, until the end of the record.
        trained: columns of that record, a row a step size.
        ratios: the problem at five ratios, exact.
    """

    growth: Trajectory
    bounds: Mapping[str, Any]
    integrated: Trajectory
    flow: Trajectory
    trained: Mapping[str, Any]
    ratios: Sequence[Trajectory]


@dataclasses.dataclass(frozen=True)
class Report:
    """The claims about one problem, judged.

    Args:
        problem: what was solved at full size.
        trained: the setting whose matrices were trained, and how (plain JSON values).
        claims: in the order of the table.
        curves: what the page's figures are drawn from; `None` leaves them out.
        date: when it was begun, ISO 8601 in UTC.
        seconds: how long it took.
    """

    problem: Problem
    trained: Mapping[str, Any]
    claims: Sequence[Claim]
    curves: Curves | None = None
    date: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no claim is falsified."""
        return all(claim.verdict is not Verdict.FALSIFIED for claim in self.claims)

    def __getitem__(self, name: str) -> Claim:
        """The claim of that identifier."""
        return next(claim for claim in self.claims if claim.id == name)

    def document(self) -> dict[str, Any]:
        """The strict-JSON document: setting, claims, versions, device, dtype and seeds."""
        return {
            "schema": SCHEMA,
            "date": self.date,
            "seconds": round(self.seconds, 1),
            "setting": describe(self.problem),
            "trained": dict(self.trained),
            "seeds": self.trained["seeds"],
            "ok": self.ok,
            "claims": [claim.document() for claim in self.claims],
            **provenance(),
        }

    def table(self) -> str:
        """One line a claim in columns that line up, then a line for what a reader must know besides."""
        head = ("verdict", "claim", "scope", "error", "tolerance", "margin", "source", "held up to")
        rows = [
            (
                c.verdict.value,
                c.id,
                c.scope.value,
                _number(c.error),
                _number(c.tolerance),
                _number(c.margin),
                c.source,
                c.horizon or "-",
            )
            for c in self.claims
        ]
        widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head) - 1)]
        lines = [
            "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]))
            for row in (head, *rows)
        ]
        notes = [f"{c.verdict.value}: {c.id}: {note}" for c in self.claims if (note := _note(c))]
        made = provenance()
        return "\n".join(
            [
                *lines,
                "",
                *notes,
                f"matrices trained in: {_trained(self.trained)}",
                f"{made['dtype']}, {made['device']}, jax {made['versions']['jax']}, {self.seconds:.0f} s; "
                "margin = tolerance / error; rules and derivations: --report or --json",
                self._summary(),
            ]
        )

    def _summary(self) -> str:
        counts = {verdict: sum(c.verdict is verdict for c in self.claims) for verdict in Verdict}
        return ", ".join(f"{n} {verdict.value}" for verdict, n in counts.items() if n)

    def html(self) -> str:
        """A page that needs nothing from outside: the claims, the figures, and where all of it comes from."""
        made = provenance()
        versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        setting = ", ".join(f"{name} = {value}" for name, value in describe(self.problem).items())
        figures = "" if self.curves is None else _figures(self.curves, self.claims)
        head = "".join(
            f"<th>{name}</th>" for name in ("Claim", "Compared", "Error", "Tolerance", "Margin", "Verdict")
        )
        return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>qkflow verify</title><style>{_CSS}</style></head><body>
<h1>Theory against simulation</h1>
<p>{html.escape(setting)}</p>
<p>Matrices trained in: {html.escape(_trained(self.trained))}.</p>
<p class="verdict {"verified" if self.ok else "falsified"}">{html.escape(self._summary())}</p>
<h2>Claims</h2>
<p>Where no other rule is named, a claim is accepted when {Claim.accepted}, and falsified when
{Claim.falsified}. The margin is how many times the error fits into the tolerance.</p>
<table><thead><tr>{head}</tr></thead><tbody>
{"".join(_row(claim) for claim in self.claims)}</tbody></table>
{figures}
<h2>Symbols</h2>
<p>{_SYMBOLS}</p>
<h2>Computed with</h2>
<p><small>{html.escape(versions)}; {html.escape(made["device"])}; {made["dtype"]};
seeds {_seeds(self.trained["seeds"])}; {self.date}, {self.seconds:.0f} s.</small></p>
<h2>Where it is derived</h2>
{_derivations(self.problem, self.claims)}
</body></html>
"""


def _derivations(problem: Problem, claims: Sequence[Claim]) -> str:
    """Every place that a claim names, once: a part of the derivation, or the proof in a module."""
    places = dict.fromkeys(claim.shown for claim in claims)
    chapters = _chapters(problem) if any(place.startswith("derivation#") for place in places) else {}
    sections = []
    for place in places:
        if place.startswith("derivation#"):
            text = chapters[place.removeprefix("derivation#")]
        else:
            text = inspect.getdoc(importlib.import_module(place)) or ""
        heading, body = html.escape(place), html.escape(text)
        sections.append(f'<section id="{_slug(place)}"><h3>{heading}</h3><pre>{body}</pre></section>')
    return "\n".join(sections)


def _chapters(problem: Problem) -> dict[str, str]:
    """The derivation by heading: the problem's own parameterization, and what only a factorized one has."""
    # SymPy is imported where it is used.
    from qkflow.symbolic import document

    found = {}
    for kind in (Parameterization.FAFO, problem.parameterization):
        for chapter in document(kind).split("\n## ")[1:]:
            heading, text = chapter.split("\n", 1)
            found[heading.removeprefix(f"{kind.value}: ")] = text.strip()
    return found


def _slug(place: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", place.lower())


def _seeds(seeds: Sequence[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 3 else ", ".join(map(str, seeds))


def _figures(curves: Curves, claims: Sequence[Claim]) -> str:
    # Drawing is imported where it is used: a report without a page does without matplotlib.
    from qkflow import plots

    drawn = [
        (
            "Growth rates: the exact trajectory with the bounds that hold for all t.",
            plots.growth(curves.growth, curves.bounds),
        ),
        (
            "Phase curves: left the problem at full size, exact and integrated; right the setting whose "
            "matrices were trained, exact and the real matrices at the smallest step.",
            plots.phase(curves.ratios[2], curves.integrated, curves.flow, curves.trained),
        ),
        (
            "Five ratios of the learning rates down to the same loss: the faster the query-key circuit, the "
            "sharper attention and the smaller the logit gap at equal loss.",
            plots.ratios(curves.ratios),
        ),
    ]
    maps = [claim.details["map"] for claim in claims if "map" in claim.details]
    drawn += [
        (
            "Which parameterization is the sharpest at equal loss: it depends on the ratio, on the start of "
            "the factorized circuits and on the loss.",
            plots.sharpness_map(found),
        )
        for found in maps
    ]
    pages = (
        f"<figure>{plots.svg(figure, f'figure{k}')}<figcaption>{html.escape(caption)}</figcaption></figure>"
        for k, (caption, figure) in enumerate(drawn)
    )
    return "<h2>Figures</h2>\n" + "\n".join(pages)


def _trained(trained: Mapping[str, Any]) -> str:
    shown = {**trained, "seeds": _seeds(trained["seeds"])}
    return ", ".join(f"{name} = {value}" for name, value in shown.items())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if math.isfinite(value) else str(value)


def _note(claim: Claim) -> str:
    """What a reader must know beside the verdict: where it failed first, or why there is none."""
    notes = []
    if claim.first_violation is not None:
        where = dict(claim.first_violation)
        part, by = where.pop("part"), where.pop("times_the_tolerance", None)
        place = ", ".join(
            f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}" for k, v in where.items()
        )
        much = "" if by is None else f" by {_number(by)} times the tolerance"
        notes.append(f"first violated in {part}{much}" + (f" at {place}" if place else ""))
    return "; ".join(notes + ([claim.why] if claim.why else []))


def _row(claim: Claim) -> str:
    small = [note] if (note := _note(claim)) else []
    small += [f"held up to: {claim.horizon}"] if claim.horizon and claim.error is not None else []
    rules = {"accepted": claim.accepted, "falsified": claim.falsified}
    small += [f"{name}: {rule}" for name, rule in rules.items() if rule != getattr(Claim, name)]
    small += [f"tolerance: {claim.reason}", f"precision: {claim.precision}"]
    compared = html.escape(claim.compared) + "".join(f"<br><small>{html.escape(s)}</small>" for s in small)
    numbers = "".join(
        f'<td class="number">{_number(x)}</td>' for x in (claim.error, claim.tolerance, claim.margin)
    )
    return (
        f'<tr id="{claim.id}"><td><b>{claim.id}</b>: {html.escape(claim.statement)}<br><small>'
        f'{html.escape(claim.source)}; {claim.scope.value}; <a href="#{_slug(claim.shown)}">'
        f"{html.escape(claim.shown)}</a></small></td><td>{compared}</td>{numbers}"
        f'<td class="verdict {claim.verdict.value}">{claim.verdict.value}</td></tr>\n'
    )
