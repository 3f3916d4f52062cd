"""The attention layer, its starts and the directions it moves along."""

from qkflow.models.attention import Attention, Matrix, Product, attention_mass, cross_entropy
from qkflow.models.directions import directions, modes, vocabularies
from qkflow.models.reading import Reading, read_matrices
from qkflow.models.starts import aligned_start, identity_start, random_start

__all__ = [
    "Attention",
    "Matrix",
    "Product",
    "Reading",
    "aligned_start",
    "attention_mass",
    "cross_entropy",
    "directions",
    "identity_start",
    "modes",
    "random_start",
    "read_matrices",
    "vocabularies",
]
