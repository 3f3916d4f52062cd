"""Claims, held against independent routes to the same numbers."""

from qkflow.verify.claim import Claim, Scope, Verdict
from qkflow.verify.record import Record, measure
from qkflow.verify.report import Report
from qkflow.verify.verify import verify

__all__ = ["Claim", "Record", "Report", "Scope", "Verdict", "measure", "verify"]
