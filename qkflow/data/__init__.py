"""Data of the orthogonal setting, all of its sequences or random ones, and of the token task."""

from qkflow.data.population import MAX_SEQUENCES, count_sequences, population
from qkflow.data.sampler import sample
from qkflow.data.sequences import Sequences
from qkflow.data.token_task import TokenTask
from qkflow.data.tokens import TokenCounts, Tokens, count_tokens, sample_counts, sample_tokens

__all__ = [
    "MAX_SEQUENCES",
    "Sequences",
    "TokenCounts",
    "TokenTask",
    "Tokens",
    "count_sequences",
    "count_tokens",
    "population",
    "sample",
    "sample_counts",
    "sample_tokens",
]
