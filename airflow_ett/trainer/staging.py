"""Copying a state: at once, or beside the training as far as only an optimizer's step changes it.

Weights and the tensors of their optimizer stay as they are until the optimizer's next step, and
are most of a state. They are copied while the next forward and backward pass run, and the step
waits for what is left to copy. All else, which a forward pass may change, is copied at once; so is
all that another than the optimizer has been seen to change, and what is stepped without a call of
``optimizer.step`` that could wait: compiled, or replayed by the GPU.

Imported only where torch is in use.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch

from airflow_ett.trainer.buffers import SMALL, Buffers, Pair, place_of
from airflow_ett.trainer.saveerrors import ChangedError

_PIECE = 1 << 24
"""Bytes that one thread copies at a time: the training, once it waits, takes its share."""


class Owned(NamedTuple):
    """A tensor that only an optimizer's step is to change, as it was when it was to be copied."""

    name: str
    tensor: Any
    version: int

    @property
    def changed(self) -> bool:
        """Whether it was written to since; what is written through ``.data`` is not seen."""
        return bool(self.tensor._version != self.version)


class Copy:
    """What of a state is still to be copied, in ``pieces``; of the tensors ``owned``."""

    def __init__(self, pieces: Iterable[Callable[[], None]], owned: list[Owned]) -> None:
        self._pieces = deque(pieces)
        self._left = len(self._pieces)
        self._owned = owned
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.problem: Exception | None = None
        """What went wrong so far: ``ChangedError`` where something changed."""
        self.ended_ns = 0
        """When it was over, monotonic."""

    @property
    def over(self) -> bool:
        """Whether all is copied."""
        return self._over.is_set()

    def run(self) -> None:
        """Copy what is left, together with other threads that do; return when all is copied.

        What goes wrong is kept in ``problem``.
        """
        while not self.over:
            try:
                piece = self._pieces.popleft()
            except IndexError:
                self._over.wait()
                return
            try:
                piece()
            except Exception as error:
                self.problem = error
            with self._lock:
                self._left -= 1
                if self._left == 0:
                    self.ended_ns = time.monotonic_ns()
                    self._over.set()

    def settle(self) -> None:
        """Wait until all is copied and find, once, whether something has changed until now.

        To be called where no other than this thread writes to the state, or long after the copy: a
        tensor tells of a change only when the change is complete.
        """
        self.run()
        with self._lock:
            changed = list(dict.fromkeys(one.name for one in self._owned if one.changed))
            self._owned = []
            if changed:
                self.problem = self.problem or ChangedError(
                    f"{', '.join(changed[:3])}{', …' * (len(changed) > 3)} changed after the save "
                    "and before its optimizer's next step, while it was copied. From now on all is "
                    "copied at once, for which the training waits longer. Change it between "
                    "optimizer.step() and ett.step() alone"
                )


class Stager:
    """Copies states into buffers on the CPU, which all saves use again.

    ``before_step`` is called by each of ``optimizers`` ahead of its steps, and must end the copy.
    """

    def __init__(
        self,
        modules: Mapping[str, Any],
        optimizers: Mapping[str, Any],
        before_step: Callable[[], None],
    ) -> None:
        self._modules = modules
        self._optimizers = optimizers
        self._before_step = before_step
        self._pid = os.getpid()
        self._cuda = torch.cuda.is_available()
        self._buffers = Buffers(pinned=self._cuda)
        self._streams: dict[Any, Any] = {}
        self._stepped: set[int] = set()
        self._hooks: list[Any] = []
        self.apart = True
        """Whether something may be copied beside the training."""
        for optimizer in optimizers.values():
            with contextlib.suppress(Exception):  # a wrapper of one: it is never seen to step
                self._hooks.append(optimizer.register_step_pre_hook(self._at_step))

    def forget_steps(self) -> None:
        """Take the steps so far for none of the training's: torch steps to make a state."""
        self._stepped.clear()

    def stage(self, state: dict[str, Any], *, beside: bool) -> tuple[dict[str, Any], Copy | None]:
        """Return a copy of ``state``, and what of it is still to be copied, if any.

        ``beside`` allows that: for the tensors of optimizers that have stepped since they were
        copied last, and into the buffers that were made for them.
        """
        owned = self._find_owned() if beside and self.apart else {}
        self.forget_steps()
        staged, pairs = self._buffers.copy(state, owned)
        if not pairs:
            return staged, None
        for device in {pair.source.device for pair in pairs}:
            self._fork(device)
        pieces = (piece for pair in pairs for piece in self._cut(pair))
        return staged, Copy(pieces, [one for pair in pairs for one in owned[place_of(pair.source)]])

    def close(self) -> None:
        """Free the buffers; the optimizers step freely again."""
        for hook in self._hooks:
            hook.remove()
        self._buffers.close()

    def _at_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling() or os.getpid() != self._pid:
            return  # compiled, it would run after the step: it is copied at once, as if unseen
        self._stepped.add(id(optimizer))
        self._before_step()

    def _find_owned(self) -> dict[int, list[Owned]]:
        """Return what only optimizers that are seen to step will change, by storage."""
        owned: dict[int, list[Owned]] = {}
        parameters = set()
        for name, parameter, optimizer in self._stepping():
            parameters.add(id(parameter))
            tensors = {name: parameter}
            state = optimizer.state.get(parameter)
            if isinstance(state, Mapping):
                tensors |= {f"{key} of {name}": tensor for key, tensor in state.items()}
            for label, tensor in tensors.items():
                local = _local(tensor)
                if local is not None:
                    both = (tensor,) if local is tensor else (tensor, local)
                    versions = [Owned(label, one, one._version) for one in both]
                    owned.setdefault(place_of(local), []).extend(versions)
        for module in self._modules.values():
            for tensor in (*module.parameters(), *module.buffers()):
                local = None if id(tensor) in parameters else _local(tensor)
                if local is not None:
                    owned.pop(place_of(local), None)
        return owned

    def _stepping(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield each parameter that steps, with its name and its optimizer."""
        names = {
            id(parameter): f"{name}.{path}"
            for name, module in self._modules.items()
            for path, parameter in module.named_parameters()
        }
        for name, optimizer in self._optimizers.items():
            if id(optimizer) in self._stepped:
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        if parameter.requires_grad:
                            yield names.get(id(parameter), name), parameter, optimizer

    def _fork(self, device: torch.device) -> None:
        """Let what is copied from this GPU come behind all it was told to do so far."""
        if device.type == "cuda":
            stream = self._streams.setdefault(device, torch.cuda.Stream(device))
            stream.wait_stream(torch.cuda.current_stream(device))

    def _cut(self, pair: Pair) -> Iterator[Callable[[], None]]:
        """Yield what copies it, piece by piece."""
        stream = self._streams.get(pair.source.device)
        for buffer, source in zip(
            pair.buffer.split(_PIECE), pair.source.split(_PIECE), strict=True
        ):
            yield partial(_copy, buffer, source, stream)


def _local(tensor: Any) -> Any:
    """Return the part of it that is here, as a plain tensor on a CPU or a GPU, unless small."""
    if not isinstance(tensor, torch.Tensor):
        return None
    with torch.no_grad():
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    plain = type(local) in (torch.Tensor, torch.nn.Parameter) and local.layout is torch.strided
    if not plain or local.is_inference() or local.device.type not in ("cpu", "cuda"):
        return None
    return local if local.untyped_storage().nbytes() >= SMALL else None


def _copy(staged: torch.Tensor, source: torch.Tensor, stream: Any) -> None:
    with torch.cuda.stream(stream):  # None is none; a tensor, unlike a storage, frees the GIL
        staged.copy_(source)
