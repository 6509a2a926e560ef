"""Several Sessions: in turn they are one story, within one another only the first speaks."""

from __future__ import annotations

from typing import Any

from airflow_ett.events import Kind, read_cursor
from airflow_ett.metric import measure


def test_sessions_in_turn_are_one_story(job: Any) -> None:
    done = job.run("""
        import os, time
        from airflow_ett.trainer import Session
        for begin in (0, 100):
            with Session() as ett:
                for batch in ett.track(range(10, 110, 10), cursor=begin):
                    time.sleep(0.002)
                    ett.step(batch)
            print("ETT_SESSION" in os.environ)
    """)
    assert (done.returncode, done.stdout) == (0, "False\nFalse\n"), done.stderr
    assert done.stderr == ""
    events = job.events()
    assert sorted(e.seq for e in events) == list(range(len(events)))
    spans = [e.data["span"] for e in events if e.kind == Kind.PHASE_BEGIN]
    assert len(set(spans)) == len(spans) == 4
    assert [e.data["cursor"] for e in job.events(Kind.SESSION_ENDED)] == [100, 200]
    assert "replay" not in measure(events).phases_ns


INNER = """
from airflow_ett.trainer import Session
with Session() as inner:
    saver = inner.checkpointer(model=object())
    for batch in inner.track(range(500, 503), cursor=saver.restore()):
        inner.step(batch)
    assert inner.attempt is None
"""


def test_a_session_within_another_does_nothing_but_warn(job: Any) -> None:
    done = job.run(
        """
        import os, subprocess, sys
        from airflow_ett.trainer import Session
        code = os.environ["INNER"]
        with Session() as ett:
            for number in ett.track(range(1, 4)):
                ett.step(number)
                if number == 2:
                    exec(code)
                    subprocess.run([sys.executable, "-c", code], check=True)
                    child = os.fork()
                    if child == 0:
                        ett.step(999)
                        exec(code)
                        sys.exit(7)
                    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        INNER=INNER,
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    assert done.stderr.count("does nothing") == 3
    events = job.events()
    assert len(list(job.run_dir.logs())) == 1
    assert sorted(e.seq for e in events) == list(range(len(events)))
    assert [e.kind for e in events].count(Kind.SESSION_STARTED) == 1
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    assert (record.cursor, record.hwm) == (3, 3)


def test_what_a_child_compiles_is_not_kept(job: Any) -> None:
    job.next_submission(cache=str(job.folder / "cache"))
    done = job.run(
        """
        import os, threading
        from airflow_ett.trainer import Session
        from airflow_ett.trainer.caches import key
        key.software = key.machine = dict
        with Session() as ett:
            ett.compile_cache(mega=False)
            child = os.fork()
            if child == 0:
                open(os.environ["TORCHINDUCTOR_CACHE_DIR"] + "/kernel.so", "w").close()
                ett._watcher.compiled()
                [one.join() for one in threading.enumerate() if one.daemon]
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            print(os.path.exists(os.environ["CACHE"]))
        """,
        TMPDIR=str(job.folder),
        CACHE=job.context.cache,
    )
    assert (done.returncode, done.stdout) == (0, "0\nFalse\n"), done.stderr
