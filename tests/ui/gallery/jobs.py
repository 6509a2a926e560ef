"""Trainings as they happen: a daily ranker, one that is live, short ones, hostile ones."""

from collections.abc import Callable
from random import Random

from airflow_ett.events import JobKey
from tests.ui.gallery.names import HOSTILE
from tests.ui.gallery.story import Story

HOUR = 3600.0
CAUSES = {
    "preempted": 44,
    "infrastructure": 22,
    "application": 14,
    "out_of_memory": 8,
    "timeout": 4,
    "launch": 3,
    "unknown": 5,
}
EVIDENCE = {
    "preempted": "slurm: PREEMPTED (raw state), SIGTERM on rank 0",
    "infrastructure": "NCCL watchdog timeout on gpu-a033, Xid 79 (GPU fell off the bus)",
    "application": "ValueError: feature 'geo_bucket' has 4097 values, 4096 are allowed",
    "out_of_memory": "torch.OutOfMemoryError on rank 11: tried to allocate 2.50 GiB",
    "timeout": "no step for 30 m",
    "launch": "sbatch: error: QOSMaxSubmitJobPerUserLimit",
    "unknown": "exit code 1",
}


class Daily:
    """One run of a daily training of about ten hours; ``random`` decides how it goes."""

    def __init__(self, key: JobKey, begin_ns: int, random: Random, *, accelerators: int = 32):
        self.story = Story(key, begin_ns, accelerators=accelerators)
        self._random = random
        self._host = f"gpu-a[{random.randrange(10, 60):03}-064]"

    def run(
        self,
        *,
        failures: int,
        compile_s: float,
        again_s: float,
        hours: float = 9.1,
        fate: str = "",
        hole: bool = False,
    ) -> Story:
        """Train, fail so often, and end by ``fate``: a cause of failure, or well."""
        share = 1 / (failures + 1 + bool(fate))
        for number in range(failures + 1):
            self._start(number, compile_s if number == 0 else again_s)
            self._loop(hours * HOUR * share)
            if hole:
                self.story.lose(1900)
            if number < failures:
                cause = self._random.choices([*CAUSES], [*CAUSES.values()])[0]
                self._fail(cause)
        if fate:
            self._fail(fate)
            self.story.end("failed", fate)
        else:
            self._finish()
        return self.story

    def _about(self, mean: float, spread: float = 0.12) -> float:
        return max(0.2, self._random.gauss(mean, mean * spread))

    def _start(self, number: int, compile_s: float) -> None:
        story, about = self.story, self._about
        story.submit("first" if number == 0 else "relaunch" if number == 1 else "airflow")
        story.allocate(about(self._random.choice([60, 150, 300]), 0.5), about(96))
        story.boot(self._host, about(41))
        for name, mean in (
            ("device_init", 7.8),
            ("process_group_init", 34),
            ("preproc_creation", 52),
            ("train_module_creation", 118),
            ("init_plugins", 11),
            ("pre_train", 23),
        ):
            story.phase(name, about(mean))
        if number:
            story.resume(about(44))
        story.phase("first_batch", about(146, 0.25))
        cold = compile_s > 300
        if not cold:
            story.compile("0/0", about(38), hit=True)
        reason = None if cold else "guard: batch.size(0) == 4096"
        story.compile("0/1", about(compile_s, 0.06), hit=False, reason=reason)

    def _loop(self, seconds: float) -> None:
        while seconds > 0:
            piece = min(seconds, 1800)
            self.story.train(piece, wait=self._random.uniform(0.004, 0.02))
            seconds -= piece
            self.story.pass_(self._random.uniform(0.5, 6))
            if seconds > 0:
                self.story.save(self._about(17, 0.1), self._random.uniform(150, 260))
        if self._random.random() < 0.5:
            self.story.phase("evaluation", self._about(560))

    def _fail(self, cause: str) -> None:
        self.story.fail(cause, self._random.uniform(20, 95), EVIDENCE[cause])
        self.story.pass_(self._random.uniform(8, 40))

    def _finish(self) -> None:
        self.story.save(17, 60, anchor=True)
        self.story.phase("publish", self._about(1600, 0.09))
        self.story.phase("shutdown", self._about(200, 0.1))
        self.story.finish()
        self.story.publish()


def _boot(story: Story, *, launcher_init: float = 41, host: str) -> None:
    story.boot(host, launcher_init)
    for name, seconds in (
        ("device_init", 7.9),
        ("process_group_init", 33),
        ("preproc_creation", 51),
        ("train_module_creation", 117),
        ("init_plugins", 11.2),
        ("pre_train", 22.6),
    ):
        story.phase(name, seconds)


def _loop(story: Story, hours: float) -> None:
    left, number = hours * HOUR, 0
    while left > 0:
        number += 1
        story.train(min(left, 600), every=60, wait=0.003)
        left -= 600
        if number % 3 == 0 and left > 0:
            story.save(17.2, 210)
        if number % 4 == 1:
            story.phase("data_wait", 24)
        if number % 13 == 0:
            story.phase("evaluation", 190)


def live(key: JobKey, begin_ns: int) -> Story:
    """Four attempts by every layer, an upload that was lost, and six minutes without progress."""
    story = Story(key, begin_ns)
    story.submit("first")
    story.allocate(412, 97)
    _boot(story, host="gpu-a[017-020]")
    story.lever("compile_cache", "missed", "nothing is kept yet")
    story.lever("fast_batch", "off", "ETT_FAST_BATCH=0")
    story.phase("first_batch", 139)
    story.compile("0/0", 1987.4, hit=False)
    story.lever("compile_cache", "saved", duration_ns=900_000_000, bytes=2_300_000)
    _loop(story, 2.62)
    story.fail("preempted", 31, EVIDENCE["preempted"], source="scheduler", raw="PREEMPTED")
    story.requeue()
    story.allocate(655, 99)
    _boot(story, host="gpu-a[031-034]")
    story.resume(44.1)
    story.lever("compile_cache", "used", duration_ns=200_000_000, bytes=2_300_000)
    story.phase("first_batch", 141)
    story.compile("0/0", 36.2, hit=True)
    story.compile("0/1", 58.8, hit=False, reason="guard: batch.size(0) == 4096")
    _loop(story, 1.31)
    story.save(16, 900)
    story.train(120)
    lines = [f"[rank11] step {number}: loss {0.31 - number / 1e5:.4f}" for number in range(3)]
    lines.append(EVIDENCE["out_of_memory"])
    story.fail("out_of_memory", 12, EVIDENCE["out_of_memory"], replica=11, lines=lines)
    story.pass_(60)
    story.submit("airflow")
    story.allocate(188, 101)
    _boot(story, host="gpu-a[031-034]")
    story.resume(41.8)
    story.lever("compile_cache", "unable", "/cache can be written by others (mode 0777)")
    story.phase("first_batch", 137)
    story.compile("0/0", 35, hit=True)
    story.compile("0/1", 402.7, hit=False)
    _loop(story, 2.05)
    story.fail("infrastructure", 602, EVIDENCE["infrastructure"], node=2, host="gpu-a033")
    story.restart()
    _boot(story, launcher_init=19, host="gpu-a[031,032,034,041]")
    story.resume(40.2)
    story.phase("first_batch", 121)
    story.compile("0/0", 34.1, hit=True)
    story.compile("0/1", 57.5, hit=False, reason="guard: batch.size(0) == 4096")
    _loop(story, 1.42)
    story.open_phase("data_wait", 372)
    story.live()
    return story


def steady(key: JobKey, begin_ns: int, seconds: float = 1800) -> Story:
    """A job that trains right now, without any failure."""
    story = Story(key, begin_ns, accelerators=8)
    story.submit()
    story.allocate(20, 10)
    story.boot("node-17", 5)
    story.phase("first_batch", 6)
    story.compile("0/0", 30, hit=False)
    story.train(seconds / 2, every=60)
    story.save(4, 20)
    story.train(seconds / 2, every=60)
    story.live()
    return story


def short(
    key: JobKey, begin_ns: int, random: Random, *, accelerators: int = 8, half_s: float = 1100
) -> Story:
    """An hour with few events, a checkpoint in the middle: for Dags with hundreds of runs."""
    story = Story(key, begin_ns, accelerators=accelerators)
    failures = random.choices([0, 1, 2], [70, 22, 8])[0]
    for number in range(failures + 1):
        story.submit("first" if number == 0 else "relaunch")
        story.allocate(random.uniform(20, 240), 40)
        story.boot("node-17", 12)
        if number:
            story.resume(20)
        story.phase("first_batch", random.uniform(15, 40))
        story.compile("0/0", random.uniform(20, 200), hit=number > 0)
        story.train(half_s, wait=random.uniform(0.01, 0.05))
        story.save(6, 40)
        story.train(half_s)
        if number < failures:
            cause = random.choices([*CAUSES], [*CAUSES.values()])[0]
            story.fail(cause, random.uniform(10, 60), EVIDENCE[cause])
            story.pass_(15)
    if random.random() < 0.03:
        story.fail("application", 10, EVIDENCE["application"])
        story.end("failed", "application")
    else:
        story.phase("publish", random.uniform(20, 200))
        story.finish()
    return story


def ten_hours(key: JobKey, begin_ns: int) -> Story:
    """Ten hours as a Session tells them: an interval each ten seconds, a save each half hour."""
    story = Story(key, begin_ns)
    for number in range(3):
        story.submit("airflow" if number else "first")
        story.allocate(120, 60)
        story.boot("gpu-a[017-020]", 40)
        if number:
            story.resume(40)
        story.phase("first_batch", 120)
        story.compile("0/0", 300, hit=False)
        for _ in range(6 if number < 2 else 8):
            story.train(1800, every=10)
            story.save(17, 200)
        if number < 2:
            story.fail("preempted", 30, EVIDENCE["preempted"])
    story.finish()
    return story


def silent(key: JobKey, begin_ns: int) -> Story:
    """The trainer tells nothing: only the scheduler's word is known."""
    story = Story(key, begin_ns)
    story.submit()
    story.allocate(312, 9.6 * HOUR)
    story.end("succeeded")
    return story


def hostile(key: JobKey, begin_ns: int) -> Story:
    """Everything that a user names is markup."""
    story = Story(key, begin_ns, accelerators=4)
    story.submit()
    story.allocate(20, 10)
    story.boot(HOSTILE, 5)
    story.phase(HOSTILE, 30)
    story.phase("wasted." + "w" * 200, 10)
    story.lever(HOSTILE, HOSTILE, HOSTILE)
    story.compile(HOSTILE, 40, hit=False, reason=HOSTILE)
    story.train(600, every=60)
    story.save(4, 20)
    story.train(60)
    story.fail("application", 10, HOSTILE, host=HOSTILE, log=HOSTILE, lines=[HOSTILE, "\u202egnp"])
    story.submit("relaunch")
    story.allocate(20, 10)
    story.boot("node", 5)
    story.resume(5)
    story.train(600, every=60)
    story.finish()
    return story


def wide(key: JobKey, begin_ns: int) -> Story:
    """Eight ranks, of which some are slower than rank 0."""
    story = Story(key, begin_ns, accelerators=8)
    story.submit()
    story.allocate(60, 30)
    story.boot("node-a", 12)
    story.phase("train_module_creation", 40)
    story.phase("first_batch", 30)
    story.train(1200, wait=0.02)
    story.ranks(
        [
            {"first_batch": 31 + rank, "train_module_creation": 40 + rank % 3, "data_wait": 25}
            for rank in range(1, 8)
        ]
    )
    story.finish()
    return story


def ending(tell: Callable[[JobKey, int], Story], key: JobKey, end_ns: int) -> Story:
    """Tell a story such that its last moment is ``end_ns``."""
    length_ns = tell(key, 0).now_ns
    return tell(key, end_ns - length_ns)
