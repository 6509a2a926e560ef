"""Publishers killed at random moments: each version appears once, whole, and nothing else stays.

``ETT_PUBLISH_KILLS`` of them (6), over a folder and an object store, while readers look all the
time. ``ETT_SOAK_SEED`` repeats the moments of an earlier run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.checkpoints import open_checkpoint
from airflow_ett.checkpoints.layout import folder
from airflow_ett.checkpoints.manifest import digest_file
from tests.publish.kills.campaign import Campaign
from tests.publish.kills.reader import Reader
from tests.s3 import new_bucket

pytestmark = pytest.mark.torch

KILLS = int(os.environ.get("ETT_PUBLISH_KILLS", "6"))
MOST_PER_VERSION = 3


@pytest.fixture
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where publishers into an object store prepare their versions."""
    path = tmp_path / "staging"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    return path


def files_below(path: Path) -> list[tuple[str, int]]:
    """Return what is below a folder, with the sizes; it may change meanwhile."""
    found = []
    for parent, folders, files in os.walk(path):
        for name in (*folders, *files):
            try:
                found.append((f"{parent}/{name}", os.lstat(f"{parent}/{name}").st_size))
            except FileNotFoundError:
                continue
    return sorted(found)


def objects_below(uri: str) -> list[tuple[str, int]]:
    """Return the objects below a URI with their sizes."""
    import s3fs

    found = s3fs.S3FileSystem(use_listings_cache=False).find(uri.removeprefix("s3://"), detail=True)
    return sorted((path, int(info["size"])) for path, info in found.items())


def weights_of(site: Any, checkpoint: Path) -> str:
    """Return the digest that a version's weights must have."""
    from airflow_ett.publish.weights import write_weights

    target = site.root / "expected.safetensors"
    write_weights(open_checkpoint(str(checkpoint)), target, cast=None)
    digest = digest_file(target).sha256
    target.unlink()
    return digest


def run(site: Any, place: str, kills: int, glance: Callable[[], object]) -> None:
    """Publish version after version, until so many publishers were killed."""
    seed = int(os.environ.get("ETT_SOAK_SEED", "0")) or random.randrange(1, 100_000)
    print(f"seed {seed}")
    begun, expected = time.monotonic(), {}

    def next_one() -> list[str]:
        number = len(expected) + 1
        checkpoint = site.save(cursor=100 * number, seed=number)
        expected[f"v{number}"] = weights_of(site, checkpoint)
        flags: list[str] = site.flags(checkpoint, registry=place, version=f"v{number}")
        return flags

    forge = site.forge()
    with Reader(folder(f"{place}/toy")) as reader:
        campaign = Campaign(reader, glance, random.Random(seed))
        campaign.let_live(forge, next_one())
        while campaign.kills < kills:
            left = min(kills - campaign.kills, MOST_PER_VERSION)
            campaign.publish(forge, next_one(), left)
            assert reader.look() == expected
    assert reader.broken == [], f"seed {seed}"
    assert reader.looks > kills
    assert (reader.shelf / "latest").read_text().strip() == f"v{len(expected)}"
    each_s = (time.monotonic() - begun) / kills
    print(
        f"{kills} kills of publishers into {place.partition(':')[0]}, seed {seed}: "
        f"{len(expected)} versions, {reader.looks} looks, {each_s:.2f} s each"
    )


def test_killed_publishers_leave_whole_versions_in_a_folder(site: Any, staging: Path) -> None:
    run(site, site.registry.as_uri(), KILLS - KILLS // 2, lambda: files_below(site.registry))
    names = sorted(path.name for path in (site.registry / "toy").iterdir())
    assert [name for name in names if name[0] == "."] in ([], [".latest.lock"])
    assert list(staging.iterdir()) == []


def test_killed_publishers_leave_whole_versions_in_an_object_store(
    site: Any, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = new_bucket(monkeypatch)
    run(site, place, KILLS // 2, lambda: (files_below(staging), objects_below(place)))
    # One killed while it tries what the store can do leaves its probe: empty, and of no version.
    objects = [path for path, _ in objects_below(place) if "/draft-" not in path]
    versions = len({path.split("/")[2] for path in objects}) - 1
    assert len(objects) == 1 + 2 * versions, "something stayed that no manifest names"
    assert [path.name for path, _ in _left(staging)] == []


def _left(staging: Path) -> list[tuple[Path, int]]:
    return [(Path(name), size) for name, size in files_below(staging) if "/.staging-" in name]
