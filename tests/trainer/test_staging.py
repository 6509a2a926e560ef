"""Copies beside the training: what a step changes waits for them, what else changes is found."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.errors import CheckpointError
from airflow_ett.events import Kind
from airflow_ett.trainer.checkpointer import Checkpointer
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.place import read_place
from airflow_ett.trainer.ranks import Ranks
from airflow_ett.trainer.shards import Shards
from airflow_ett.trainer.stepclock import StepClock

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
from airflow_ett.trainer import staging  # noqa: E402


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
        assert self.opened.wait(10)
        self.copied += 1
        staged.copy_(source)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(staging, "_copy", made)
    yield made
    made.opened.set()


@pytest.fixture
def begin(job: Any) -> Iterator[Callable[..., Training]]:
    """A function that begins a training that has saved once: so it has its buffers."""
    made: list[Training] = []

    def begin(objects: Mapping[str, Any], *inputs: Any, **options: Any) -> Training:
        training = Training(job, objects, **options)
        made.append(training)
        training.step(*inputs)
        training.save()
        training.step(*inputs)
        training.saver.join()
        return training

    yield begin
    for training in made:
        training.saver.join()
        training.saver.close()


def layers() -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)
    )


def adam(model: Any, **options: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, **options)


def test_a_step_waits_for_the_copy_and_the_wait_is_part_of_the_blocking(
    begin: Callable[..., Training], gate: Gate
) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    seen = len(training.diary.events)
    expected = training.save()
    training.backward()  # changes the buffers of BatchNorm
    assert gate.copied == 0
    assert training.told(seen) == []
    training.diary.on_wait = gate.opened.set
    training.step()
    assert gate.copied == 6 + 3 * 6  # the weights, and AdamW's three states of each; no buffers
    training.step()
    ((call, wait), (told,)) = training.waits(seen), training.told(seen)
    assert wait > 0
    assert told["blocking_ns"] == call + wait
    assert call < told["staging_ns"]
    training.assert_saved(expected)


def test_what_is_copied_before_the_step_makes_nobody_wait(
    begin: Callable[..., Training], gate: Gate
) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    seen = len(training.diary.events)
    gate.opened.set()
    expected = training.save()
    training.backward()
    training.saver.join()  # even the upload is over
    training.step()
    ((call,), (told,)) = training.waits(seen), training.told(seen)
    assert told["blocking_ns"] == call
    training.assert_saved(expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda model: {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)},
        lambda model: {"optimizer": adam(model, foreach=True)},
        lambda model: {"optimizer": adam(model, fused=True)},
        lambda model: {"optimizer": adam(model, capturable=False, amsgrad=True)},
        lambda model: {"scaler": torch.amp.GradScaler("cpu"), "optimizer": adam(model)},
        lambda model: {"first": adam(model[0]), "last": adam(model[1:])},
        lambda model: {"ema": torch.optim.swa_utils.AveragedModel(model), "optimizer": adam(model)},
    ],
    ids=["momentum", "foreach", "fused", "amsgrad", "scaler", "two optimizers", "averaged"],
)
def test_the_state_of_the_save_is_kept_whatever_steps(
    begin: Callable[..., Training], gate: Gate, make: Callable[[Any], dict[str, Any]]
) -> None:
    model = layers()
    training = begin({"model": model, **make(model)})
    expected = training.save()
    training.diary.on_wait = gate.opened.set
    for _ in range(3):
        training.step()
    assert gate.copied
    training.assert_saved(expected)
    assert training.diary.warnings == []


def test_what_no_optimizer_steps_is_copied_at_once(
    begin: Callable[..., Training], gate: Gate
) -> None:
    model = layers()
    model[0].requires_grad_(False)
    training = begin({"model": model, "optimizer": adam(model[1:])})
    expected = training.save()
    with torch.no_grad():
        model[0].weight.fill_(3)
    training.backward()
    gate.opened.set()
    training.step()
    assert gate.copied == 4 + 3 * 4
    training.assert_saved(expected)


def test_shared_weights_are_copied_once(begin: Callable[..., Training], gate: Gate) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    model[1].weight = model[0].weight
    model.register_buffer("alias", model[0].bias.detach())  # the same memory: who changes it?
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = begin({"model": model, "optimizer": optimizer})
    expected = training.save()
    training.diary.on_wait = gate.opened.set
    training.step()
    assert gate.copied == 2  # the shared weight and one of two biases
    training.assert_saved(expected)


@pytest.mark.parametrize("policy", ["warn", "raise"])
def test_weights_that_a_forward_pass_changes_lose_one_save_and_are_copied_at_once(
    begin: Callable[..., Training], gate: Gate, policy: str
) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(4, 8, max_norm=0.1), torch.nn.Linear(8, 1))
    inputs = torch.tensor([1, 2])
    objects = {"model": model, "optimizer": adam(model)}
    training = begin(objects, inputs, on_failed_save=policy)
    training.save()
    training.diary.on_wait = gate.opened.set
    training.step(inputs)
    assert training.committed == [1]
    (warning,) = training.diary.warnings
    assert "model.0.weight changed after the save" in warning
    assert "From now on all is copied at once" in warning
    assert training.told()[1:] == []
    training.saver.at_edge(stop=False)  # at once, whatever the interval, and without raising
    assert training.committed == [1, 3]
    for _ in range(2):
        training.step(inputs)
        expected = training.save()
        training.step(inputs)
    training.assert_saved(expected)
    assert len(training.diary.warnings) == 1


def test_loading_into_the_weights_before_the_step_is_found(
    begin: Callable[..., Training], gate: Gate
) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    before = copy.deepcopy(model.state_dict())
    training.save()
    model.load_state_dict(before)
    gate.opened.set()
    assert training.committed == [1]
    assert "model.0.weight" in training.diary.warnings[0]


@pytest.mark.parametrize("unseen", ["compiled", "around it"])
def test_what_steps_unseen_is_copied_at_once(
    begin: Callable[..., Training], gate: Gate, unseen: str
) -> None:
    model = layers()
    optimizer = adam(model)
    if unseen == "compiled":
        pytest.importorskip("torch._dynamo")
        optimizer.step = torch.compile(optimizer.step, backend="eager")
    else:
        optimizer.step = optimizer.step.__func__.__wrapped__.__get__(optimizer)
    training = begin({"model": model, "optimizer": optimizer})
    expected = training.save()
    training.step()
    assert gate.copied == 0
    training.assert_saved(expected)


def test_a_copy_that_fails_is_a_failed_save_and_the_step_goes_on(
    begin: Callable[..., Training], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("no more of it")

    monkeypatch.setattr(staging, "_copy", fail)
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)}, on_failed_save="raise")
    training.save()
    training.step()
    assert training.committed == [1]
    assert training.told()[1:] == []
    with pytest.raises(CheckpointError, match="MemoryError: no more of it"):
        training.saver.at_edge(stop=False)


@pytest.mark.parametrize("end", ["last", "anchor"])
def test_a_training_that_ends_without_another_step_keeps_its_save(
    begin: Callable[..., Training], gate: Gate, end: str
) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    expected = training.save()
    gate.opened.set()
    training.saver.leave_last() if end == "last" else training.saver.leave_anchor()
    assert training.committed == [1, 2]
    assert len(training.told()) == 2
    training.assert_saved(expected)


def test_a_last_save_copies_all_at_once(begin: Callable[..., Training], gate: Gate) -> None:
    model = layers()
    training = begin({"model": model, "optimizer": adam(model)})
    training.save(wait=True)
    assert training.committed == [1, 2]
    assert gate.copied == 0


def test_a_closed_checkpointer_leaves_the_optimizer_as_it_was(job: Any) -> None:
    model = layers()
    optimizer = adam(model)
    training = Training(job, {"model": model, "optimizer": optimizer})
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    training.saver.close()
    assert len(optimizer._optimizer_step_pre_hooks) == 0


TWO = """
import threading, time
import torch, torch.distributed as dist
from airflow_ett.trainer import Session, ranks, staging

ranks._PULSE_NS = 0  # they agree at every step
copy, main = staging._copy, threading.current_thread()

def slow(*arguments):
    if threading.current_thread() is not main:
        time.sleep(0.1)
    copy(*arguments)

staging._copy = slow
with Session() as ett:
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 8)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    saver = ett.checkpointer(model=parallel, optimizer=optimizer, every_s=0.0)
    start = saver.restore()
    for number in ett.track(range(1, 17), cursor=start):
        optimizer.zero_grad()
        parallel(torch.randn(2, 8)).square().mean().backward()
        copying = saver._untold is not None and saver._untold.copying is not None
        if number < 12 and copying and dist.get_rank() == 1:
            with torch.no_grad():
                model.weight.mul_(1.0)
        optimizer.step()
        ett.step(number)
        time.sleep(0.05)
dist.destroy_process_group()
"""


def test_what_changes_on_one_rank_loses_the_save_of_all_of_them(job: Any) -> None:
    agent = job.agent(TWO, "--nproc", "2")
    _, told = agent.communicate(timeout=120)
    assert agent.returncode == 0, told
    assert told.count("rank 1: ChangedError: model.module.weight changed after the save") == 1
    kept = checkpoints.list_checkpoints(job.context.checkpoints)
    assert kept[-1].cursor == 16
    assert len(job.events(Kind.CHECKPOINT_COMMITTED)) > 2
