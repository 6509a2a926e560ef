"""A real, tiny, committed checkpoint and the package whose model it holds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.checkpoints import commit, folder_name
from airflow_ett.events import AttemptId
from tests.publish.kills.campaign import Publisher, forging

MODULE = """
import os, signal, torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def example_batch():
    return torch.ones(5, 3)


def other_build():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def keywords():
    return {"input": torch.zeros(2, 3)}


def kill_the_publisher():
    os.kill(os.getppid(), signal.SIGKILL)
    return example_batch()


def infinite():
    return torch.full((2, 3), float("inf"))


def words():
    return "words"


class Flat(nn.Sequential):
    def forward(self, value):
        return super().forward(value).sum()


class Serving(nn.Sequential):
    def forward(self, value):
        assert not self.training
        return super().forward(value)


def build_serving():
    return Serving(*build())


def build_flat():
    return Flat(*build())


def raising():
    raise RuntimeError("no such config")
"""
JOB = "0123456789abcdef0123"


@dataclass(frozen=True)
class Site:
    """A folder with checkpoints and a registry, and the environment to publish in."""

    root: Path
    forge: Callable[[], subprocess.Popen[str]]

    @property
    def registry(self) -> Path:
        """Where models go."""
        return self.root / "registry"

    @property
    def versions(self) -> list[str]:
        """The versions that a reader sees."""
        shelf = self.registry / "toy"
        return sorted(p.name for p in shelf.iterdir() if p.is_dir() and p.name[0] != ".")

    @property
    def hidden_folders(self) -> list[str]:
        """Staging folders, of whatever state."""
        return [p.name for p in (self.registry / "toy").glob(".*") if p.is_dir()]

    def save(
        self, cursor: int = 640, poison: Callable[[Any], None] | None = None, seed: int = 0
    ) -> Path:
        """Save a model and its optimizer as the trainer does; ``poison`` may change the model."""
        import torch
        import torch.distributed.checkpoint as dcp
        from torch import nn

        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        if poison:
            with torch.no_grad():
                poison(model)
        folder = self.root / "checkpoints" / folder_name(cursor, AttemptId(1, 0, 0))
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        dcp.save(state, checkpoint_id=folder)
        return self.commit(folder, cursor)

    def commit(self, folder: Path, cursor: int = 640) -> Path:
        """Commit a folder as it is (again)."""
        commit(folder, job=JOB, attempt=AttemptId(1, 0, 0), epoch=1, cursor=cursor)
        return folder

    def arguments(self, checkpoint: Path, **more: str) -> dict[str, Any]:
        """Arguments of ``publish``."""
        given = {"checkpoint": checkpoint.as_uri(), "model": "ett_toy:build"}
        return {**given, "registry": str(self.registry), "name": "toy", **more}

    def command(self, checkpoint: Path, *, first: str = "", **more: str) -> list[str]:
        """The command line; ``first`` is code to run in the process before."""
        imports = "import sys; from airflow_ett.publish.__main__ import main"
        start = f"{imports}\n{first}\nsys.exit(main())"
        return [sys.executable, "-c", start, *self.flags(checkpoint, **more)]

    def flags(self, checkpoint: Path, **more: str) -> list[str]:
        """The arguments of the command."""
        options = self.arguments(checkpoint, **more)
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    def run(
        self, checkpoint: Path, *, first: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Publish in a process of its own, which has torch already: see :mod:`.kills.forge`."""
        flags, said = self.flags(checkpoint, **more), {n: self.root / f"said-{n}" for n in (1, 2)}
        output = {number: str(path) for number, path in said.items()}
        code = Publisher(self.forge(), flags, output=output, first=first).end()
        return subprocess.CompletedProcess(flags, code, said[1].read_text(), said[2].read_text())


@pytest.fixture(scope="session")
def forge() -> Iterator[subprocess.Popen[str]]:
    """A process that forks publishers."""
    with forging() as process:
        yield process


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Site:
    """An empty registry, and module ``ett_toy`` importable here and in child processes."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "ett_toy.py").write_text(MODULE)
    paths = [str(code), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    monkeypatch.syspath_prepend(str(code))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Site(tmp_path, lambda: request.getfixturevalue("forge"))


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers of this process do not try what they made: for tests about something else."""
    told = {"check": {"inputs": None, "shapes": None}}
    monkeypatch.setattr("airflow_ett.publish.publisher.try_snapshot", lambda *_: told)
