"""Every figure, from results alone: colour-blind safe, and readable in print by line style."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import matplotlib.patches
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qkflow.trajectory import Trajectory, write_bytes, write_text

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's palette, the ones that show on white first."""
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
LABELS = {
    "mu_ov": "logit gap $\\mu_{OV}$ (nats)",
    "mu_qk": "score gap $\\mu_{QK}$ (nats)",
    "alpha": "attention on distinct tokens $\\alpha$",
    "loss": "loss (nats)",
    "log_t": "$\\log t$, $t$ = steps $\\times$ step size",
    "tau": "$\\log_{10}(1 + \\tau)$, $\\tau = t\\,\\min(\\eta_{OV}, \\eta_{QK})$",
}
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "qkflow",
}


def _figure(width: float, height: float, rows: int, columns: int) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(LABELS[x])
    axes.set_ylabel(LABELS[y])


def growth(trajectory: Trajectory, bounds: Mapping[str, Any]) -> Figure:
    """mu_OV and mu_QK against log t, with the bounds of each, both axes logarithmic.

    Args:
        trajectory: one problem at increasing log times.
        bounds: by name, objects with `quantity`, `formula` and `value` at the same times; those whose value
            is `None` are left out.
    """
    with matplotlib.rc_context(_STYLE):
        figure, panels = _figure(9.0, 4.6, 1, 2)
        shown = np.asarray(trajectory.log_t) >= 1.0
        x = np.asarray(trajectory.log_t)[shown]
        for axes, quantity in zip(panels, ("mu_ov", "mu_qk"), strict=True):
            state = np.asarray(getattr(trajectory, quantity))[shown]
            axes.plot(x, state, color="black", lw=2.4, label="exact")
            mine = [b for b in bounds.values() if b.quantity == quantity and b.value is not None]
            for k, bound in enumerate(mine):
                value = np.asarray(bound.value)[shown]
                value = np.where(np.isfinite(value) & (value > 0), value, np.nan)
                style = {"color": COLOURS[k % len(COLOURS)], "ls": LINES[(k + 1) % len(LINES)]}
                axes.plot(x, value, label=bound.formula, **style)
            axes.set(xscale="log", yscale="log", ylim=_room(state))
            _label(axes, "log_t", quantity)
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=7)
    return figure


def _room(state: np.ndarray) -> tuple[float, float]:
    """Limits that show the curve and two decades above it, whatever the bounds do."""
    positive = state[state > 0]
    if not positive.size:
        return 0.1, 10.0
    return max(float(positive.min()), 1e-3 * float(positive.max())) / 2.0, 100.0 * float(positive.max())


def phase(exact: Trajectory, integrated: Trajectory, flow: Trajectory, trained: Mapping[str, Any]) -> Figure:
    """mu_QK against mu_OV: the first integral with integrated points, and with points of trained matrices.

    Args:
        exact: the problem at full size, a fine curve.
        integrated: the same, integrated.
        flow: the trained problem, exact.
        trained: the columns of its training; the last row is drawn.
    """
    with matplotlib.rc_context(_STYLE):
        figure, (left, right) = _figure(9.0, 3.8, 1, 2)
        left.plot(exact.mu_ov, exact.mu_qk, color="black", label="first integral (exact)")
        left.plot(integrated.mu_ov, integrated.mu_qk, "o", mfc="none", color=COLOURS[0], label="integrated")
        right.plot(flow.mu_ov, flow.mu_qk, color="black", label="exact flow")
        trained_style = {"color": COLOURS[1], "label": "trained matrices"}
        right.plot(trained["mu_ov"][-1], trained["mu_qk"][-1], "x", **trained_style)
        for axes in (left, right):
            _label(axes, "mu_ov", "mu_qk")
            axes.legend()
    return figure


def _log_tau(trajectory: Trajectory) -> np.ndarray:
    rates = trajectory.problem.rates
    return np.log1p(np.asarray(trajectory.t) * min(rates.lr_ov, rates.lr_qk)) / np.log(10.0)


def _by_ratio(axes: Axes, curves: Sequence[Trajectory], x: str, y: str) -> None:
    for k, curve in enumerate(curves):
        horizontal = _log_tau(curve) if x == "tau" else getattr(curve, x)
        style = {"color": COLOURS[k % len(COLOURS)], "ls": LINES[k % len(LINES)]}
        axes.plot(horizontal, getattr(curve, y), label=f"r = {curve.problem.rates.ratio:g}", **style)
    if y == "loss":
        axes.set_yscale("log")
    if x == "loss":
        axes.set_xscale("log")
        axes.invert_xaxis()
    if y == "alpha":
        axes.set_ylim(0.0, 1.02)
    _label(axes, x, y)


def ratios(curves: Sequence[Trajectory]) -> Figure:
    """mu_OV, mu_QK, alpha and the loss against time, a curve for every ratio of learning rates."""
    with matplotlib.rc_context(_STYLE):
        figure, panels = _figure(9.0, 5.6, 2, 2)
        for axes, y in zip(panels, ("mu_ov", "mu_qk", "alpha", "loss"), strict=True):
            _by_ratio(axes, curves, "tau", y)
        panels[0].legend()
    return figure


def time_and_loss(by_time: Sequence[Trajectory], by_loss: Sequence[Trajectory]) -> Figure:
    """Two rows: four observables against time, then three of them where the loss first falls below L.

    Args:
        by_time: a curve for every ratio.
        by_loss: the same ratios at stopping losses.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(13.0, 6.4), layout="constrained")
        grid = figure.add_gridspec(2, 12)
        first = [figure.add_subplot(grid[0, 3 * k : 3 * k + 3]) for k in range(4)]
        second = [figure.add_subplot(grid[1, 4 * k : 4 * k + 4]) for k in range(3)]
        for axes, y in zip(first, ("mu_ov", "mu_qk", "loss", "alpha"), strict=True):
            _by_ratio(axes, by_time, "tau", y)
        for axes, y in zip(second, ("mu_ov", "mu_qk", "alpha"), strict=True):
            _by_ratio(axes, by_loss, "loss", y)
            axes.set_xlabel("stopping loss L (nats)")
        first[0].legend()
    return figure


def sharpness_map(drawn: Mapping[str, Any]) -> Figure:
    """Which parameterization has the sharpest attention at equal loss: a panel for every loss.

    Args:
        drawn: "ratios" (R,), "starts" (S,), "losses" (L,) and "orders", (R, S, L) texts, sharpest first, as
            `SharpnessMap.document` gives them; cells with an empty text stay white.
    """
    orders = np.asarray(drawn["orders"])
    names = [str(name) for name in np.unique(orders) if name]
    with matplotlib.rc_context(_STYLE):
        figure, panels = _figure(3.1 * len(drawn["losses"]) + 0.4, 3.4, 1, len(drawn["losses"]))
        for k, (axes, loss) in enumerate(zip(panels, drawn["losses"], strict=True)):
            for place, text in np.ndenumerate(orders[:, :, k]):
                if text:
                    # the number reads in print what the colour says on a screen
                    number = names.index(str(text))
                    axes.add_patch(
                        matplotlib.patches.Rectangle(
                            (place[0] - 0.5, place[1] - 0.5), 1.0, 1.0, fc=COLOURS[number % 6], ec="white"
                        )
                    )
                    axes.text(*place, str(number + 1), ha="center", va="center", fontsize=8)
            axes.set_xlim(-0.5, orders.shape[0] - 0.5)
            axes.set_ylim(-0.5, orders.shape[1] - 0.5)
            axes.set_xticks(range(orders.shape[0]), [f"{x:.3g}" for x in drawn["ratios"]], rotation=60)
            axes.set_yticks(range(orders.shape[1]), [f"{x:.2g}" for x in drawn["starts"]])
            axes.grid(visible=False)
            axes.set_title(f"at loss {loss:.2g} nats")
            axes.set_xlabel("ratio $r = \\eta_{QK}/\\eta_{OV}$")
        panels[0].set_ylabel("start of factorized circuits (nats)")
        handles = [
            matplotlib.patches.Patch(fc=COLOURS[k % 6], label=f"{k + 1}: {name}")
            for k, name in enumerate(names)
        ]
        title = "attention at equal loss, sharpest first"
        figure.legend(handles=handles, loc="outside lower center", ncols=3, title=title)
    return figure


def dtap_maps(
    maps: Mapping[str, np.ndarray], edges: Sequence[float], published: Mapping[str, Sequence[float]]
) -> Figure:
    """A DTAP map for every run: percent of sequences by attention and by probability, mean and spread.

    Args:
        maps: by run, (seeds, probability bins from low to high, attention bins), percent.
        edges: inner edges of the bins, the same on both axes.
        published: by run, the published row of the highest probability, written above the map.
    """
    columns = 4
    rows = -(-len(maps) // columns)
    ticks = [0.0, *edges, 1.0]
    with matplotlib.rc_context({**_STYLE, "axes.grid": False}):
        figure, panels = _figure(3.1 * columns, 2.9 * rows + 0.3, rows, columns)
        for axes, (name, map_) in zip(panels, maps.items(), strict=False):
            mean, size = map_.mean(axis=0), len(map_)
            deviation = map_.std(axis=0, ddof=1) if size > 1 else np.zeros_like(mean)
            axes.imshow(mean, origin="lower", cmap="Blues", vmin=0, vmax=100, aspect="auto")
            for (y, x), value in np.ndenumerate(mean):
                if value > 0:
                    small = value < 0.05  # would round to nothing
                    text = "<0.1" if small else f"{value:.1f}"
                    if size > 1 and not small:
                        text += f"\n±{deviation[y, x]:.1f}"
                    style = {"ha": "center", "va": "center", "fontsize": 7}
                    axes.text(x, y, text, color="white" if value > 55 else "black", **style)
            places = np.arange(len(ticks)) - 0.5
            axes.set_xticks(places, [f"{x:g}" for x in ticks])
            axes.set_yticks(places, [f"{x:g}" for x in ticks])
            title = name.replace("_", " ")
            if name in published:
                row = "  ".join(f"{x:g}" for x in published[name])
                title += f"\npublished top row: {row}"
            axes.set_title(title, fontsize=8)
        for axes in panels[len(maps) :]:
            axes.set_axis_off()
        figure.supxlabel("attention on distinct tokens", fontsize=9)
        figure.supylabel("probability of the right class", fontsize=9)
        figure.suptitle("percent of fresh sequences, mean ± standard deviation over seeds", fontsize=9)
    return figure


def sharpening(curves: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Loss against steps, and attention against loss: every run, mean over seeds with their range.

    Args:
        curves: by run, "steps" (E,), and "loss" and "attention" (seeds, E), measured at the same steps.
    """
    with matplotlib.rc_context(_STYLE):
        figure, (left, right) = _figure(11.0, 4.6, 1, 2)
        for k, (name, curve) in enumerate(curves.items()):
            style = {"color": COLOURS[k % len(COLOURS)], "ls": LINES[k % len(LINES)]}
            loss, attention = np.asarray(curve["loss"]), np.asarray(curve["attention"])
            left.plot(curve["steps"], loss.mean(axis=0), label=name.replace("_", " "), **style)
            left.fill_between(
                curve["steps"], loss.min(axis=0), loss.max(axis=0), color=style["color"], alpha=0.2, lw=0
            )
            right.plot(np.exp(np.log(loss).mean(axis=0)), attention.mean(axis=0), **style)
        left.set(xscale="log", yscale="log", xlabel="steps", ylabel="loss on fresh sequences (nats)")
        right.set(xscale="log", xlabel="loss on fresh sequences (nats)", ylim=(0.0, 1.02))
        right.set_ylabel("attention on distinct tokens")
        right.invert_xaxis()
        figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return figure


def fixed_attention(
    curves: Mapping[str, Mapping[float, Mapping[str, np.ndarray]]],
    exact: Mapping[str, Mapping[str, np.ndarray]],
) -> Figure:
    """Loss and the incentive to sharpen while attention is held fixed, a column a circuit, a curve an alpha.

    Args:
        curves: by circuit and alpha, "steps" (E,), and "loss", "incentive" and "difference" (seeds, E).
        exact: by circuit, in the orthogonal setting: "loss" and "incentive" (A, P) in closed form, and
            "trained_loss" and "trained_incentive" (A, P), at "t" (P,).
    """
    with matplotlib.rc_context(_STYLE):
        figure, panels = _figure(12.5, 3.1 * len(curves) + 0.6, len(curves), 4)
        for row, (circuit, by_alpha) in zip(panels.reshape(len(curves), 4), curves.items(), strict=True):
            closed = exact[circuit]
            for k, (alpha, curve) in enumerate(by_alpha.items()):
                style = {"color": COLOURS[k], "ls": LINES[k]}
                for axes, name in zip(row[:2], ("loss", "incentive"), strict=True):
                    values = np.asarray(curve[name])
                    label = f"α = {alpha:g}" if name == "loss" else None
                    axes.plot(curve["steps"], values.mean(axis=0), label=label, **style)
                    axes.fill_between(
                        curve["steps"], values.min(axis=0), values.max(axis=0), color=COLOURS[k], alpha=0.2
                    )
                thin = slice(None, None, max(1, len(curve["steps"]) // 12))
                row[1].plot(
                    curve["steps"][thin],
                    np.asarray(curve["difference"]).mean(axis=0)[thin],
                    "o",
                    mfc="none",
                    ms=4,
                    color=COLOURS[k],
                )
                for axes, name in zip(row[2:], ("loss", "incentive"), strict=True):
                    axes.plot(closed["t"], closed[name][k], **style)
                    some = slice(None, None, 4)
                    trained = closed[f"trained_{name}"][k]
                    axes.plot(closed["t"][some], trained[some], "x", ms=4, color=COLOURS[k])
            for axes in row:
                axes.set(xscale="log", yscale="log")
            titles = (
                "token task",
                "exact, circles: difference",
                "orthogonal",
                "closed form, crosses: trained",
            )
            for axes, title in zip(row, titles, strict=True):
                axes.set_title(f"{circuit} OV, {title}" if axes in (row[0], row[2]) else title, fontsize=9)
            for axes in row[:2]:
                axes.set(xlabel="steps", ylabel="loss (nats)")
            for axes in row[2:]:
                axes.set(xlabel="time $t$, steps $\\times$ step size", ylabel="loss (nats)")
            for axes in row[1::2]:
                axes.set_ylabel("$-\\partial L/\\partial\\alpha$ at fixed weights (nats)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def svg(figure: Figure, name: str = "figure") -> str:
    """The figure as an `<svg>` element to put into a page; its ids begin with `name`, text stays text."""
    with matplotlib.rc_context(_STYLE):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Write a figure as .svg or .png, whole or not at all."""
    path = os.fspath(path)
    if path.endswith(".svg"):
        return write_text(path, svg(figure) + "\n")
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="png", dpi=160)
    return write_bytes(path, buffer.getvalue())
