"""The derivation in SymPy: from the loss to the scalar flow, its closed forms, its code, its documents."""

from qkflow.symbolic.derivation import Derivation, derive
from qkflow.symbolic.jax_source import field_source, load_field
from qkflow.symbolic.markdown import document

__all__ = ["Derivation", "derive", "document", "field_source", "load_field"]
