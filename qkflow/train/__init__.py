"""Training of the real matrices with one learning rate for each circuit."""

from qkflow.train.gradients import EffectiveRates, Gradients, effective_rates, population_gradients
from qkflow.train.loop import train
from qkflow.train.rates import circuit_labels, circuit_sgd

__all__ = [
    "EffectiveRates",
    "Gradients",
    "circuit_labels",
    "circuit_sgd",
    "effective_rates",
    "population_gradients",
    "train",
]
