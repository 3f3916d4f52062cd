"""qkflow: how self-attention learns, as two circuits, two numbers and one ratio."""

from qkflow.setting import LearningRates, OrthogonalSetting, Parameterization, Problem, Start

__all__ = ["LearningRates", "OrthogonalSetting", "Parameterization", "Problem", "Start"]
