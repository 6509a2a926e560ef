"""What a Session never does: harm the training, whatever its disk, children or image are like."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import Kind, read_log

STEPS = """
from airflow_ett.trainer import Session
with Session() as ett:
    for number in ett.track(range(1, 21)):
        if number % 2 == 0:
            with ett.phase("evaluation"):
                pass
        ett.step(number)
print("done")
"""

FULL = """
import errno, os
real, calls = os.write, iter(range(1_000_000))
def write(handle, line):
    if line.startswith((b"{", b"\\n{")) and 5 <= next(calls) < 25:
        if line.startswith(b"{"):
            return real(handle, line[:20])  # a disk that fills up takes what it can
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real(handle, line)
os.write = write
"""


def test_a_full_disk_costs_one_warning_and_what_comes_after_it_is_kept(job: Any) -> None:
    done = job.run(FULL + STEPS)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("Events are lost") == 1
    assert "No space left on device" in done.stderr
    (path,) = job.run_dir.logs()
    chunk = read_log(path)
    assert len(chunk.bad) == 1  # the torn line
    assert chunk.events[-1].kind == Kind.SESSION_ENDED
    assert chunk.events[-1].data["cursor"] == 20


def test_a_full_disk_from_the_start_costs_the_cursor_alone(job: Any) -> None:
    full = """
        import errno, os
        def fallocate(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate = fallocate
    """
    done = job.run(full + STEPS.replace("\n", "\n        "))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("The cursor is not kept") == 1
    assert sum(e.data["steps"] for e in job.events(Kind.INTERVAL)) == 20


def test_whoever_handles_the_warning_may_have_phases_of_its_own(job: Any) -> None:
    handler = """
import logging
class Handler(logging.Handler):
    def emit(self, record):
        with ett.phase("evaluation"):
            pass
logging.getLogger("airflow_ett.trainer").addHandler(Handler())
"""
    done = job.run(FULL + handler + STEPS)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_another_torch_than_ours_ends_no_training(job: Any) -> None:
    """What is read of torch's private parts may be missing or mean something else."""
    stranger = """
import sys, types
sys.modules["torch._dynamo.callback"] = types.SimpleNamespace(callback_handler=object())
sys.modules["torch"] = types.SimpleNamespace(cuda=object(), __version__=object())
"""
    done = job.run(stranger + STEPS)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("A compilation was not recorded") == 1
    assert done.stderr.count("Phases are not synchronised") == 1
    assert job.events(Kind.SESSION_ENDED)[0].data["outcome"] == "success"


WORKERS = """
import multiprocessing, sys, time

def produce(queue, done):
    for number in range(1, 51):
        queue.put(number)
    done.wait()
    time.sleep(60)

def main():
    from airflow_ett.trainer import Session
    context = multiprocessing.get_context(sys.argv[1])
    with Session() as ett:
        queue, done = context.Queue(), context.Event()
        workers = [context.Process(target=produce, args=(queue, done)) for _ in range(2)]
        def loader():
            for worker in workers:
                worker.start()
            for _ in range(100):
                yield queue.get()
        for number, _ in enumerate(ett.track(loader()), start=1):
            ett.step(number)
        done.set()
        for worker in workers:
            worker.terminate()
            worker.join(20)
        print([worker.exitcode for worker in workers])

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_loaders_workers_are_left_alone(job: Any, method: str) -> None:
    process = job.start(str(job.script(WORKERS)), method)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "[-15, -15]\n"), err
    assert err == ""
    (path,) = job.run_dir.logs()
    events = job.events()
    assert sorted(e.seq for e in events) == list(range(len(events)))
    assert sum(e.data["steps"] for e in events if e.kind == Kind.INTERVAL) == 100
    assert [e.kind for e in events].count(Kind.SESSION_STARTED) == 1
    assert str(process.pid) in path.name


@pytest.mark.torch
def test_torchs_loader_may_have_workers(job: Any) -> None:
    pytest.importorskip("torch")
    done = job.run("""
        from torch.utils.data import DataLoader
        from airflow_ett.trainer import Session
        loader = DataLoader(list(range(40)), batch_size=4, num_workers=2)
        with Session() as ett:
            for epoch in range(2):
                for number, batch in enumerate(ett.track(loader), start=1):
                    ett.step(number * len(batch))
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert job.events(Kind.SESSION_ENDED)[0].data == {"outcome": "success", "cursor": 80}
    assert len(list(job.run_dir.logs())) == 1


def test_it_runs_on_the_standard_library_alone(job: Any) -> None:
    """Without site-packages there is no Airflow, TorchX, SQLAlchemy, torch or numpy."""
    check = "import sys; assert not [p for p in sys.path if 'site-packages' in p]"
    process = job.start("-S", str(job.script(check + STEPS)))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "done\n"), err
    assert job.events(Kind.SESSION_ENDED)[0].data["outcome"] == "success"


HEAVY = {"asyncio", "concurrent", "email", "http", "numpy", "socket", "sqlite3", "ssl", "torch"}


def test_importing_it_takes_less_than_50_ms() -> None:
    """One try of several: a busy machine takes longer, and none takes less than it needs."""
    code = (
        "import time, sys; t = time.process_time(); import airflow_ett.trainer;"
        "print(time.process_time() - t, *{name.partition('.')[0] for name in sys.modules})"
    )
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPATH"] = str(Path(__file__).parents[2])

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ
        )
        return done.stdout.split()

    assert any(float(run()[0]) < 0.05 for _ in range(15))
    assert not HEAVY & set(run()[1:])
