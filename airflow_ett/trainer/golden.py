"""The golden batch: each checkpoint carries the model's scores for it, for publishing to compare.

What is written is in :mod:`airflow_ett.checkpoints.golden`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_ett.checkpoints.golden import GOLDEN, INPUTS, SCORES, flatten, flatten_all
from airflow_ett.errors import ConfigurationError
from airflow_ett.trainer import randomness
from airflow_ett.trainer.journal import Journal

_MODEL = "model"
"""Only the object of this name is published."""


class Golden:
    """Scores ``batch`` with the model among ``objects``, leaving the training as it is.

    A mapping is the model's keywords, a tuple or list its arguments, a tensor its one. The
    model is called as it was written, not as it was compiled, in evaluation mode, without gradients
    and without autocast: so a CPU can do the same.

    Raises :class:`ConfigurationError` where there is no model, no tensor in the batch, or no
    safetensors to write it with.
    """

    def __init__(self, objects: Mapping[str, Any], batch: Any, journal: Journal) -> None:
        import torch

        try:
            import safetensors.torch  # noqa: F401  # now, rather than at the first save
        except ImportError as error:
            raise ConfigurationError("golden", "needs the package safetensors") from error
        model = objects.get(_MODEL)
        if not isinstance(model, torch.nn.Module):
            raise ConfigurationError("golden", f"needs the torch.nn.Module as {_MODEL}=")
        self._model = _plain(model)
        self._inputs = flatten(INPUTS, batch)
        self._batch = batch
        for name, value in self._inputs.items():
            if not isinstance(value, torch.Tensor):
                kind = type(value).__name__
                raise ConfigurationError("golden", f"{name} must be a tensor, not {kind}")
        self._journal = journal
        self.took_ns = 0
        """How long the last call of :meth:`record` kept the training waiting."""

    def record(self, *, first: bool) -> dict[str, bytes]:
        """Return the file to put into a checkpoint of the present state, on the ``first`` rank.

        All ranks call it, for a sharded model is scored by all of them together. A model that
        cannot score the batch is warned about, and the checkpoint goes without.
        """
        from safetensors.torch import save

        begun = time.monotonic_ns()
        files: dict[str, bytes] = {}
        try:
            with _undisturbed(self._model) as device:
                scores = flatten_all(SCORES, self._call(device))
            if first:
                tensors = {**self._inputs, **scores}
                files[GOLDEN] = save({name: _apart(value) for name, value in tensors.items()})
        except Exception as error:  # the model's own
            self._journal.warn("Checkpoints carry no golden scores", error)
        self.took_ns = time.monotonic_ns() - begun
        return files

    def _call(self, device: Any) -> Any:
        inputs = self._batch
        if isinstance(inputs, Mapping):
            return self._model(**{name: value.to(device) for name, value in inputs.items()})
        args = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        return self._model(*(value.to(device) for value in args))


def _plain(model: Any) -> Any:
    """Return a model without what data parallelism and the compiler have put around it."""
    import torch

    while True:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


@contextlib.contextmanager
def _undisturbed(model: Any) -> Iterator[Any]:
    """Let a model score within the block, on the device that it yields; all is as before after."""
    import torch

    weights = next(model.parameters(), None)
    device = torch.device("cpu") if weights is None else weights.device
    modes = {part: part.training for part in model.modules()}
    buffers = [
        (part, name, value, value._version, value.clone())
        for part in modes
        for name, value in part.named_buffers(recurse=False)
    ]
    random = randomness.capture()
    try:
        model.eval()
        with torch.no_grad(), torch.autocast(device.type, enabled=False), _uncompiled():
            yield device
    finally:
        for part, mode in modes.items():
            part.training = mode
        for part, name, value, version, copy in buffers:
            setattr(part, name, value)
            if value._version != version:  # some count their batches in any mode
                value.copy_(copy)
        randomness.put_back(random)


def _uncompiled() -> contextlib.AbstractContextManager[Any]:
    """Have parts of the model run as they were written that were compiled in place."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    import torch

    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _apart(tensor: Any) -> Any:
    """Return a copy on the CPU: safetensors refuses tensors that share their memory."""
    import torch

    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
