"""The published way to train on the 50-token task: a plain PyTorch loop, and where its time goes.

One NumPy draw a sequence, one-hot inputs, a batch of 32, an optimizer step a batch; FAFO, all positions
attended, cross-entropy over 50 outputs. Run alone: `python -m benchmarks.torch_loop`.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import nn

CLASSES, COMMON, DISTINCT, TOKENS, LENGTH, BATCH = 4, 10, 10, 50, 64, 32
WEIGHTS = np.concatenate([np.ones(COMMON), 0.1 * np.arange(1, DISTINCT + 1)])
RATE = 0.01


class Layer(nn.Module):
    """softmax(q^T W_Q^T W_K x / sqrt(50)), then W_O W_V of the mean it gives."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (
            nn.Linear(TOKENS, TOKENS, bias=False) for _ in range(4)
        )
        with torch.no_grad():
            for circuit in (self.value, self.output):
                circuit.weight.copy_(1e-6 * torch.eye(TOKENS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (N, 50) of one-hot sequences (N, 63, 50), read at the last position, the query."""
        scores = self.key(x) @ self.query(x[:, -1]).unsqueeze(-1) / TOKENS**0.5
        attention = torch.softmax(scores, dim=1)
        return self.output((attention * self.value(x)).sum(dim=1))


def draw(rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of sequences (N, 63) and labels (N,), a sequence at a time."""
    sequences, labels = [], []
    for label in rng.integers(CLASSES, size=BATCH):
        own = np.arange(COMMON * (label + 1), COMMON * (label + 2))
        vocabulary = np.concatenate([np.arange(COMMON), own])
        context = rng.choice(vocabulary, size=LENGTH - 2, p=WEIGHTS / WEIGHTS.sum())
        sequences.append(np.append(context, label + 5))
        labels.append(label + 1)
    return torch.from_numpy(np.stack(sequences)), torch.tensor(labels)


def steps_per_second(steps: int = 1000, threads: int = 1) -> tuple[float, dict[str, float], float]:
    """Steps a second, the share of each part of a step, and the last loss.

    Args:
        steps: how many are timed, after 100 that are not.
        threads: of PyTorch.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    rng, layer, loss_of = np.random.default_rng(0), Layer(), nn.CrossEntropyLoss()
    circuits = [[layer.query, layer.key], [layer.value, layer.output]]
    groups = [{"params": [c.weight for c in circuit], "lr": RATE} for circuit in circuits]
    optimizer = torch.optim.SGD(groups)
    spent = dict.fromkeys(("draw", "one-hot", "forward", "backward", "step"), 0.0)
    loss = torch.tensor(0.0)
    for k in range(-100, steps):
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
        if k >= 0:
            for name, seconds in zip(spent, np.diff(marks), strict=True):
                spent[name] += float(seconds)
    total = sum(spent.values())
    return steps / total, {name: seconds / total for name, seconds in spent.items()}, loss.item()


if __name__ == "__main__":
    for threads in (1, 2):
        rate, shares, loss = steps_per_second(threads=threads)
        parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        print(f"{threads} threads: {rate:.0f} steps/s ({parts}), loss {loss:.3f} from {np.log(TOKENS):.3f}")
