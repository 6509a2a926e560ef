"""Ranks of a training as forked processes: what was imported before is there at once."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

_SPAWN = multiprocessing.get_context("fork")
_LONGEST_S = 60.0


def run_ranks(world: int, act: Callable[[], Any], **environ: str) -> list[Any]:
    """Run ``act`` as each rank; return what each returns, its exit code where it ends otherwise."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = [_SPAWN.Pipe(duplex=False) for _ in range(world)]

    def run(rank: int) -> None:
        ours = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in ours.items()} | environ
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        told[rank][1].send(act())

    ranks = [_SPAWN.Process(target=run, args=(rank,)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(_LONGEST_S)
        if process.exitcode is None:
            process.kill()
            process.join()
    return [
        told[rank][0].recv() if process.exitcode == 0 else process.exitcode
        for rank, process in enumerate(ranks)
    ]
