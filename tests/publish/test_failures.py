"""What goes wrong around a publisher: it says what and what to do; nothing broken is visible."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import PublishError
from airflow_ett.publish import Request, publish
from airflow_ett.publish.registries.folder import FolderRegistry

pytestmark = pytest.mark.torch


def fill_up(folder: Path) -> None:
    """Leave no byte free on a disk."""
    with (folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.fixture
def small_disk(site: Any) -> Any:
    """A real file system of 64 KB, on which the registry lies."""
    site.registry.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "ett-test", str(site.registry)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a file system can be mounted by root alone, and not in every container")
    yield site.registry
    subprocess.run(["umount", str(site.registry)], check=True)


@pytest.mark.usefixtures("untried")
def test_a_full_disk_leaves_nothing(site: Any, small_disk: Path) -> None:
    checkpoint = site.save()
    fill_up(small_disk)
    with pytest.raises(
        PublishError, match=rf"prepared in {small_disk}/toy: .*No space left.*make room there"
    ):
        publish(Request(**site.arguments(checkpoint)))
    assert list((site.registry / "toy").iterdir()) == []
    (small_disk / "ballast").unlink()
    assert publish(Request(**site.arguments(checkpoint))).latest


def test_a_limit_for_files_is_told(site: Any) -> None:
    checkpoint = site.save()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256, before[1]))
    try:
        with pytest.raises(PublishError, match=r"File too large.*; raise the limit"):
            publish(Request(**site.arguments(checkpoint)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert site.versions == site.hidden_folders == []


@pytest.mark.usefixtures("untried")
def test_a_disk_that_is_full_at_the_last_step_leaves_nothing(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: FolderRegistry, *arguments: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device", "manifest.json")

    monkeypatch.setattr(FolderRegistry, "reveal", full)
    with pytest.raises(PublishError, match="No space left on device"):
        publish(Request(**site.arguments(site.save())))
    assert list((site.registry / "toy").iterdir()) == []


def test_a_registry_that_is_no_folder_is_named(site: Any) -> None:
    site.registry.write_text("a file")
    with pytest.raises(PublishError, match=rf"into {site.registry}: .*Not a directory"):
        publish(Request(**site.arguments(site.save())))


@pytest.mark.usefixtures("untried")
def test_a_latest_that_cannot_be_moved_is_told_apart(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: FolderRegistry, *arguments: object, **options: object) -> bool:
        raise OSError(errno.EROFS, "Read-only file system")

    arguments = site.arguments(site.save())
    with monkeypatch.context() as broken:
        broken.setattr(FolderRegistry, "point_latest", fail)
        message = "whole, but `latest` could not be moved: .*; choose a place .*; then publish it"
        with pytest.raises(PublishError, match=message):
            publish(Request(**arguments))
    published = publish(Request(**arguments))
    assert (published.existed, published.latest) == (True, True)


def test_an_error_of_several_lines_is_told_in_one(site: Any) -> None:
    broken = """
import airflow_ett.publish.__main__ as command
from airflow_ett.errors import PublishError
def fail(request):
    raise PublishError("first\\n  second")
command.publish = fail
"""
    done = site.run(site.save(), first=broken)
    assert (done.returncode, done.stderr) == (1, "not published: first second\n")


@pytest.mark.usefixtures("untried")
def test_an_older_training_says_that_it_is_not_the_latest(site: Any) -> None:
    old, new = site.save(cursor=100), site.save(cursor=200)
    assert publish(Request(**site.arguments(new))).latest
    done = site.run(old)
    assert done.returncode == 0, done.stderr
    assert "is not the latest: a newer training's model is" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["latest"] is False


def test_a_publisher_that_is_ended_tidies_up(site: Any, tmp_path: Path) -> None:
    """And the process that tries the model ends with it."""
    note = tmp_path / "pid"
    wait = f"import os, time\ndef wait():\n    open({str(note)!r}, 'w').write(str(os.getpid()))\n"
    (tmp_path / "code" / "ett_waiting.py").write_text(f"{wait}    time.sleep(600)\n")
    command = site.command(site.save(), golden="ett_waiting:wait")
    publisher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    publisher.send_signal(signal.SIGTERM)
    assert publisher.wait(30) == 128 + signal.SIGTERM
    assert site.versions == site.hidden_folders == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
