"""A training in this process whose saves are looked at, and whose copies can be held back."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from airflow_ett import checkpoints
from airflow_ett.events import Kind
from airflow_ett.trainer.checkpointer import Checkpointer
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.place import read_place
from airflow_ett.trainer.ranks import Ranks
from airflow_ett.trainer.shards import Shards
from airflow_ett.trainer.stepclock import StepClock


class Diary(Journal):
    """Keeps the events and warnings of one training; ``on_wait`` is called once a step waits."""

    def __init__(self) -> None:
        super().__init__(None)
        self.events: list[tuple[str, Any, int | None]] = []
        self.warnings: list[str] = []
        self.saving = False
        self.on_wait: Callable[[], object] = lambda: None

    def emit(
        self, kind: str, data: Any = None, *, time_ns: int | None = None, seq: int | None = None
    ) -> None:
        self.events.append((kind, data, time_ns))
        if kind == Kind.PHASE_BEGIN and data["phase"] == "checkpoint_save" and not self.saving:
            self.on_wait()

    def warn(self, what: str, error: BaseException | None = None) -> None:
        self.warnings.append(f"{what}: {error}")


class Training:
    """A loop in this process, around ``model`` and what else is saved."""

    def __init__(self, job: Any, objects: Mapping[str, Any], **options: Any) -> None:
        place = read_place(job.environ())
        assert place is not None
        self.root = job.context.checkpoints
        self.diary = Diary()
        self.clock = StepClock(self.diary, (1, 0, 0, 0, 1), offset=0, on_edge=lambda: 0)
        phases = Phases(self.diary, self.clock, 0)
        self.objects = objects
        self.saver = Checkpointer(place, self.diary, phases, self.clock, objects, 900, **options)
        self.saver.at_edge(stop=False)

    def backward(self, *inputs: Any) -> None:
        """Run the model forward and backward."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.objects["model"](*inputs or (torch.randn(4, 8),)).square().mean()
        scaler = self.objects.get("scaler")
        (scaler.scale(loss) if scaler else loss).backward()

    @property
    def optimizers(self) -> list[Any]:
        return [o for o in self.objects.values() if isinstance(o, torch.optim.Optimizer)]

    def step(self, *inputs: Any) -> None:
        """Do one whole step."""
        self.backward(*inputs)
        scaler = self.objects.get("scaler")
        for optimizer in self.optimizers:
            scaler.step(optimizer) if scaler else optimizer.step()
        if scaler:
            scaler.update()
        self.clock.cursor += 1

    def save(self, **options: Any) -> dict[str, Any]:
        """Save; return what is to be found in the checkpoint."""
        expected = copy.deepcopy({n: o.state_dict() for n, o in self.objects.items()})
        self.diary.saving = True
        self.saver.save(**options)
        self.diary.saving = False
        return expected

    def told(self, seen: int = 0) -> list[Any]:
        """Return what was told of saves after so many events."""
        return [data for kind, data, _ in self.diary.events[seen:] if kind == Kind.CHECKPOINT_SAVED]

    def waits(self, seen: int) -> list[int]:
        """Return the lengths of the main lane's phases after so many events, in nanoseconds."""
        begun, lengths = {}, []
        for kind, data, time_ns in self.diary.events[seen:]:
            if kind == Kind.PHASE_BEGIN and data["lane"] == "main":
                assert data["phase"] == "checkpoint_save"
                begun[data["span"]] = time_ns
            elif kind == Kind.PHASE_END and data["span"] in begun:
                lengths.append(time_ns - begun[data["span"]])
        return lengths

    @property
    def committed(self) -> list[int]:
        self.saver.join()
        return [c.cursor for c in checkpoints.list_checkpoints(self.root)]

    def assert_saved(self, expected: dict[str, Any]) -> None:
        """The newest checkpoint is this state, bit by bit."""
        self.saver.join()
        newest = checkpoints.newest_verified(self.root)
        assert newest is not None
        for module in self.objects.values():
            for tensor in _tensors(module.state_dict()):
                tensor.fill_(7)
        Shards(Ranks(1), self.objects, lambda: None).load(newest)
        loaded = {name: thing.state_dict() for name, thing in self.objects.items()}
        for saved, found in zip(_tensors(expected), _tensors(loaded), strict=True):
            assert torch.equal(saved, found)


def _tensors(state: Any) -> list[Any]:
    if isinstance(state, torch.Tensor):
        return [state]
    parts = state.values() if isinstance(state, dict) else state
    return [t for p in parts if isinstance(p, (dict, list, torch.Tensor)) for t in _tensors(p)]


class Gate:
    """Holds back the copies beside the training until it is opened; counts them."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.copied = 0

    def __call__(self, staged: Any, source: Any, stream: Any) -> None:
        if not self.opened.wait(10):
            self.opened.set()  # one wait is enough: the others only make the failure late
            raise TimeoutError("nobody has waited for this copy")
        self.copied += 1
        staged.copy_(source)


def layers() -> Any:
    """Return a model with buffers, which a forward pass changes."""
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)
    )


def adam(model: Any, **options: Any) -> Any:
    """Return an optimizer with three tensors a parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
