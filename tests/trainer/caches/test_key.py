"""What compiled code depends on, and the word on why none of what is kept fits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_ett.events import AttemptId, JobContext, JobKey
from airflow_ett.trainer.caches import key
from airflow_ett.trainer.place import Place

NOW = {"torch": "2.13.0", "GPU": "H100", "world size": "8", key.CODE: "abc"}


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """A function that makes a Python module of a text."""
    made = []

    def make(text: str) -> ModuleType:
        name = f"ett_test_module_{len(made)}"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module
        made.append(name)
        exec(text, module.__dict__)
        return module

    yield make
    for name in made:
        del sys.modules[name]


def test_a_name_changes_with_each_part_and_with_nothing_else() -> None:
    names = {key.name({**NOW, part: "other"}) for part in NOW}
    assert len(names | {key.name(NOW)}) == len(NOW) + 1
    assert key.name(dict(reversed(NOW.items()))) == key.name(NOW)


@pytest.mark.parametrize(
    ("was", "reason"),
    [
        ({"torch": "2.12.0"}, "torch was 2.12.0, now 2.13.0"),
        ({"GPU": "A100"}, "GPU was A100, now H100"),
        ({"GPU": ""}, "GPU was none, now H100"),
        ({"world size": "4"}, "world size was 4, now 8"),
        ({key.CODE: "xyz"}, "model code changed"),
        ({"threads": "2"}, "threads was 2, now none"),
        ({"torch": "2.12.0", key.CODE: "x"}, "torch was 2.12.0, now 2.13.0; model code changed"),
    ],
)
def test_a_miss_says_what_is_different(was: dict[str, str], reason: str) -> None:
    assert key.why_missed(NOW, [{**NOW, **was}]) == reason


def test_a_miss_is_compared_with_what_fits_best_and_was_used_last() -> None:
    far = {**NOW, "torch": "1", "GPU": "2"}
    assert key.why_missed(NOW, [far, {**NOW, "torch": "2"}, {**NOW, "torch": "3"}]) == (
        "torch was 2, now 2.13.0"
    )
    assert key.why_missed(NOW, []) == "nothing was saved yet"


def test_the_shape_of_the_training_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = JobContext(JobKey("d", "dag", "run", "train"), 1, str(tmp_path), "", 1)
    place = Place(context, AttemptId(1), rank=5, local_rank=1, world_size=8, node=1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert key.world(place) == {"world size": "8", "ranks per node": "4", "node": "1"}


def test_code_is_where_it_is_defined(module: Callable[[str], ModuleType]) -> None:
    text = "class Base: pass\ndef function(): pass\n"
    one = module(text)
    same = module(text)
    other = module(text + "# changed\n")
    base = key.digest_of([one])
    assert base == key.digest_of([same]) == key.digest_of([one.Base, one.function, one.Base()])
    assert base != key.digest_of([other])
    assert key.digest_of([one.Base, other.Base]) == key.digest_of([other.Base, one.Base])


def test_a_digest_is_the_same_in_each_process() -> None:
    code = """
import ast, calendar, csv, json, queue, string, textwrap
from airflow_ett.trainer.caches import key
print(key.digest_of([ast, calendar, csv, json, queue, string, textwrap]))
"""
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            timeout=60,
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(made) == 1


def test_what_a_class_is_made_of_counts(module: Callable[[str], ModuleType]) -> None:
    base = module("class Base: pass\n")
    derived = module(f"from {base.__name__} import Base\nclass Derived(Base): pass\n")
    before = key.digest_of([derived.Derived])
    Path(str(base.__file__)).write_text("class Base: changed = True\n")
    assert key.digest_of([derived.Derived]) != before


def test_without_code_the_main_script_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("one")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    before = key.digest_of([])
    script.write_text("two")
    assert key.digest_of([]) != before
    script.unlink()
    assert key.digest_of([]), "a console has no file"


@pytest.mark.torch
def test_all_modules_of_a_model_count_but_torchs_own(
    module: Callable[[str], ModuleType],
) -> None:
    torch = pytest.importorskip("torch")
    text = "import torch\nclass Layer(torch.nn.Module): pass\n"
    layer, changed = module(text), module(text + "# changed\n")

    def digest(kind: Any) -> str:
        return key.digest_of([torch.nn.Sequential(torch.nn.Linear(1, 1), kind())])

    assert digest(layer.Layer) != digest(changed.Layer)
    assert digest(layer.Layer) == key.digest_of([layer.Layer()])


@pytest.mark.torch
def test_what_torch_and_the_machine_are_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    software = key.software()
    assert software["torch"] == str(torch.__version__)
    assert f"{sys.version_info.major}{sys.version_info.minor}" in software["Python"]
    machine = key.machine()
    assert torch.backends.cpu.get_cpu_capability() in machine["CPU"]
    assert key.machine() == machine
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "OTHER")
    assert key.machine()["CPU"] != machine["CPU"], "torch finds its graph, but it would be wrong"
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert key.software()["C++ compiler"].startswith("none")


@pytest.mark.torch
def test_a_gpu_is_named_and_threads_do_not_count_there(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    class Facts:
        name, major, minor = "NVIDIA H100", 9, 0

    if not torch.cuda.is_available():
        assert "threads" in key.machine()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Facts)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    machine = key.machine()
    assert (machine["GPU"], machine["CUDA"]) == ("NVIDIA H100 (9.0)", "12.8")
    assert "threads" not in machine


def test_a_cpu_is_its_flags_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = ModuleType("torch")
    torch.backends = ModuleType("backends")
    torch.backends.cpu = ModuleType("cpu")
    torch.backends.cpu.get_cpu_capability = lambda: "AVX2"

    def cpu(flags: str) -> str:
        path = tmp_path / "cpuinfo"
        path.write_text(
            f"processor\t: 0\nmodel name\t: A CPU\nflags\t\t: {flags}\n\nprocessor: 1\n"
        )
        monkeypatch.setattr(key, "_CPUINFO", path)
        return key._processor(torch)["CPU"]

    assert cpu("sse avx").startswith("A CPU (AVX2, flags ")
    assert cpu("sse avx") == cpu("avx sse") != cpu("sse")
