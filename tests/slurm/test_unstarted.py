"""A node that cannot start a job: nobody has cancelled that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, missing
from tests.slurm.conftest import Training

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}"),
]


def test_what_its_node_could_not_start_is_relaunched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = Cluster(1, accounting=False)
    cluster.start()
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    spool, away = cluster.folder / "spool-n1", cluster.folder / "away"
    try:
        training = Training(cluster, tmp_path)
        spool.rename(away)
        spool.touch()
        training.begin(steps=5, cfg={"requeue": False})
        assert training.until(lambda: training.events("attempt_ended")) is None
        spool.unlink()
        away.rename(spool)
        assert training.ends().cause is None
    finally:
        cluster.stop()
    lost, done = training.events("attempt_ended")
    assert (lost.data["cause"], done.data["cause"]) == ("infrastructure", None)
    assert "LAUNCH_FAILED" in lost.data["evidence"]["text"]
