"""How often to save, as the environment says it; how saves keep their pace is told elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError
from airflow_ett.trainer.pacing import interval

VARIABLE = "ETT_CHECKPOINT_EVERY_S"


@pytest.mark.parametrize("code", [900.0, "auto", None])
def test_without_the_variable_the_code_decides(monkeypatch: pytest.MonkeyPatch, code: Any) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert interval(code) == code
    monkeypatch.setenv(VARIABLE, " ")
    assert interval(code) == code


@pytest.mark.parametrize(
    ("told", "meant"),
    [("30", 30.0), ("0.5", 0.5), ("0", 0.0), (" 60 ", 60.0), ("auto", "auto"), ("never", None)],
)
def test_the_variable_goes_before_the_code(
    monkeypatch: pytest.MonkeyPatch, told: str, meant: Any
) -> None:
    monkeypatch.setenv(VARIABLE, told)
    assert interval(900.0) == meant
    assert interval(None) == meant


@pytest.mark.parametrize("told", ["often", "-1", "nan", "inf", "30s", "1e9"])
def test_what_is_no_interval_is_named(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv(VARIABLE, told)
    with pytest.raises(ConfigurationError, match=f"{VARIABLE}: '{told}' is neither") as caught:
        interval(900.0)
    assert caught.value.parameter == VARIABLE


@pytest.mark.torch
def test_a_training_that_is_told_so_saves_only_at_its_end(job: Any) -> None:
    pytest.importorskip("torch")
    code = """
    import torch
    from airflow_ett.trainer import Session
    with Session() as ett:
        saver = ett.checkpointer(model=torch.nn.Linear(1, 1), every_s=0.0)
        for number, _ in enumerate(ett.track(range(5), cursor=saver.restore()), start=1):
            ett.step(number)
    """
    done = job.run(code, **{VARIABLE: "never"})
    assert done.returncode == 0, done.stderr
    assert [event.data["cursor"] for event in job.events("checkpoint_saved")] == [5]
