"""Training on the 50-token task: steps a second of one run, of many at once, and of a plain PyTorch loop.

All in one process, one after the other; what counts are the ratios. Compilation is timed apart. PyTorch is
needed for the comparison alone: `.venv/bin/python -m pip install torch` puts it beside the rest.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable

import jax
import numpy as np

from qkflow.data import TokenTask, sample_counts
from qkflow.setting import Parameterization
from qkflow.train import TokenRun, train_runs
from qkflow.train.lanes import EPOCH
from qkflow.trajectory import provenance

STEPS = 20_000
REPEATS = 5
TORCH_STEPS = 1500


def seconds(run: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """The first call and the median of the next ones."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return times[0], statistics.median(times[1:])


def draws() -> float:
    """Microseconds that the sequences of one step take: an epoch's at once, as in training."""
    task = TokenTask()

    @jax.jit
    def epoch(key):
        return sample_counts(key, task, EPOCH * 32)

    return seconds(lambda: epoch(jax.random.key(0)), 50)[1] / EPOCH * 1e6


def main() -> None:
    """Measure and print."""
    jax.config.update("jax_enable_x64", True)
    print(__doc__)
    print(json.dumps(provenance()), end="\n\n")
    rates = {}
    for kind in Parameterization:
        start = "uniform", "tiny" if kind is Parameterization.FAFO else "uniform"
        run = TokenRun(kind, *start, steps=STEPS)
        first, again = seconds(lambda run=run: train_runs({"run": run}, seeds=1)["run"].params)
        rates[kind.value] = STEPS / again, first - again
    cores = os.cpu_count() or 1
    lanes = 2 * cores
    fafo = TokenRun(Parameterization.FAFO, "uniform", "tiny", steps=STEPS)
    many = lanes * STEPS / seconds(lambda: train_runs({"run": fafo}, seeds=lanes)["run"].params)[1]
    drawn = draws()

    plain = {}
    try:
        from benchmarks.torch_loop import steps_per_second
    except ImportError:
        print("no PyTorch here: its rows are left out (.venv/bin/python -m pip install torch)\n")
    else:
        for threads in sorted({1, cores}):
            plain[threads], shares, _ = steps_per_second(TORCH_STEPS, threads)
            parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
            print(f"PyTorch, {threads} threads: {parts}")
        print()
    best = max(plain.values(), default=np.nan)

    rows = [(f"qkflow {name}, one run", rate, f"compile {s:.1f} s") for name, (rate, s) in rates.items()]
    rows.append((f"qkflow FAFO, {lanes} seeds", many, f"{cores} cores"))
    rows += [(f"PyTorch FAFO, {threads} threads", rate, "") for threads, rate in plain.items()]
    print(f"{'':<28}{'steps/s':>10}{'us/step':>10}{'x PyTorch':>11}  note")
    for name, rate, note in rows:
        print(f"{name:<28}{rate:>10,.0f}{1e6 / rate:>10.1f}{rate / best:>11.2f}  {note}")
    print(f"{'  of it, drawing sequences':<28}{'':>10}{drawn:>10.1f}")


if __name__ == "__main__":
    main()
