"""The published way to train on the 50-token task: a plain PyTorch loop, and where its time goes.

One NumPy draw a sequence, one-hot inputs, a batch of 32, an optimizer step a batch; all 63 positions
attended, cross-entropy over 50 outputs, the published starts. Run alone, `python -m benchmarks.torch_loop`
times each parameterization, then checks that the loss falls, at a hundred times the rate: at the published
one a tiny factorized OV circuit leaves its saddle only after thousands of steps.
"""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from torch import nn

CLASSES, COMMON, DISTINCT, TOKENS, LENGTH, BATCH = 4, 10, 10, 50, 64, 32
VOCABULARIES = [np.r_[:COMMON, COMMON + DISTINCT * c : COMMON + DISTINCT * (c + 1)] for c in range(CLASSES)]
WEIGHTS = np.concatenate([np.ones(COMMON), 0.1 * np.arange(1, DISTINCT + 1)])
FREQUENCIES = WEIGHTS / WEIGHTS.sum()
RATE = 0.01
TINY = {"FAFO": ("ov",), "FACO": ("qk", "ov"), "CAFO": ("qk", "ov"), "CACO": ()}  # others: nn.Linear's start
PARTS = ("draw", "one-hot", "forward", "backward", "step")


def linear() -> nn.Linear:
    return nn.Linear(TOKENS, TOKENS, bias=False)


class Layer(nn.Module):
    """Attention from the query over all positions, its output read at the query."""

    def __init__(self, parameterization: str):
        super().__init__()
        if parameterization not in TINY:
            raise ValueError(
                f"parameterization must be one of {', '.join(TINY)}, but is {parameterization!r}"
            )
        attention, output = parameterization[0], parameterization[2]
        self.query, self.key = linear(), linear() if attention == "F" else nn.Identity()
        self.value, self.output = linear() if output == "F" else nn.Identity(), linear()
        self.circuits = {"qk": [self.query, self.key], "ov": [self.value, self.output]}
        with torch.no_grad():
            for name in TINY[parameterization]:
                for module in self.circuits[name]:
                    for weight in module.parameters():
                        weight.copy_(1e-6 * torch.eye(TOKENS))

    def groups(self) -> list[dict]:
        """The optimizer's groups, one a circuit."""
        return [{"params": [w for m in ms for w in m.parameters()]} for ms in self.circuits.values()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (N, 50) of one-hot sequences (N, 63, 50) whose last position is the query."""
        scores = self.query(x[:, -1:]) @ self.key(x).transpose(1, 2) / math.sqrt(TOKENS)
        attention = torch.softmax(scores, dim=-1)
        return self.output((attention @ self.value(x)).squeeze(1))


def draw(rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of sequences (N, 63) and labels (N,), a sequence at a time."""
    sequences, labels = [], []
    for c in rng.integers(CLASSES, size=BATCH):
        context = rng.choice(VOCABULARIES[c], size=LENGTH - 2, p=FREQUENCIES)
        sequences.append(np.append(context, c + 5))
        labels.append(c + 1)
    return torch.from_numpy(np.stack(sequences)), torch.tensor(labels)


def steps_per_second(
    steps: int = 1000,
    threads: int = 1,
    *,
    parameterization: str = "FAFO",
    warmup: int = 100,
    lr: float = RATE,
) -> tuple[float, dict[str, float], float]:
    """Steps a second, the share of each part of a step, and the mean loss of the timed steps.

    Args:
        steps: how many are timed.
        threads: of PyTorch; it keeps them.
        parameterization: "FAFO", "FACO", "CAFO" or "CACO".
        warmup: steps of the same training before those, not timed.
        lr: learning rate of both circuits.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    rng, layer, loss_of = np.random.default_rng(0), Layer(parameterization), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(layer.groups(), lr=lr)
    spent, losses = np.zeros(len(PARTS)), []
    for k in range(warmup + steps):
        marks = [time.perf_counter()]
        tokens, labels = draw(rng)
        marks.append(time.perf_counter())
        x = nn.functional.one_hot(tokens, TOKENS).float()
        marks.append(time.perf_counter())
        loss = loss_of(layer(x), labels)
        marks.append(time.perf_counter())
        optimizer.zero_grad()
        loss.backward()
        marks.append(time.perf_counter())
        optimizer.step()
        marks.append(time.perf_counter())
        if k >= warmup:
            spent += np.diff(marks)
            losses.append(loss.item())
    total = float(spent.sum())
    shares = {name: float(part) / total for name, part in zip(PARTS, spent, strict=True)}
    return steps / total, shares, float(np.mean(losses))


def main() -> None:
    """Time the four parameterizations, then print the losses that the check is about."""
    for kind in TINY:
        for threads in (1, 2):
            rate, shares, _ = steps_per_second(threads=threads, parameterization=kind)
            parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
            print(f"{kind}, {threads} threads: {rate:.0f} steps/s ({parts})")
    print()
    print(f"mean loss at rate {100 * RATE:g}, of steps 1-100 and 901-1000")
    for kind in TINY:
        first, last = (
            steps_per_second(100, parameterization=kind, warmup=warmup, lr=100 * RATE)[2]
            for warmup in (0, 900)
        )
        print(f"{kind}: {first:.3f}, {last:.3f}, {'falls' if last < 0.9 * first else 'DOES NOT FALL'}")


if __name__ == "__main__":
    main()
