"""Data of the orthogonal setting: all of its sequences, or random ones."""

from qkflow.data.population import MAX_SEQUENCES, count_sequences, population
from qkflow.data.sampler import sample
from qkflow.data.sequences import Sequences

__all__ = ["MAX_SEQUENCES", "Sequences", "count_sequences", "population", "sample"]
