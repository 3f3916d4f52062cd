"""Assertions about a training record of your own: does it do what the theory says?

Plain arrays in; an `AssertionError` out, which says by how much and where first, or a `Held` with the margin.
The last axis of mu_OV and mu_QK runs over records; time is t = step x step size, with the learning rates in
the problem. `read_matrices` turns your matrices into mu_OV and mu_QK. Theory is evaluated in float64: call
`jax.config.update("jax_enable_x64", True)` first. Nothing here needs a test framework.
"""

from qkflow.models import Reading, read_matrices
from qkflow.testing.bounds import assert_growth_bound
from qkflow.testing.follows import assert_follows_flow
from qkflow.testing.judged import Held
from qkflow.testing.line import assert_on_line
from qkflow.testing.rescaled import assert_rescaled_rate
from qkflow.testing.sharper import assert_sharper

__all__ = [
    "Held",
    "Reading",
    "assert_follows_flow",
    "assert_growth_bound",
    "assert_on_line",
    "assert_rescaled_rate",
    "assert_sharper",
    "read_matrices",
]
