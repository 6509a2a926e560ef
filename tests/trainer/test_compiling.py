"""Compilations are seen without a word in the user's loop."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.events import Kind

pytestmark = pytest.mark.torch
pytest.importorskip("torch")


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
