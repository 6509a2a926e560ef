"""A checkpoint of any size is written with little more memory than its largest tensor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.publish.sharded import grid, save_sharded

pytestmark = pytest.mark.torch

MIB = 1 << 20
TENSORS = 5
SHAPE = (5120, 4096)
LARGEST = 80 * MIB
"""Size of a tensor."""
STATUS = r"""
import json, re, sys
from pathlib import Path

def status(name):
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
"""
WRITE = f"""
{STATUS}
from airflow_ett.checkpoints import open_checkpoint
from airflow_ett.publish.weights import write_weights

source, target = open_checkpoint(sys.argv[1]), Path(sys.argv[2])
peaks = {{}}
for cast in (None, "int8"):
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now's
    before = status("VmRSS")
    write_weights(source, target, cast=cast)
    peaks[str(cast)] = (status("VmHWM") - before, target.stat().st_size)
    target.unlink()
print(json.dumps(peaks))
"""
PUBLISH = f"""
from airflow_ett.publish.__main__ import main
{STATUS}
assert main() == 0
print(json.dumps(status("VmHWM")))
"""
FACTORY = f"""
from torch import empty, nn
def build():
    model = nn.Module()
    for number in range({TENSORS}):
        model.register_parameter(f"layer{{number}}", nn.Parameter(empty{SHAPE}))
    return model
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a checkpoint of 400 MiB, of which some tensors are cut by columns."""
    tensor = torch.ones(SHAPE)
    tensors = {f"layer{number}": tensor for number in range(TENSORS)}
    chunks = {name: grid(SHAPE, [[], [1000]]) for number, name in enumerate(tensors) if number % 2}
    return save_sharded(tmp_path_factory.mktemp("memory") / "c", tensors, chunks).uri


def measured(code: str, *arguments: str, **environ: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_writing_takes_a_chunk_and_a_little(checkpoint: str, tmp_path: Path) -> None:
    for cast, (growth, size) in measured(WRITE, checkpoint, str(tmp_path / "w")).items():
        assert size > TENSORS * LARGEST / 4, cast
        # Two chunks would be 80 MiB more, the whole checkpoint 320.
        assert growth <= LARGEST + 90 * MIB, cast


def test_the_publisher_keeps_to_what_is_promised(checkpoint: str, tmp_path: Path) -> None:
    (tmp_path / "ett_great.py").write_text(FACTORY)
    path = os.pathsep.join([str(tmp_path), str(Path.cwd())])
    flags = {
        "checkpoint": checkpoint,
        "model": "ett_great:build",
        "registry": str(tmp_path / "registry"),
        "name": "great",
    }
    arguments = [part for name, value in flags.items() for part in (f"--{name}", value)]
    peak = measured(PUBLISH, *arguments, PYTHONPATH=path)
    assert (tmp_path / "registry" / "great" / "latest").exists()
    assert peak <= LARGEST + 512 * MIB
