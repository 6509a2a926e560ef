"""Compilations are seen without a word in the user's loop."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import Kind
from airflow_ett.metric import measure

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
told_much = pytest.mark.skipif(
    "CallbackArgs"
    not in Path(torch.__file__).with_name("_dynamo").joinpath("callback.py").read_text(),
    reason="this torch does not say what is compiled, nor why",
)


@told_much
def test_compilations_are_phases_with_reasons(job: Any, covered: Any) -> None:
    done = job.run("""
        import torch
        from airflow_ett.trainer import Session
        with Session() as ett:
            with ett.phase("train_module_creation"):
                model = torch.nn.Linear(4, 1)
                forward = torch.compile(model, backend="aot_eager", dynamic=False)
            for samples, size in enumerate(ett.track([8, 8, 4, 4]), start=1):
                forward(torch.ones(size, 4)).sum().backward()
                ett.step(samples)
                if samples == 2:
                    torch._dynamo.reset()  # forgets whoever listens
    """)
    assert done.returncode == 0, done.stderr
    events = job.events()
    compiled = [e for e in events if e.kind == Kind.COMPILE]
    assert [e.data["id"] for e in compiled[:2]] == ["0/0", "0/0 backward"]
    assert [e.data["trigger"] for e in compiled[:2]] == ["dynamo", "lazy_backward"]
    begins = [e for e in events if e.kind == Kind.PHASE_BEGIN and e.data["phase"] == "compile"]
    assert len(begins) == len(compiled)
    assert {e.data["lane"] for e in begins} == {"main"}
    for event in compiled:
        assert event.data["duration_ns"] > 0
        assert event.data["hits"] >= 0
        assert event.data["misses"] >= 0
    assert covered(events) == []
    fragments = [e.data for e in events if e.data.get("fragment")]
    assert fragments


@told_much
def test_a_recompile_says_why(job: Any) -> None:
    done = job.run("""
        import torch
        from airflow_ett.trainer import Session
        with Session() as ett:
            double = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
            for samples, size in enumerate(ett.track([8, 4]), start=1):
                double(torch.ones(size))
                ett.step(samples)
    """)
    assert done.returncode == 0, done.stderr
    first, second = job.events(Kind.COMPILE)
    assert first.data["reason"] is None
    assert "size mismatch" in second.data["reason"]


@told_much
def test_what_the_caches_gave_is_told_compilation_by_compilation(job: Any, tmp_path: Path) -> None:
    """The real compiler, twice: the first time it builds a kernel, then it finds it."""
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("torch.compile needs a C++ compiler")
    done = job.run(
        """
        import torch
        from airflow_ett.trainer import Session
        with Session() as ett:
            kernel = torch.compile(lambda x: (x.sin() * 2 + 1).sum(), dynamic=False)
            for samples in ett.track([1, 2]):
                kernel(torch.ones(8, 4))
                torch._dynamo.reset()
                ett.step(samples)
        """,
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
        TORCHINDUCTOR_COMPILE_THREADS="1",
    )
    assert done.returncode == 0, done.stderr
    first, second = (event.data for event in job.events(Kind.COMPILE))
    assert (first["hits"], first["misses"]) == (0, 2)  # inductor's cache and AOTAutograd's
    assert (second["hits"], second["misses"]) == (2, 0)
    assert second["duration_ns"] < first["duration_ns"]


@told_much
def test_a_compilation_is_told_after_the_step_even_if_the_next_one_kills(job: Any) -> None:
    done = job.run("""
        import os, torch
        from airflow_ett.trainer import Session
        with Session() as ett:
            double = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
            for samples in ett.track([1, 2]):
                if samples == 2:
                    os.kill(os.getpid(), 9)
                double(torch.ones(8))
                ett.step(samples)
    """)
    assert done.returncode == -9
    (event,) = job.events(Kind.COMPILE)
    assert (event.data["trigger"], event.data["lane"]) == ("dynamo", "main")


def test_a_torch_that_says_no_more_than_when_is_heard(job: Any) -> None:
    """As torch 2.6 does; an error in a callback would be one of the user's compilation."""
    done = job.run("""
        import torch
        from airflow_ett.trainer import Session
        from torch._dynamo.callback import callback_handler
        from torch._guards import CompileContext, CompileId, compile_context
        with Session() as ett:
            for samples in ett.track([1]):
                with compile_context(CompileContext(CompileId(frame_id=7, frame_compile_id=0))):
                    for callback in callback_handler.start_callbacks:
                        callback()
                    for callback in callback_handler.end_callbacks:
                        callback()
                ett.step(samples)
    """)
    assert done.returncode == 0, done.stderr
    assert "was not recorded" not in done.stderr
    (event,) = job.events(Kind.COMPILE)
    assert (event.data["id"], event.data["trigger"]) == ("7/0", None)
    assert event.data["duration_ns"] > 0


def test_this_torch_compiles_under_a_session(job: Any) -> None:
    done = job.run("""
        import torch
        from airflow_ett.trainer import Session
        with Session() as ett:
            double = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
            for samples in ett.track([1, 2]):
                double(torch.ones(samples))
                ett.step(samples)
    """)
    assert done.returncode == 0, done.stderr
    assert [event.data["id"] for event in job.events(Kind.COMPILE)] == ["0/0", "0/1"]


@told_much
def test_only_the_main_lane_counts(job: Any, covered: Any) -> None:
    """A thread's compilations lie beside; those of autograd's threads are waited for."""
    done = job.run("""
        import _thread, threading, torch
        from airflow_ett.trainer import Session
        from torch._dynamo.callback import CallbackTrigger, callback_handler

        def compile_backward(done):
            with callback_handler.install_callbacks(CallbackTrigger.LAZY_BACKWARD, "9/0"):
                pass
            done.release()

        def _engine_run_backward():  # what the main thread is in while a GPU's thread works
            done = threading.Lock()
            done.acquire()
            _thread.start_new_thread(compile_backward, (done,))
            done.acquire()

        with Session() as ett:
            double = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
            for samples in ett.track([1, 2]):
                if samples == 1:
                    beside = threading.Thread(target=double, args=(torch.ones(8),), name="warm")
                    beside.start()
                    beside.join()
                else:
                    _engine_run_backward()
                ett.step(samples)
    """)
    assert done.returncode == 0, done.stderr
    events = job.events()
    lanes = {e.data["id"]: e.data["lane"] for e in events if e.kind == Kind.COMPILE}
    assert lanes == {"0/0": "warm", "9/0 backward": "main"}
    assert covered(events) == []
    assert measure(events).phases_ns["compile"] == sum(
        e.data["duration_ns"] for e in events if e.data.get("id") == "9/0 backward"
    )
