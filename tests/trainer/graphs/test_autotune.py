"""What was tuned once is not tuned again, whatever the model's code is by then."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.events import AttemptId, Kind
from airflow_ett.trainer.caches import key
from airflow_ett.trainer.graphs import autotune
from airflow_ett.trainer.graphs.autotune import Autotune, Kernel, Timings
from airflow_ett.trainer.levers import Levers
from airflow_ett.trainer.place import Place

_names = st.sampled_from("abc")
_times = st.dictionaries(_names, st.floats(0, allow_nan=False), min_size=1)
_timings = st.dictionaries(st.builds(Kernel, _names, _names, _names), _times).map(Timings)

MACHINE = {"CPU": "one", "GPU": ""}


@given(_timings)
def test_a_table_tells_what_it_was_made_of(timings: Timings) -> None:
    assert Timings.parse(timings.table()).known == timings.known


@given(_timings, _timings)
def test_merged_knows_what_either_knows_and_the_later_one_is_right(
    earlier: Timings, later: Timings
) -> None:
    merged = earlier.merged(later)
    for kernel in {*earlier.known, *later.known}:
        assert merged.known[kernel] == {
            **earlier.known.get(kernel, {}),
            **later.known.get(kernel, {}),
        }
    assert merged.newest(len(later.known)).known == merged.only(later.known).known


@pytest.mark.parametrize(
    "other", [[], "bmm", {"bmm": 1}, {"bmm": {"[8]": {"highest": {"a": "x"}}}}]
)
def test_anything_else_is_no_table(other: Any) -> None:
    with pytest.raises(ValueError, match="no table of timings"):
        Timings.parse(other)


class Inductor:
    """Stands in for torch: a table in memory, and kernels that are asked for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.table: Any = {}
        self.tuned: list[str] = []
        self.before: list[Callable[..., Any]] = []
        self.after: list[Callable[..., Any]] = []
        self.config = SimpleNamespace(autotune_local_cache=True)
        self.select = SimpleNamespace(
            add_preprocessing_fn=self.before.append,
            add_feedback_saver=self.after.append,
            create_inputs_key=str,
        )
        package = ModuleType("torch._inductor")
        package.__dict__.update(select_algorithm=self.select, config=self.config)
        torch = ModuleType("torch")
        torch.__dict__.update(__version__="2", get_float32_matmul_precision=lambda: "highest")
        shelf = SimpleNamespace(get_local_cache=lambda: self.table, update_local_cache=self._write)
        fakes = {"torch": torch, "torch._inductor": package}
        fakes["torch._inductor.codecache"] = SimpleNamespace(PersistentCache=lambda: shelf)  # type: ignore[assignment]
        fakes["torch._inductor.select_algorithm"] = self.select  # type: ignore[assignment]
        for name, fake in fakes.items():
            patch.setitem(sys.modules, name, fake)

    def _write(self, table: Any) -> None:
        self.table = table

    def compile(self, inputs: str, *choices: str) -> None:
        """Ask for a kernel as torch does: nothing is tuned whose choices all stand in the table."""
        for hook in self.before:
            assert hook(list(choices)) == list(choices)
        times = self.table.setdefault("bmm", {}).setdefault(inputs, {}).setdefault("highest", {})
        if not set(choices) <= set(times):
            self.tuned.append(inputs)
            times.update({choice: float(n) for n, choice in enumerate(choices)})
        for hook in self.after:
            hook({c: times[c] for c in choices}, "bmm", inputs, choices, None, {})


class Kept(dict[str, Any]):
    """Warm values in memory, which take one at a time once they are ``open``."""

    def __init__(self) -> None:
        self.open, self.written = threading.Event(), threading.Semaphore(0)
        self.open.set()

    def find(self, name: str, key: Any) -> Any:
        return self.get(f"{name} {key}")

    def put(self, name: str, value: Any, key: Any) -> None:
        self.open.wait(30)
        self[f"{name} {key}"] = value
        self.written.release()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Inductor:
    monkeypatch.setattr(key, "machine", lambda: MACHINE)
    return Inductor(monkeypatch)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def told() -> list[str]:
    """What the lever told: outcomes with their reasons."""
    return []


@pytest.fixture
def lever(job: Any, kept: Kept, told: list[str]) -> Callable[..., Autotune]:
    """A function that opens the lever of a training."""

    def emit(kind: str, data: dict[str, Any]) -> None:
        assert (kind, data["lever"]) == (Kind.LEVER, "autotune")
        told.append(f"{data['outcome']}: {data['reason']}")

    def begin(*, launched: bool = True, **environ: str) -> Autotune:
        place = Place(job.context, AttemptId(1), 0, 0, 1, 0) if launched else None
        levers = Levers(SimpleNamespace(emit=emit), environ)  # type: ignore[arg-type]
        made = Autotune(place, kept, levers)  # type: ignore[arg-type]
        made.open()
        return made

    return begin


def test_what_is_known_is_not_tuned_and_what_is_new_is_kept(
    torch: Inductor, lever: Any, told: list[str]
) -> None:
    first = lever()
    torch.compile("[8]", "aten", "cpp")
    first.keep()
    first.close(hurried=False)
    torch.table = {}  # another host
    second = lever()
    for inputs in ("[8]", "[9]"):
        torch.compile(inputs, "aten", "cpp")
    second.close(hurried=False)
    assert torch.tuned == ["[8]", "[9]"]
    assert told == [
        "missed: 1 of 1 kernels tuned: 1 not known",
        "used: 1 of 2 kernels replayed, 2 choices not tried",
        "missed: 1 of 2 kernels tuned: 1 not known",
    ]


def test_what_stands_in_the_table_of_a_carried_directory_goes_before(
    torch: Inductor, lever: Any, kept: Kept, told: list[str]
) -> None:
    earlier = lever()
    torch.compile("[8]", "aten", "cpp")
    earlier.close(hurried=False)
    torch.table = {"bmm": {"[8]": {"highest": {"aten": 7.0, "cpp": 8.0}}}}
    lever()
    torch.compile("[8]", "aten", "cpp")
    assert torch.table["bmm"]["[8]"]["highest"] == {"aten": 7.0, "cpp": 8.0}
    assert torch.tuned == ["[8]"]


def test_a_kernel_with_another_choice_is_tuned_again(
    torch: Inductor, lever: Any, told: list[str]
) -> None:
    first = lever()
    torch.compile("[8]", "aten", "cpp")
    first.close(hurried=False)
    torch.table = {}
    second = lever()
    torch.compile("[8]", "aten", "triton")
    second.close(hurried=False)
    assert torch.tuned == ["[8]", "[8]"]
    assert told[1:] == ["missed: 1 of 1 kernels tuned: 1 other choices than were timed"]


def test_what_holds_for_this_machine_holds_for_no_other(
    torch: Inductor, lever: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cpu in ("one", "other", "one", "other"):
        monkeypatch.setattr(key, "machine", lambda cpu=cpu: {"CPU": cpu, "GPU": ""})
        torch.table = {}
        training = lever()
        torch.compile("[8]", "aten", "cpp")
        training.close(hurried=False)
    assert torch.tuned == ["[8]", "[8]"]


def test_only_kernels_of_this_training_are_kept_and_only_if_they_are_news(
    torch: Inductor, lever: Any, kept: Kept, told: list[str]
) -> None:
    torch.table = {"mm": {"[1]": {"highest": {"aten": 1.0}}}}  # somebody else's
    training = lever()
    torch.compile("[8]", "aten", "cpp")
    training.keep()
    assert kept.written.acquire(timeout=30)
    (table,) = kept.values()
    assert table == {"bmm": {"[8]": {"highest": {"aten": 0.0, "cpp": 1.0}}}}
    kept.clear()
    torch.compile("[8]", "aten", "cpp")
    training.close(hurried=False)
    assert kept == {}
    assert told[1:] == ["used: 1 of 1 kernels replayed, 2 choices not tried"]


@pytest.mark.parametrize("hurried", [True, False])
def test_no_step_waits_for_the_place(
    torch: Inductor, lever: Any, kept: Kept, hurried: bool
) -> None:
    kept.open.clear()
    training = lever()
    torch.compile("[8]", "aten", "cpp")
    training.keep()
    assert kept == {}
    if not hurried:
        kept.open.set()
    training.close(hurried=hurried)
    assert bool(kept) is not hurried
    kept.open.set()


def test_a_table_that_is_lost_meanwhile_is_no_replay(
    torch: Inductor, lever: Any, kept: Kept, told: list[str]
) -> None:
    training = lever()
    torch.compile("[8]", "aten", "cpp")
    torch.table = {}
    training.close(hurried=False)
    assert told == ["missed: 1 of 1 kernels tuned: 1 not known"]
    assert kept == {}


def test_the_kernels_that_came_first_make_room(
    torch: Inductor, lever: Any, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune, "_MOST", 2)
    training = lever()
    for inputs in ("[7]", "[8]", "[9]"):
        torch.compile(inputs, "aten", "cpp")
        training.keep()
    training.close(hurried=False)
    (table,) = kept.values()
    assert list(table["bmm"]) == ["[8]", "[9]"]


def test_no_table_among_what_is_kept_is_told_and_replaced(
    torch: Inductor, lever: Any, kept: Kept, told: list[str]
) -> None:
    for broken in (True, False):
        if broken:
            kept.put("autotune one", ["no table"], {"torch": "2", **MACHINE})
        torch.table = {}
        training = lever()
        torch.compile("[8]", "aten", "cpp")
        training.close(hurried=False)
    assert torch.tuned == ["[8]"]
    assert [line.partition(":")[0] for line in told] == ["missed", "missed", "used"]
    assert "no table of timings" in told[0]


@pytest.mark.parametrize("hook", ["add_preprocessing_fn", "add_feedback_saver"])
def test_a_torch_without_the_hooks_is_told_of(
    torch: Inductor, lever: Any, told: list[str], hook: str
) -> None:
    delattr(torch.select, hook)
    training = lever()
    torch.compile("[8]", "aten", "cpp")
    training.close(hurried=False)
    (only,) = told
    assert only.startswith("unable: ")
    assert hook in only


def test_a_torch_that_keeps_no_table_is_told_of(
    torch: Inductor, lever: Any, told: list[str]
) -> None:
    torch.config.autotune_local_cache = False
    training = lever()
    torch.compile("[8]", "aten", "cpp")
    training.close(hurried=False)
    (only,) = told
    assert only.startswith("unable: ")
    assert "autotune_local_cache is off" in only


@pytest.mark.parametrize("when", ["before", "after", "keep"])
def test_no_error_reaches_the_training(
    torch: Inductor, lever: Any, told: list[str], when: str
) -> None:
    training = lever()
    if when == "before":
        torch.table = {"bmm": None}
        assert torch.before[0](["aten", "cpp"]) == ["aten", "cpp"]
        torch.table = {}
    torch.compile("[8]", "aten", "cpp")
    if when == "after":
        torch.select.create_inputs_key = None
        torch.compile("[9]", "aten", "cpp")
    elif when == "keep":
        torch.table = {"bmm": None}
        training.keep()
    torch.table = {}
    torch.compile("[8]", "aten", "cpp")
    training.close(hurried=True)
    assert [line.partition(":")[0] for line in told] == ["unable"]


def test_off_is_off_and_outside_a_job_nothing_is_done(
    torch: Inductor, lever: Any, told: list[str]
) -> None:
    lever(launched=False).close(hurried=False)
    lever(ETT_AUTOTUNE="0").close(hurried=False)
    assert told == ["off: ETT_AUTOTUNE=0"]
    assert torch.before == torch.after == []


def test_after_the_training_nothing_is_recorded(
    torch: Inductor, lever: Any, kept: Kept, told: list[str]
) -> None:
    training = lever()
    torch.compile("[8]", "aten", "cpp")
    training.close(hurried=True)  # no time to keep anything
    torch.compile("[9]", "aten", "cpp")
    assert (kept, told) == ({}, [])


REAL = """
    import torch
    from torch._inductor.cpu_vec_isa import VecISA
    from torch._inductor.select_algorithm import AlgorithmSelectorCache
    from airflow_ett.trainer import Session

    VecISA.__bool__ = lambda isa: True  # else it is found out by building something for each
    tried = []
    def timed(self, choices, *_, **__):  # nothing is built for it: torch's own kernel wins
        tried.extend(choices)
        return {c: float(type(c).__name__ != "ExternKernelCaller") for c in choices}
    AlgorithmSelectorCache.benchmark = timed

    def model(x, y):
        return torch.bmm(x, y)

    def changed(x, y):
        return torch.bmm(torch.bmm(x, y), x)

    torch.manual_seed(0)
    x, y = torch.randn(2, 16, 32), torch.randn(2, 32, 16)
    with Session() as ett:
        ett.autotune()
        run = torch.compile(MODEL, options={"max_autotune": True}, dynamic=False)
        for samples in ett.track([1]):
            assert torch.allclose(run(x, y), MODEL(x, y), atol=1e-5)
            ett.step(samples)
    print(len(tried))
"""


@pytest.mark.torch
def test_torch_tunes_only_what_it_has_not_tuned(job: Any, tmp_path: Path) -> None:
    """Each time in a fresh directory, so nothing but the lever can carry it."""
    folder = Path(pytest.importorskip("torch").__file__).parent
    if "def add_preprocessing_fn" not in (folder / "_inductor/select_algorithm.py").read_text():
        pytest.skip("this torch has no hook before its table is read")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("torch.compile needs a C++ compiler")
    job.context = replace(job.context, cache=str(tmp_path / "cache"))
    tried = []
    for number, model in enumerate(("model", "changed")):
        environ = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"inductor{number}")}
        done = job.run(REAL.replace("MODEL", model), TORCHINDUCTOR_COMPILE_THREADS="1", **environ)
        assert done.returncode == 0, done.stderr
        tried.append(int(done.stdout))
    assert tried == [2, 2]  # of two choices each: the second time only those of the new kernel
    told = [e.data for e in job.events(Kind.LEVER) if e.data["lever"] == "autotune"]
    assert [(data["outcome"], data["reason"]) for data in told] == [
        ("missed", "1 of 1 kernels tuned: 1 not known"),
        ("used", "1 of 2 kernels replayed, 2 choices not tried"),
        ("missed", "1 of 2 kernels tuned: 1 not known"),
    ]
