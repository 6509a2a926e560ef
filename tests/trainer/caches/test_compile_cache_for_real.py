"""Real compilations in real processes, each in a fresh folder as on another host.

R38 has the reason of a miss in the compile phase's attributes: here it is in the ``lever`` event,
beside the phase ``compile_cache_load``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import Event, JobContext, JobKey, Kind
from airflow_ett.metric import measure
from tests.trainer.conftest import Job

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        shutil.which(os.environ.get("CXX", "g++")) is None,
        reason="torch.compile needs a C++ compiler",
    ),
]
torch = pytest.importorskip("torch")

SCRIPT = """
    import logging, os, torch
    logging.basicConfig(level=logging.WARNING)
    from airflow_ett.trainer import Session
    with Session() as ett:
        ett.compile_cache(mega=os.environ.get("MEGA") == "1")
        kernel = lambda x: (x.sin() * 2 + 1).sum()
        if backend := os.environ.get("BACKEND"):
            kernel = torch.compile(kernel, dynamic=False, backend=backend)
        for samples in ett.track([1, 2]):
            result = kernel(torch.ones(8, 4))
            ett.step(samples)
        print(float(result))
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("compile-cache")
    (folder / "run").mkdir()
    key = JobKey("test", "dag", "run", "train")
    context = JobContext(
        key, 0, str(folder / "run"), "", 0, grace_s=20.0, cache=str(folder / "cache")
    )
    made = Job(folder, context, [])
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def attempt(job: Job, **environ: str) -> tuple[list[Event], str]:
    """Run the next attempt, with nothing on this host but the store; return its events."""
    job.next_submission()
    host = job.folder / f"host{job.context.submission}"
    host.mkdir(mode=0o700)
    environ = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TMPDIR": str(host), **environ}
    done = job.run(SCRIPT, **environ)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) == pytest.approx(85.853, abs=1e-2)
    assert not list(host.rglob("*.so")), "nothing of it stays on the host"
    mine = [e for e in job.events() if e.attempt and e.attempt.submission == job.context.submission]
    return mine, done.stderr


def levers(events: list[Event]) -> list[Mapping[str, Any]]:
    return [event.data for event in events if event.kind == Kind.LEVER]


def compiled(events: list[Event]) -> Mapping[str, Any]:
    (event,) = (event for event in events if event.kind == Kind.COMPILE)
    return event.data


@pytest.fixture(scope="module")
def first(job: Job) -> list[Event]:
    return attempt(job, BACKEND="inductor", MEGA="1")[0]


def test_r38_the_second_host_has_hits_and_compiles_for_less_long(
    job: Job, first: list[Event]
) -> None:
    missed, saved = levers(first)
    assert (missed["outcome"], missed["reason"]) == ("missed", "nothing was saved yet")
    assert (saved["outcome"], saved["bytes"] > 1000) == ("saved", True)
    assert (compiled(first)["hits"], compiled(first)["misses"]) == (0, 2)

    second, _ = attempt(job, BACKEND="inductor")
    (used,) = levers(second)
    assert (used["outcome"], used["bytes"]) == ("used", saved["bytes"])
    assert used["duration_ns"] > 0
    assert (compiled(second)["hits"], compiled(second)["misses"]) == (2, 0)
    assert compiled(second)["duration_ns"] < compiled(first)["duration_ns"] / 2
    assert measure(second).phases_ns["compile_cache_load"] > 0


def test_r38_a_corrupt_blob_is_a_miss_with_a_warning(job: Job, first: list[Event]) -> None:
    (blob,) = Path(job.context.cache).rglob("*.bin")
    content = blob.read_bytes()
    blob.write_bytes(content[:-100] + bytes(100))
    events, err = attempt(job)
    blob.write_bytes(content)
    missed = levers(events)[0]
    assert (missed["outcome"], missed["reason"][:8]) == ("missed", "corrupt:")
    assert f"is not used: {missed['reason']}" in err
