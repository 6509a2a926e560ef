"""Publishers that die or meet; readers see a version whole or not at all."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.checkpoints.manifest import digest_file
from airflow_ett.publish import Request, publish

pytestmark = pytest.mark.torch

DIE = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
BEFORE_WEIGHTS = f"""
import airflow_ett.publish.weights as w
def die(*a, **k): {DIE}
w.write_weights = die
"""
BEFORE_REVEAL = f"""
from airflow_ett.publish.registries.folder import FolderRegistry
def die(*a, **k): {DIE}
FolderRegistry.reveal = die
"""
BEFORE_LATEST = f"""
from airflow_ett.publish.registries.folder import FolderRegistry
def die(*a, **k): {DIE}
FolderRegistry.point_latest = die
"""


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("first", "more", "visible"),
    [
        (BEFORE_WEIGHTS, {}, 0),
        ("", {"golden": "ett_toy:kill_the_publisher"}, 0),
        (BEFORE_REVEAL, {}, 0),
        (BEFORE_LATEST, {}, 1),
    ],
    ids=["before weights", "while trying", "before reveal", "before latest"],
)
def test_a_killed_publisher_is_completed_by_the_next(
    site: Any, first: str, more: dict[str, str], visible: int
) -> None:
    checkpoint = site.save()
    assert site.run(checkpoint, first=first, **more).returncode == -signal.SIGKILL
    assert len(site.versions) == visible
    assert len(site.hidden_folders) == 1 - visible
    latest = site.registry / "toy" / "latest"
    assert not latest.exists()

    published = publish(Request(**site.arguments(checkpoint)))
    assert published.existed is bool(visible)
    assert site.versions == [published.version]
    assert site.hidden_folders == []
    assert latest.read_text().strip() == published.version
    assert digest_file(Path(published.uri, "model.safetensors")).sha256 == published.digest


def test_of_two_publishers_one_wins_and_the_other_finds_it_done(site: Any) -> None:
    checkpoint = site.save()
    # Both meet after they prepared everything: each waits until the other's staging is there, too.
    meet = """
import time
from pathlib import Path
from airflow_ett.publish import publisher
from airflow_ett.publish.registries.folder import FolderRegistry
publisher.try_snapshot = lambda *_: {}
reveal = FolderRegistry.reveal
def wait_then_reveal(self, staged, version):
    Path(f"{self.folder}-{staged.name}.ready").touch()
    deadline = time.monotonic() + 60
    while len(list(self.folder.parent.glob("*.ready"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return reveal(self, staged, version)
FolderRegistry.reveal = wait_then_reveal
"""
    command = site.command(checkpoint, first=meet)
    pair = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in pair]
    assert [code for _, _, code in ended] == [0, 0], ended
    results = [json.loads(out.splitlines()[-1]) for out, _, _ in ended]
    assert sorted(result["existed"] for result in results) == [False, True]
    assert results[0]["digest"] == results[1]["digest"]
    assert site.versions == [results[0]["version"]]
    assert site.hidden_folders == []
