"""How good the ranker is: area under the ROC curve and log loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from airflow_ett.examples.ranker.model import Batch

_ROWS = 2048


@dataclass(frozen=True, slots=True)
class Score:
    """``auc`` from 0 to 1 (0.5 is chance), ``logloss`` in nats per row."""

    auc: float
    logloss: float
    rows: int


def evaluate(model: Any, batch: Batch) -> Score:
    """Score the model on these rows, without changing it."""
    with torch.no_grad():
        parts = zip(batch.dense.split(_ROWS), batch.sparse.split(_ROWS), strict=True)
        logits = torch.cat([model(dense, sparse) for dense, sparse in parts])
        logloss = functional.binary_cross_entropy_with_logits(logits, batch.label)
    return Score(auc(logits, batch.label), float(logloss), len(logits))


def auc(scores: Any, labels: Any) -> float:
    """Return the probability that a positive row scores above a negative one (ties count half).

    Mann-Whitney's U over the number of pairs. NaN where one kind is missing.
    """
    _, place, counts = scores.unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    ranks = (ends - (counts.double() - 1) / 2)[place]
    positive = labels > 0
    hits, misses = int(positive.sum()), int((~positive).sum())
    if not hits or not misses:
        return float("nan")
    return float((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * misses))
