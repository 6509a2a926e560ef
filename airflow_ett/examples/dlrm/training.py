"""One step of the training: tables by model, all else by data parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from airflow_ett.examples.dlrm.data import Batch
from airflow_ett.examples.dlrm.model import Dlrm
from airflow_ett.examples.dlrm.sharding import Exchange
from airflow_ett.trainer.graphs import mark_dynamic, pad_to

_DENSE_RATE = 1e-3
_TABLE_RATE = 0.5


class Shapes:
    """What is done about batches of varying size, of at most ``samples`` a rank."""

    def __init__(self, way: str, samples: int) -> None:
        self._way = way
        self._samples = samples

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """Return the inputs of what is compiled, such that it is compiled once."""
        if self._way == "padded":
            padded: Sequence[Any] = pad_to(inputs, self._samples).batch
            return padded
        return mark_dynamic(inputs) if self._way == "marked" else inputs


class Training:
    """``dense`` is the model's dense part, compiled or not; ``shapes`` sees to its inputs."""

    def __init__(
        self, model: Dlrm, dense: Any, shapes: Shapes, exchange: Exchange, device: Any
    ) -> None:
        self._model = model
        self._dense = dense
        self._shapes = shapes
        self._exchange = exchange
        self._device = device
        self.optimizer = torch.optim.AdamW(model.dense.parameters(), lr=_DENSE_RATE)
        # Tables as in the paper: it has no state, so it needs no checkpoint.
        self._tables = torch.optim.SGD(model.tables.parameters(), lr=_TABLE_RATE)

    def loss(self, batch: Batch) -> Any:
        """Return this rank's share of the mean loss over all ranks' samples."""
        numbers, ids, label = (part.to(self._device) for part in batch)
        pooled = self._exchange(self._model.tables(ids))
        logits = self._dense(*self._shapes(numbers, pooled))[: len(numbers)]
        loss = functional.binary_cross_entropy_with_logits(logits, label)
        return loss / self._exchange.world

    def step(self, batch: Batch) -> Any:
        """Train on a batch; return the loss as :meth:`loss` does."""
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        self._tables.zero_grad()
        loss.backward()
        self._add_gradients()
        # This one first: while a save copies the weights it waits, for the tables, too.
        self.optimizer.step()
        self._tables.step()
        return loss.detach()

    def tell(self, what: str, loss: Any) -> None:
        """Print the mean loss over all ranks' samples; all ranks call it."""
        total = loss.clone()
        if self._exchange.world > 1:
            torch.distributed.all_reduce(total)
        if self._exchange.rank == 0:
            print(f"{what} {float(total):.6f}", flush=True)

    def _add_gradients(self) -> None:
        """Sum up the dense part's gradients over all ranks, in one bucket."""
        if self._exchange.world == 1:
            return
        grads = [p.grad for p in self._model.dense.parameters()]
        bucket = torch.cat([grad.reshape(-1) for grad in grads])
        torch.distributed.all_reduce(bucket)
        for grad, part in zip(grads, bucket.split([g.numel() for g in grads]), strict=True):
            grad.copy_(part.view_as(grad))
