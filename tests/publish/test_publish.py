"""A checkpoint becomes a version: whole, once, and never a broken one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from airflow_ett.checkpoints import open_checkpoint
from airflow_ett.checkpoints.manifest import digest_file
from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.publish import Request, publish, publisher

pytestmark = pytest.mark.torch


def read(path: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(path.read_text())
    return fields


def test_the_command_publishes_the_model_and_nothing_else(site: Any) -> None:
    checkpoint = site.save()
    before = time.time_ns()
    command = [sys.executable, "-m", "airflow_ett.publish", *site.flags(checkpoint)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    folder = Path(result["uri"])
    digest = (checkpoint / "COMMITTED").read_text().strip()
    assert result["version"] == folder.name == f"640-{digest[:8]}"
    assert before < result["begin_ns"] < result["end_ns"] < time.time_ns()
    assert result["existed"] is False
    assert sorted(p.name for p in folder.iterdir()) == ["manifest.json", "model.safetensors"]
    assert (folder.parent / "latest").read_text().strip() == folder.name

    weights = folder / "model.safetensors"
    assert result["digest"] == digest_file(weights).sha256
    assert result["bytes"] == weights.stat().st_size
    tensors = load_file(weights)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {
        "0.weight": (4, 3),
        "0.bias": (4,),
        "2.weight": (1, 4),
        "2.bias": (1,),
    }
    manifest = read(folder / "manifest.json")
    assert manifest["source"] == {
        "checkpoint": open_checkpoint(str(checkpoint)).uri,
        "digest": digest,
        "cursor": 640,
        "saved_ns": open_checkpoint(str(checkpoint)).manifest.created_ns,
        "job": "0123456789abcdef0123",
    }
    assert manifest["factory"] == "ett_toy:build"
    assert manifest["parameters"] == 21
    assert manifest["check"] == {
        "inputs": "ett_toy:example_batch",
        "shapes": [[5, 1]],
        "in_memory": None,
    }


@pytest.mark.usefixtures("untried")
def test_the_weights_are_the_trained_ones(site: Any) -> None:
    def fill(model: Any) -> None:
        model[2].bias.fill_(7.5)

    published = publish(Request(**site.arguments(site.save(poison=fill))))
    tensors = load_file(Path(published.uri, "model.safetensors"))
    assert tensors["2.bias"].item() == 7.5


@pytest.mark.usefixtures("untried")
def test_the_same_checkpoint_publishes_once(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = site.arguments(site.save())
    first = publish(Request(**arguments))
    monkeypatch.setattr(publisher, "_make", lambda *args: pytest.fail("made again"))
    again = publish(Request(**arguments))
    assert (first.existed, again.existed) == (False, True)
    assert (again.version, again.uri, again.digest) == (first.version, first.uri, first.digest)
    assert again.begin_ns > first.end_ns


@pytest.mark.usefixtures("untried")
def test_latest_follows_the_newest_and_is_not_turned_back(site: Any) -> None:
    old, new = site.save(cursor=100), site.save(cursor=200)
    first = publish(Request(**site.arguments(old)))
    second = publish(Request(**site.arguments(new)))
    latest = site.registry / "toy" / "latest"
    assert latest.read_text().strip() == second.version
    assert publish(Request(**site.arguments(old))).existed
    assert latest.read_text().strip() == second.version
    assert site.versions == sorted([first.version, second.version])


@pytest.mark.usefixtures("untried")
def test_a_version_of_another_checkpoint_is_not_overwritten(site: Any) -> None:
    first = publish(Request(**site.arguments(site.save(cursor=100), version="v1")))
    other = site.save(cursor=200)
    with pytest.raises(PublishError, match=r"published from .*c000000000000100-.*another"):
        publish(Request(**site.arguments(other, version="v1")))
    assert digest_file(Path(first.uri, "model.safetensors")).sha256 == first.digest


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"transforms": ("bfloat16",)},
            r"with transforms \[\], not \['bfloat16'\]; choose another",
        ),
        (
            {"model": "ett_toy:build_flat"},
            "for model ett_toy:build, not ett_toy:build_flat; choose",
        ),
    ],
)
@pytest.mark.usefixtures("untried")
def test_a_version_that_was_made_otherwise_is_no_success(
    site: Any, more: dict[str, Any], message: str
) -> None:
    arguments = site.arguments(site.save(), version="v1")
    publish(Request(**arguments))
    with pytest.raises(PublishError, match=message):
        publish(Request(**{**arguments, **more}))


@pytest.mark.usefixtures("untried")
def test_a_version_that_does_not_say_how_it_was_made_is_no_success(site: Any) -> None:
    arguments = site.arguments(site.save(), version="v1")
    manifest = Path(publish(Request(**arguments)).uri, "manifest.json")
    told = read(manifest)
    manifest.write_text(json.dumps({**told, "transforms": None}))
    with pytest.raises(PublishError, match=r"with transforms None, not \[\]; choose another"):
        publish(Request(**arguments))
    manifest.write_text(json.dumps({**told, "source": {**told["source"], "checkpoint": None}}))
    with pytest.raises(PublishError, match="published from None, not from"):
        publish(Request(**{**arguments, "checkpoint": site.save(cursor=700).as_uri()}))


@pytest.mark.usefixtures("untried")
def test_what_is_published_needs_its_shards_no_more(site: Any) -> None:
    checkpoint = site.save()
    publish(Request(**site.arguments(checkpoint)))
    (checkpoint / "__0_0.distcp").unlink()
    assert publish(Request(**site.arguments(checkpoint))).existed


@pytest.mark.usefixtures("untried")
def test_a_damaged_version_is_named(site: Any) -> None:
    arguments = site.arguments(site.save())
    weights = Path(publish(Request(**arguments)).uri, "model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    with pytest.raises(PublishError, match=r"model\.safetensors .*damaged"):
        publish(Request(**arguments))


def nan(model: Any) -> None:
    model[0].weight[1, 1] = float("nan")


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ("shard gone", {}, r"__0_0\.distcp cannot be read"),
        ("shard cut", {}, r"__0_0\.distcp has \d+ bytes instead"),
        ("bit flipped", {}, r"__0_0\.distcp is damaged"),
        ("not committed", {}, "COMMITTED is missing"),
        ("no metadata", {}, r"\.metadata: missing"),
        ("nan", {}, r"1 of 12 values of 0\.weight are NaN"),
        ("", {"model": "ett_toy:other_build"}, "size mismatch for 2.weight"),
    ],
)
def test_nothing_broken_becomes_visible(
    site: Any, change: str, more: dict[str, str], message: str
) -> None:
    checkpoint = site.save(poison=nan if change == "nan" else None)
    shard = checkpoint / "__0_0.distcp"
    content = shard.read_bytes()
    if change == "shard gone":
        shard.unlink()
    elif change == "shard cut":
        shard.write_bytes(content[:-10])
    elif change == "bit flipped":
        shard.write_bytes(content[:700] + bytes([content[700] ^ 1]) + content[701:])
    elif change == "not committed":
        (checkpoint / "COMMITTED").unlink()
    elif change == "no metadata":
        (checkpoint / ".metadata").unlink()
        site.commit(checkpoint)
    with pytest.raises(PublishError, match=message):
        publish(Request(**site.arguments(checkpoint, **more)))
    shelf = site.registry / "toy"
    assert not shelf.exists() or [p.name for p in shelf.iterdir()] == []


def test_a_committed_checkpoint_whose_shard_dcp_cannot_read_is_named(site: Any) -> None:
    checkpoint = site.save()
    (checkpoint / "__0_0.distcp").write_bytes(b"nonsense")
    site.commit(checkpoint)
    with pytest.raises(PublishError, match="the tensors cannot be read"):
        publish(Request(**site.arguments(checkpoint)))


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("model", "no_colon"),
        ("model", "a b:c"),
        ("golden", ":f"),
        ("name", "../escape"),
        ("name", ""),
        ("version", "a/b"),
        ("version", "latest"),
        ("version", "draft-1"),
        ("version", ".staging-x"),
        ("checkpoint", "nowhere://bucket/c1"),
        ("training", ["no object"]),
    ],
)
def test_a_wrong_parameter_is_named(site: Any, parameter: str, value: Any) -> None:
    arguments = {**site.arguments(site.save()), parameter: value}
    with pytest.raises(ConfigurationError) as caught:
        publish(Request(**arguments))
    assert caught.value.parameter == parameter
    assert not (site.registry / "toy").exists() or site.versions == []


def test_the_command_says_what_went_wrong_in_one_line(site: Any) -> None:
    done = site.run(site.save(), model="ett_toy:other_build")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("not published: ")
    assert "size mismatch for 2.weight" in last


def test_no_torch_is_needed_to_import_it() -> None:
    code = "import airflow_ett.publish.__main__, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("untried")
def test_dtypes_survive(site: Any) -> None:
    def halve(model: Any) -> None:
        model.to(torch.bfloat16)

    published = publish(Request(**site.arguments(site.save(poison=halve))))
    assert load_file(Path(published.uri, "model.safetensors"))["0.bias"].dtype == torch.bfloat16
