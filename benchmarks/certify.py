"""Containment: certified balls against 60-digit values from a route that shares neither code nor method.

Settings are drawn log-uniformly over the ranges of the exact solution, as exact decimals; 30 % have a finite
common vocabulary, an imbalance or a score scale. tests/reference.py integrates the differential equation in
omega by its Taylor series (mpmath). A value must lie in its ball, and a ball moved by ten radii, up or down,
must not hold it. The reference itself is held against one of 75 digits in one setting of fifty.

    python -m benchmarks.certify [settings]
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np

from qkflow.flow.certify import FIELDS, certify, decimal
from qkflow.setting import LearningRates, OrthogonalSetting, Parameterization, Problem, Start
from tests.reference import Reference

SETTINGS, SEED, DIGITS = 1000, 0, 60
CHECKED_EVERY, CHECKED_DIGITS = 49, 75
KINDS = ("log_time", "loss", "attention")
LAST = 1e4  # log t


def draw(k: int) -> tuple[Problem, str, str | Fraction]:
    """The k-th problem, of all parameterizations and kinds of target in turn, and its target."""
    rng = np.random.default_rng([SEED, k])

    def number(low, high):
        return f"{np.exp(rng.uniform(np.log(low), np.log(high))):.6g}"

    def whole(low, high):
        return round(float(number(low, high)))

    parameterization = list(Parameterization)[k % 4]
    further = rng.integers(1, 8) if rng.random() < 0.3 else 0  # bits: vocabulary, imbalance, score scale
    if further == 2 and parameterization is Parameterization.CACO:
        further = 6  # it has no imbalance

    def start(factorized):
        imbalance = number(1e-3, 10) if factorized and further & 2 else "0"
        zero = rng.random() < 0.5 and (not factorized or imbalance != "0")
        sign = "-" if imbalance != "0" and rng.random() < 0.5 else ""
        return ("0" if zero else number(1e-6, 10)), sign + imbalance

    b, n = whole(1, 1e4), whole(1, 1e4)
    setting = OrthogonalSetting(
        n_classes=whole(2, 1e6),
        n_distinct_vocab=b,
        n_distinct=min(b, whole(1, 1e4)),
        n_common=n,
        n_common_vocab=n + whole(1, 1e5) - 1 if further & 1 else "inf",
        n_query_vocab=whole(1, 1e4),
        score_scale=number(0.1, 10) if further & 4 else 1,
    )
    (u, imbalance_ov), (g, imbalance_qk) = (
        start(parameterization.ov_factorized),
        start(parameterization.qk_factorized),
    )
    rates = LearningRates(number(0.01, 10), number(1e-6, 1e6))
    problem = Problem(setting, parameterization, rates, Start(u, g, imbalance_ov, imbalance_qk))

    kind = KINDS[k // 4 % 3]
    odds = mp.mpf(setting.n_distinct) / n * mp.exp(mp.mpf(g))
    if kind == "loss":  # from just below the start's to e^-1e4
        first = mp.log1p((setting.n_classes - 1) * mp.exp(-mp.mpf(u) * odds / (1 + odds)))
        return problem, kind, mp.nstr(first * mp.exp(-mp.mpf(number(0.01, LAST))), 6)
    if kind == "attention":  # from just above the start's to 1 - 1e-15
        low, high = float(mp.log(odds)), 34.5
        rest = 1 / (1 + mp.exp(low + max(high - low, 1e-3) * mp.mpf(number(1e-3, 1))))
        return problem, kind, 1 - Fraction(mp.nstr(rest, 17))
    late = rng.random() < 0.5
    return problem, kind, number(1, LAST) if late else f"{rng.uniform(-60, 60):.6g}"


def judge(k: int) -> dict[str, Any]:
    """What came of the k-th setting: largest distance in radii, seconds, digits of the reference."""
    problem, kind, target = draw(k)
    begin = time.perf_counter()
    found = certify(problem, **{f"at_{kind}": target})
    seconds = time.perf_counter() - begin
    result = {"k": k, "kind": kind, "seconds": seconds, "bits": found.bits[0]}
    if found.log_t[0] > LAST:
        return result | {"beyond": True}
    exact = Fraction(target)
    truth = values(Reference(problem, DIGITS).solve(kind, exact))
    distances, caught, radius = {}, True, mp.mpf(0)
    for name in FIELDS:
        written = decimal(getattr(found, name)[0])
        assert written is not None
        mid, r = mp.mpf(written["mid"]), mp.mpf(written["radius"])
        radius = max(radius, r / abs(mid) if mid else r)
        if r == 0:  # the target itself
            distances[name] = mp.mpf(0) if abs(mid - truth[name]) <= abs(mid) * mp.mpf("1e-50") else mp.inf
            continue
        distances[name] = abs(mid - truth[name]) / r
        caught &= all(abs(mid + moved * r - truth[name]) > r for moved in (-10, 10))
    worst = max(distances, key=lambda name: distances[name])
    result |= {"worst": float(distances[worst]), "field": worst, "caught": caught, "radius": float(radius)}
    if k % CHECKED_EVERY == 0:
        better = values(Reference(problem, CHECKED_DIGITS).solve(kind, exact))
        error = max(abs(truth[name] / better[name] - 1) if better[name] else mp.mpf(0) for name in FIELDS)
        result["reference"] = float(error)
    return result | {"reference_seconds": time.perf_counter() - begin - seconds}


def values(state: dict[str, mp.mpf]) -> dict[str, mp.mpf]:
    """The reference's state with the fields that follow from it."""
    return state | {
        "t": mp.exp(state["log_t"]),
        "loss": mp.exp(state["log_loss"]),
        "z": state["alpha"] * state["mu_ov"],
    }


def held(result: dict[str, Any]) -> bool:
    """Whether the value lies in the ball, and the moved balls are caught."""
    return result["worst"] <= 1 and result["caught"] and result["radius"] <= 1e-20


def main() -> int:
    """Judge all settings in two processes and print what came of them."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SETTINGS
    print(__doc__)
    begin, k, done, beyond = time.perf_counter(), 0, [], 0
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        while len(done) < count:
            batch = range(k, k + count - len(done))
            k = batch.stop
            for result in pool.imap_unordered(judge, batch, chunksize=1):
                if "beyond" in result:  # its answer is later than the last log t: another setting for it
                    beyond += 1
                    continue
                done.append(result)
                if not held(result):
                    print(f"\nviolated: {result}", flush=True)
                if len(done) % 10 == 0:
                    passed = time.perf_counter() - begin
                    print(f"\r{len(done)} of {count}, {passed:.0f} s", end="", file=sys.stderr, flush=True)
    violated = [result for result in done if not held(result)]
    seconds = np.array([result["seconds"] for result in done])
    reference = max(result.get("reference", 0.0) for result in done)
    print(f"\n{count} settings, {count * len(FIELDS)} balls, {len(violated)} violated; {beyond} drawn again")
    print(f"largest relative radius {max(r['radius'] for r in done):.1e}", end="; ")
    print(f"largest distance from a midpoint {max(r['worst'] for r in done):.3f} radii")
    print(f"reference: {DIGITS} against {CHECKED_DIGITS} digits differ by {reference:.1e} at most")
    quantiles = ", ".join(f"{np.quantile(seconds, q) * 1e3:.0f}" for q in (0.5, 0.9, 1.0))
    print(f"a certificate: {quantiles} ms (median, 90 %, worst); bits up to {max(r['bits'] for r in done)}")
    print(f"total {time.perf_counter() - begin:.0f} s")
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main())
