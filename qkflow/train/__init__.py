"""Training of the real matrices with one learning rate for each circuit."""

from qkflow.train.gradients import EffectiveRates, Gradients, effective_rates, population_gradients
from qkflow.train.lanes import EPOCH, Record, train_runs
from qkflow.train.loop import train
from qkflow.train.rates import circuit_labels, circuit_optimizer, circuit_sgd
from qkflow.train.token_run import TokenRun

__all__ = [
    "EPOCH",
    "EffectiveRates",
    "Gradients",
    "Record",
    "TokenRun",
    "circuit_labels",
    "circuit_optimizer",
    "circuit_sgd",
    "effective_rates",
    "population_gradients",
    "train",
    "train_runs",
]
