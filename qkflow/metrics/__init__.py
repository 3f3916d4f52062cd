"""Metrics of attention and faithfulness, on plain arrays.

Relevance (does attention lie where people say that the evidence is?) and faithfulness (does the model use
what it attends?) are different things; neither stands for the other.
"""

from qkflow.metrics.balance import imbalance
from qkflow.metrics.compare import Comparison, paired
from qkflow.metrics.faithfulness import AOPC_SHARES, comprehensiveness, sufficiency
from qkflow.metrics.mass import Mass, acmc, attention_confidence, attention_mass, dtap
from qkflow.metrics.relevance import Relevance, average_precision, relevance_auroc
from qkflow.metrics.rows import layer_mean, merge_heads, rollout
from qkflow.metrics.sharpness import Sharpness, sharpness

__all__ = [
    "AOPC_SHARES",
    "Comparison",
    "Mass",
    "Relevance",
    "Sharpness",
    "acmc",
    "attention_confidence",
    "attention_mass",
    "average_precision",
    "comprehensiveness",
    "dtap",
    "imbalance",
    "layer_mean",
    "merge_heads",
    "paired",
    "relevance_auroc",
    "rollout",
    "sharpness",
    "sufficiency",
]
