"""Where the time of parts is booked, and what of the caller's thread a part has in its own."""

from __future__ import annotations

import contextvars
import itertools
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_ett.errors import InitError
from airflow_ett.events import Kind
from airflow_ett.metric import JobMetric, measure
from airflow_ett.trainer import Session

TRAINING = """
    import threading, time
    from airflow_ett.trainer import Session

    def part():
        time.sleep(0.2)

    def optimizer(train_module_creation):
        for thread in threading.enumerate():
            if thread.name in ("preproc_creation", "trainer_init.index"):
                thread.join(30)  # it ends last

    with Session() as ett:
        ett.parallel_init(
            preproc_creation=part, index=part, train_module_creation=part, optimizer=optimizer
        )
        for batch in ett.track([1]):
            ett.step(1)
"""
PARTS = ("preproc_creation", "trainer_init.index", "train_module_creation")


def trained(job: Any, **environ: str) -> JobMetric:
    done = job.run(TRAINING, **environ)
    assert done.returncode == 0, done.stderr
    metric = measure(job.events())
    main = [span for span in metric.spans if span.lane == "main"]
    assert all(one.end_ns == two.begin_ns for one, two in itertools.pairwise(main))
    assert sum(metric.phases_ns.values()) == metric.wall_ns == sum(metric.components_ns.values())
    assert not [reason for reason in metric.quality_reasons if "phase" in reason]
    return metric


def test_a_start_in_parallel_is_shorter_by_what_lies_in_the_shadow(job: Any) -> None:
    metric = trained(job)
    beside = {span.lane: span for span in metric.spans if span.lane != "main"}
    assert {lane: span.phase for lane, span in beside.items()} == {
        name: name for name in (*PARTS, "trainer_init.optimizer")
    }

    # The optimizer ended last, and had waited for the model: no other part cost anything.
    chain = [span for span in metric.spans if span.lane == "main" and span.phase in beside]
    model, optimizer = chain
    assert (model.phase, optimizer.phase) == ("train_module_creation", "trainer_init.optimizer")
    assert model.end_ns == beside["train_module_creation"].end_ns
    assert model.begin_ns <= beside["train_module_creation"].begin_ns
    assert optimizer.end_ns == beside["trainer_init.optimizer"].end_ns

    (told,) = job.events(Kind.LEVER)
    assert (told.data["lever"], told.data["outcome"]) == ("parallel_init", "used")
    assert re.fullmatch(r"4 parts, \d\.\d s of work in \d\.\d s", told.data["reason"])
    length = optimizer.end_ns - model.begin_ns
    assert length <= told.data["duration_ns"]

    job.next_submission()
    in_turn = trained(job, ETT_PARALLEL_INIT="0").attempts[-1].phases_ns
    assert all(in_turn[name] >= 200_000_000 for name in PARTS)
    assert sum(in_turn[name] for name in PARTS) > 1.5 * length


def test_the_wait_of_a_failed_start_is_booked_too(job: Any) -> None:
    done = job.run("""
        from airflow_ett.trainer import Session

        def bad():
            raise ValueError("boom")

        with Session() as ett:
            ett.parallel_init(bad=bad, model=lambda bad: 1)
    """)
    assert "InitError: the start-up failed: bad: ValueError: boom" in done.stderr
    assert "trainer_init.bad" in measure(job.events()).phases_ns
    (failure,) = job.events(Kind.FAILURE)
    assert failure.data["type"] == "InitError"
    assert "in bad" in failure.data["traceback"]


def test_outside_a_launched_job_parts_are_made_at_once() -> None:
    barrier = threading.Barrier(2)
    with Session() as ett:
        made = ett.parallel_init(a=lambda: barrier.wait(30), b=lambda: barrier.wait(30))
    assert {made.a, made.b} == {0, 1}


def one(part: Callable[[], Any]) -> Any:
    """Return a part that is made in a thread."""
    with Session() as ett:
        return ett.parallel_init(part=part).part


def test_context_variables_are_the_callers() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("the caller's")
    assert one(variable.get) == "the caller's"
    one(lambda: variable.set("the part's"))
    assert variable.get() == "the caller's"


@pytest.mark.torch
def test_torchs_settings_are_the_callers() -> None:
    torch = pytest.importorskip("torch")

    def settings() -> dict[str, Any]:
        return {
            "grad": torch.is_grad_enabled(),
            "device": torch.ones(1).device.type,
            "dtype": torch.get_default_dtype(),
            "threads": torch.get_num_threads(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }

    assert one(settings) == settings()
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(threads + 1)
        torch.use_deterministic_algorithms(True)
        with torch.no_grad(), torch.device("meta"):
            mine = settings()
            assert (mine["grad"], mine["device"]) == (False, "meta")
            assert one(settings) == mine
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
    assert one(lambda: len(torch.overrides._get_current_function_mode_stack())) == 0


@pytest.mark.torch
def test_the_current_cuda_device_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    current = threading.local()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: getattr(current, "number", 0))
    monkeypatch.setattr(
        torch.cuda, "set_device", lambda number: vars(current).update(number=number)
    )
    torch.cuda.set_device(3)
    assert one(torch.cuda.current_device) == 3

    def broken(number: int) -> None:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(torch.cuda, "set_device", broken)
    with pytest.raises(InitError, match="part: RuntimeError: CUDA error"):
        one(lambda: 1)


@pytest.mark.torch
def test_random_weights_are_as_in_turn_where_parts_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")

    def weights() -> Any:
        torch.manual_seed(7)
        with Session() as ett:
            made = ett.parallel_init(
                head=lambda body: torch.nn.Linear(64, 8),
                body=lambda: torch.nn.Linear(512, 64),
                noise=lambda head: torch.randn(4),
                quiet=lambda: torch.ones(4),
            )
        return [made.body.weight, made.head.weight, made.noise, torch.randn(1)]

    at_once = [weights() for _ in range(3)]
    monkeypatch.setenv("ETT_PARALLEL_INIT", "0")
    in_turn = weights()
    for found in at_once:
        assert all(torch.equal(one, other) for one, other in zip(found, in_turn, strict=True))
