"""How self-attention learns: two circuits, two numbers, one ratio."""

import importlib.metadata

from qkflow.flow.solve import solve
from qkflow.reproduce import reproduce
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Parameterization, Problem, Start
from qkflow.train import train
from qkflow.trajectory import Trajectory
from qkflow.verify import verify

__version__ = importlib.metadata.version("qkflow")
__all__ = [
    "ArgumentError",
    "LearningRates",
    "OrthogonalSetting",
    "Parameterization",
    "Problem",
    "Start",
    "Trajectory",
    "derive",
    "reproduce",
    "solve",
    "train",
    "verify",
]


def derive(parameterization: Parameterization | str | None = None) -> str:
    """The derivation of the reduced flow, from the loss on, as Markdown with LaTeX.

    Args:
        parameterization: one of the four, or `None` for all.

    Raises:
        ArgumentError: for an unknown parameterization.

    >>> derive("CACO").startswith("# ")
    True
    """
    from qkflow.symbolic import document  # sympy is slow to load, and only this verb needs it

    if parameterization is not None:
        parameterization = Problem(parameterization=parameterization).parameterization  # type: ignore[arg-type]
    return document(parameterization)
