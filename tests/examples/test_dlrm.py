"""The DLRM example: every lever on, and each off again; on one rank and on several."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.config import SWITCHES
from airflow_ett.events import Kind
from airflow_ett.publish import Request, publish
from tests.examples.dlrm import SAMPLES, Job, train

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402

from airflow_ett.examples.dlrm.model import SIZES_VARIABLE, Sizes  # noqa: E402
from airflow_ett.examples.dlrm.options import LEVERS, parse  # noqa: E402

KILLED = 2000
KILL = f"--inject=1:kill:{KILLED}"
COMPILING = {"compile_cache", "autotune"}
OFF = {lever: f"--no-{lever.replace('_', '-')}" for lever in LEVERS}


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import once, before processes are forked, what takes seconds."""
    import torch._inductor.compile_fx  # noqa: F401

    import airflow_ett.examples.dlrm.train
    import airflow_ett.trainer.checkpointer
    import airflow_ett.trainer.files
    import airflow_ett.trainer.staging  # noqa: F401


@pytest.fixture(scope="module")
def alone() -> str:
    """What a training prints that is not launched, on one rank."""
    (printed,) = train(1, "--no-compile")
    assert isinstance(printed, str)
    return printed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The weights of a training on two ranks to which nothing happened."""
    job = Job(tmp_path_factory.mktemp("undisturbed"))
    assert isinstance(job.train(2, "--no-compile")[0], str)
    return job.weights()


def losses(printed: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", printed)]


def test_it_learns_and_comes_to_an_end(alone: str) -> None:
    assert f"cursor {SAMPLES}/{SAMPLES}" in alone
    first, *_, last = losses(alone)
    assert last < first < 0.75


@pytest.mark.parametrize("world", [2, 4])
def test_sharded_it_is_the_same_training(alone: str, world: int) -> None:
    printed, *others = train(world, "--no-compile")
    assert losses(printed) == pytest.approx(losses(alone), abs=2e-4)
    assert others == [""] * (world - 1)


def test_levers_change_nothing_but_time(alone: str, tmp_path: Path) -> None:
    """In a job for the first time, with what that one left, and without any lever."""
    cache = tmp_path / "cache"
    first, second, without = (Job(tmp_path / name, cache) for name in ("1", "2", "3"))
    assert first.train(1, "--no-compile") == [alone]
    assert "warm_recovery" in first.levers("saved")
    assert second.train(1, "--no-compile") == [alone]
    assert {"warm_recovery", "parallel_init", "fast_batch", "parcels"} <= second.levers("used")
    assert without.train(1, "--no-compile", *OFF.values()) == [alone]
    assert without.levers("used") | without.levers("saved") == set()
    # What is not compiled needs no cache, and one rank has nobody to talk to.
    assert without.levers("off") == OFF.keys() - COMPILING - {"lean_communication"}


@pytest.mark.parametrize("off", [None, *(one for one in OFF if one not in COMPILING)])
def test_killed_it_resumes_with_each_lever_off(
    undisturbed: dict[str, Any], tmp_path: Path, off: str | None
) -> None:
    job = Job(tmp_path)
    # What is saved in the background may still be on its way when the kill comes.
    switched_off = {off, "background_saves"} if off else set()
    arguments = ["--no-compile", KILL, *(OFF[lever] for lever in switched_off)]
    assert -signal.SIGKILL in job.train(2, *arguments)
    printed, _ = job.train(2, *arguments)
    resumed = [event.data["cursor"] for event in job.events(Kind.RESUMED)]
    assert all(0 < cursor < KILLED + 16 for cursor in resumed)
    assert len(resumed) == 1 or not off
    assert f"cursor {SAMPLES}/{SAMPLES}" in printed
    assert job.levers("off") == switched_off
    assert ("lean_communication" in job.levers("used")) == (off != "lean_communication")
    found = job.weights()
    assert found.keys() == undisturbed.keys()
    assert all(torch.equal(found[name], undisturbed[name]) for name in found)


def test_compiled_it_resumes_on_another_host(tmp_path: Path) -> None:
    """One, as it were, that lacks torch's own cache."""
    job = Job(tmp_path)
    here, there = ({"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / name)} for name in ("a", "b"))
    assert isinstance(job.train(1, "--samples=1600", **here)[0], str)
    assert "compile_cache" in job.levers("saved")
    assert job.train(1, "--inject=2:kill:2400", **there) == [-signal.SIGKILL]
    assert {"compile_cache", "fast_batch", "parallel_init", "warm_recovery"} <= job.levers("used")
    cold, warm = (sum(compiled) for compiled in job.compiled_ns())
    assert warm < cold / 2
    off = [OFF[lever] for lever in ("compile_cache", "autotune", "fast_batch")]
    assert job.train(1, "--max-autotune", "--samples=1600", *off, **there) == [""]
    assert job.levers("off") == {"compile_cache", "autotune", "fast_batch"}


@pytest.mark.parametrize("way", ["marked", "padded"])
def test_varying_batches_train_alike_however_they_are_compiled(way: str) -> None:
    plain, other = (train(1, "--no-compile", f"--dynamic={one}")[0] for one in ("plain", way))
    assert losses(plain)
    assert losses(plain) == pytest.approx(losses(other), abs=1e-5)


def test_both_ways_of_publishing_publish_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the trainer, from tables on two ranks, and afterwards from the checkpoint."""
    monkeypatch.setenv(SIZES_VARIABLE, Sizes(tables=4, rows=50, dimension=4, layers=1).tell())
    job = Job(tmp_path)
    in_trainer = ["--publish=in_trainer", f"--registry={tmp_path / 'in_trainer'}"]
    assert isinstance(job.train(2, "--no-compile", *in_trainer)[0], str)
    phases = [event.data["phase"] for event in job.events(Kind.PHASE_BEGIN)]
    assert phases.count("publish") == 1
    request = Request(
        checkpoint=job.anchor().uri,
        model="airflow_ett.examples.dlrm.model:build",
        registry=str(tmp_path / "standalone"),
        name="dlrm",
    )
    published = publish(request)
    folders = Path(published.uri), tmp_path / "in_trainer" / "dlrm" / published.version
    one, other = (load_file(folder / "model.safetensors") for folder in folders)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_options_switch_levers_off_as_the_operators_env_does() -> None:
    environ: dict[str, str] = {}
    parse(["--no-fast-batch", "--no-background-saves"], environ)
    assert environ == {"ETT_FAST_BATCH": "0", "ETT_BACKGROUND_SAVES": "0"}
    assert LEVERS.keys() == SWITCHES.keys()


@pytest.mark.parametrize("wrong", ["--fast-bacth", "--every-s=often", "--dynamic=maybe"])
def test_unknown_arguments_are_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([wrong], {})
    assert ended.value.code == 2
    assert wrong.partition("=")[0] in capsys.readouterr().err
