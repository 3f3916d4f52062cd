"""What `verify` found: as a table, as strict JSON and as one self-contained page."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from qkflow.setting import Problem
from qkflow.trajectory import SCHEMA, Trajectory, describe, provenance
from qkflow.verify.claim import Claim, Verdict

_CSS = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .5rem; border-bottom: 1px solid #ddd; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
small { color: #555; } figure { margin: 1.2rem 0; break-inside: avoid; } figcaption { color: #444; }
svg { max-width: 100%; height: auto; } tr { break-inside: avoid; }
.verdict { font-weight: 600; white-space: nowrap; }
.proved, .verified { color: #00603c; } .falsified { color: #a32a00; }
.undecided, .out_of_scope { color: #555; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } }
"""


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
    """

    problem: Problem
    trained: Mapping[str, Any]
    claims: Sequence[Claim]
    curves: Curves | None = None

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
            "setting": describe(self.problem),
            "trained": dict(self.trained),
            "seeds": self.trained["seeds"],
            "ok": self.ok,
            "claims": [claim.document() for claim in self.claims],
            **provenance(),
        }

    def table(self) -> str:
        """One line a claim in columns that line up, then a line for what is not simply verified."""
        head = ("verdict", "claim", "error", "tolerance", "source", "what was compared")
        rows = [
            (c.verdict.value, c.id, _number(c.error), _number(c.tolerance), c.source, c.compared)
            for c in self.claims
        ]
        widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head) - 1)]
        lines = [
            "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]))
            for row in (head, *rows)
        ]
        notes = [f"{c.verdict.value}: {c.id}: {note}" for c in self.claims if (note := _note(c))]
        return "\n".join(
            [*lines, "", f"matrices trained in: {_trained(self.trained)}", *notes, self._summary()]
        )

    def _summary(self) -> str:
        counts = {verdict: sum(c.verdict is verdict for c in self.claims) for verdict in Verdict}
        return ", ".join(f"{n} {verdict.value}" for verdict, n in counts.items() if n)

    def html(self) -> str:
        """A page that needs nothing from outside: the claims, the figures, and where they were computed."""
        made = provenance()
        versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        setting = ", ".join(f"{name} = {value}" for name, value in describe(self.problem).items())
        figures = "" if self.curves is None else _figures(self.curves)
        head = "".join(f"<th>{name}</th>" for name in ("Claim", "Compared", "Error", "Tolerance", "Verdict"))
        return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>qkflow verify</title><style>{_CSS}</style></head><body>
<h1>Theory against simulation</h1>
<p>{html.escape(setting)}</p>
<p>Matrices trained in: {html.escape(_trained(self.trained))}.</p>
<p class="verdict {"verified" if self.ok else "falsified"}">{html.escape(self._summary())}</p>
<h2>Claims</h2>
<table><thead><tr>{head}</tr></thead><tbody>
{"".join(_row(claim) for claim in self.claims)}</tbody></table>
{figures}
<h2>Computed with</h2>
<p><small>{html.escape(versions)}; {html.escape(made["device"])}; {made["dtype"]};
seeds {self.trained["seeds"]}.</small></p>
</body></html>
"""


def _figures(curves: Curves) -> str:
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
    pages = (
        f"<figure>{plots.svg(figure, f'figure{k}')}<figcaption>{html.escape(caption)}</figcaption></figure>"
        for k, (caption, figure) in enumerate(drawn)
    )
    return "<h2>Figures</h2>\n" + "\n".join(pages)


def _trained(trained: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in trained.items())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}" if math.isfinite(value) else str(value)


def _note(claim: Claim) -> str:
    """What a reader must know beside the verdict: why there is none, or where it failed."""
    if "why" in claim.details:
        return str(claim.details["why"])
    if claim.verdict is Verdict.FALSIFIED:
        return f"worst at {claim.details['worst']}"
    return ""


def _row(claim: Claim) -> str:
    note = _note(claim) or str(claim.details.get("horizon", ""))
    small = [note] if note else []
    small += [f"tolerance: {claim.reason}"]
    compared = html.escape(claim.compared) + "".join(f"<br><small>{html.escape(s)}</small>" for s in small)
    return (
        f'<tr id="{claim.id}"><td><b>{claim.id}</b>: {html.escape(claim.statement)}<br><small>'
        f"{html.escape(claim.source)}; {claim.scope}</small></td><td>{compared}</td>"
        f'<td class="number">{_number(claim.error)}</td><td class="number">{_number(claim.tolerance)}'
        f'</td><td class="verdict {claim.verdict.value}">{claim.verdict.value}</td></tr>\n'
    )
