"""``recompiles``: what it prints where much, little and nothing was compiled anew."""

from pathlib import Path
from typing import Any

import pytest

from airflow_ett.cli import main
from airflow_ett.events import AttemptId, JobKey, LogWriter, RunDir

Output = pytest.CaptureFixture[str]
S = 1_000_000_000
BEGIN = 1_790_000_000 * S
SIZE = "0/0: tensor 'x' size mismatch at index 0. expected {}, actual {}"


def compile_in(run: RunDir, *compiled: tuple[str, int, str | None]) -> None:
    """Have the first attempt of a job tell of compilations: id, seconds, reason."""
    job = JobKey("default", "ranker", "run-1", "train").id
    log = LogWriter(run.path / "nodes" / "compiles.jsonl", job=job, writer="compiles")
    for number, (id_, seconds, reason) in enumerate(compiled, 1):
        data = {"id": id_, "duration_ns": seconds * S, "reason": reason, "lane": "main"}
        end = BEGIN + (10 + number) * S
        log.append("compile", data, time_ns=end, attempt=AttemptId(1), rank=0)
    log.close()


def printed(capsys: Output, *logs: Path) -> str:
    assert main(["recompiles", *map(str, logs)]) == 0
    return capsys.readouterr().out.replace("\u00a0", " ")


def test_what_changed_and_the_lines_that_help(run: RunDir, show: Any, capsys: Output) -> None:
    odd = "0/0: a guard\x1b[2J nobody knows"
    sizes = [(f"0/{n}", 1, SIZE.format(512, 100 * n)) for n in range(1, 6)]
    other = [("1/1", 1, "1/0: epoch\x07 == 2"), ("2/1", 1, odd), ("0/7", 1, SIZE.format(512, 7))]
    compile_in(run, ("0/0", 1, None), *sizes, *other)
    assert printed(capsys, run.path) == (
        "Jobs: 1. 9 graphs compiled in 9.0 s, 8 anew in 8.0 s.\n"
        "1 function reached torch's limit of 8 graphs: what fits none of them runs uncompiled.\n"
        "\n"
        "What changed                 Values            Graphs   Lost\n"
        "size of dimension 0 of x     7, 100, ..., 512       6  6.0 s\n"
        "a guard\\x1b[2J nobody knows                         1  1.0 s\n"
        "the number epoch\\x07         2                      1  1.0 s\n"
        "\n"
        "size of dimension 0 of x\n"
        "  mark_dynamic(batch)  # before the compiled call, in every step\n"
        '  env={"TORCH_COMPILE_DYNAMIC_SOURCES": "L[\'x\']"}  # of the operator\n'
        "  pad_to(batch, 512)  # and leave the added rows out of the loss\n"
        "\n"
        "the number epoch\\x07\n"
        "  torch.tensor(epoch\\x07)  # pass it as a tensor\n"
        '  env={"TORCH_COMPILE_DYNAMIC_SOURCES": "L[\'epoch\']\\x07"}  # of the operator\n'
        "\n"
        "All sizes and whole numbers, without touching the training's code\n"
        "  env={\"TORCH_COMPILE_DYNAMIC_SOURCES\": \"L['x'],L['epoch']\\x07\"}  # of the operator\n"
    )
    found = show("recompiles", run.path)
    assert (found["graphs"], found["anew"], found["anew_ns"]) == (9, 8, 8 * S)
    assert sum(group["lost_ns"] for group in found["groups"]) == 8 * S
    assert found["groups"][0]["values"] == ["7", "100", "200", "300", "400", "500", "512"]
    assert any(group["example"] == odd for group in found["groups"])


def test_nothing_was_compiled_anew(run: RunDir, capsys: Output) -> None:
    compile_in(run, ("0/0", 3, None))
    assert printed(capsys, run.path) == (
        "Jobs: 1. 1 graph compiled in 3.0 s, none of them anew: there is nothing to add.\n"
    )


def test_nothing_was_compiled(run: RunDir, show: Any, capsys: Output) -> None:
    assert "They tell of no compilation: they use no torch.compile" in printed(capsys, run.path)
    assert show("recompiles", run.path)["groups"] == []


def test_what_went_on_beside_the_training(run: RunDir, capsys: Output) -> None:
    job = JobKey("default", "ranker", "run-1", "train").id
    log = LogWriter(run.path / "nodes" / "compiles.jsonl", job=job, writer="compiles")
    data = {"id": "0/1", "duration_ns": S, "reason": SIZE.format(8, 4), "lane": "warm"}
    log.append("compile", data, time_ns=BEGIN + 11 * S, attempt=AttemptId(1), rank=0)
    log.close()
    text = printed(capsys, run.path)
    assert "The training did not wait for 1.0 s of it, spent in other threads.\n" in text


def test_a_change_that_takes_a_page_to_tell_is_cut_in_the_table(
    run: RunDir, show: Any, capsys: Output
) -> None:
    branch = " + ".join(f"x.size()[{n}]" for n in range(100))
    size = SIZE.format("1" * 900, "2" * 900)
    compile_in(run, ("0/1", 2, f"0/0: {branch}  # in evaluate_expr"), ("1/1", 1, size))
    table = printed(capsys, run.path).split("\n\n")[1].splitlines()
    assert max(map(len, table)) < 200
    assert table[1].startswith("what the code decides by: x.size()[0] + x.size()[1] + ")
    assert "…" in table[1]
    assert show("recompiles", run.path)["groups"][0]["what"].endswith(branch)
