"""Publishers that are killed at random moments, and tried again until their version is there.

Half of the moments lie anywhere in the life of a publisher, the other half right after it changed
something that can be seen: a file, a folder, an object.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tests.publish.kills.reader import Reader

PATIENCE_S = 240.0


class Life(NamedTuple):
    """The shortest life of a publisher so far that nobody killed: its seconds, and the changes
    that were seen meanwhile.
    """

    seconds: float
    changes: int


class Moment(NamedTuple):
    """So many changes after the begin, and so many seconds after that."""

    changes: int
    seconds: float


class Publisher:
    """One publisher at work; ``code`` is how it ended, None while it has not.

    ``output`` names the files for what it says, by their number; ``first`` is code to run before.
    """

    def __init__(
        self,
        forge: subprocess.Popen[str],
        arguments: list[str],
        *,
        output: Mapping[int, str] | None = None,
        first: str = "",
    ) -> None:
        assert forge.stdin is not None
        assert forge.stdout is not None
        self._out = forge.stdout
        asked = {"arguments": arguments, "output": output or {}, "first": first}
        forge.stdin.write(json.dumps(asked | {"environ": dict(os.environ)}) + "\n")
        forge.stdin.flush()
        self.begun = time.monotonic()
        self.pid = int(self._out.readline())
        self.code: int | None = None
        self._ending = threading.Thread(target=self._wait)
        self._ending.start()

    def _wait(self) -> None:
        self.code = int(self._out.readline())

    def end(self) -> int:
        """Wait for its end; return its exit code, or minus the signal."""
        self._ending.join(PATIENCE_S)
        assert self.code is not None, "a publisher hangs"
        return self.code

    def wait(self, seconds: float) -> None:
        """Wait for its end, so long at most."""
        self._ending.join(seconds)

    def kill(self) -> bool:
        """Kill it and whatever it has started; return whether it had not ended before."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self.end() == -signal.SIGKILL


class Campaign:
    """Kills publishers; ``glance`` returns whatever of the registry and the staging can be seen."""

    def __init__(self, reader: Reader, glance: Callable[[], object], chance: random.Random) -> None:
        self._reader = reader
        self._glance = glance
        self._chance = chance
        self._life = Life(PATIENCE_S, 1000)
        self.kills = 0

    def let_live(self, forge: subprocess.Popen[str], arguments: list[str]) -> None:
        """Publish with nobody killed, and see how long that takes."""
        publisher = Publisher(forge, arguments)
        self._wait_for(Moment(self._life.changes, 0.0), publisher)
        assert publisher.end() == 0

    def publish(self, forge: subprocess.Popen[str], arguments: list[str], most: int) -> None:
        """Publish a version, and kill its publisher until it ends of itself, or ``most`` times."""
        before = set(self._reader.look())
        for _ in range(most):
            publisher = Publisher(forge, arguments)
            self._wait_for(self._moment(), publisher)
            if not publisher.kill():
                assert publisher.code == 0
                return
            self.kills += 1
            if set(self._reader.look()) != before:
                break  # one that finds its version there has little left to be killed in
        assert Publisher(forge, arguments).end() == 0

    def _moment(self) -> Moment:
        if self._chance.random() < 0.5:
            return Moment(0, self._chance.uniform(0, self._life.seconds))
        return Moment(self._chance.randint(1, self._life.changes), self._chance.uniform(0, 0.01))

    def _wait_for(self, moment: Moment, publisher: Publisher) -> None:
        """Wait for the moment; a publisher that ends before tells how long a life may be."""
        seen = 0
        for seen, _ in enumerate(self._changes(publisher)):
            if seen == moment.changes:
                break
        else:
            seconds = time.monotonic() - publisher.begun
            self._life = Life(min(seconds, self._life.seconds), min(seen, self._life.changes))
        publisher.wait(moment.seconds)

    def _changes(self, publisher: Publisher) -> Iterator[object]:
        """Yield what is seen at first, and then whenever it is something else, until the end."""
        last: object = None
        while publisher.code is None:
            seen = self._glance()
            if seen != last:
                yield seen
            last = seen
            time.sleep(0.001)


@contextlib.contextmanager
def forging() -> Iterator[subprocess.Popen[str]]:
    """Give a process that forks publishers."""
    command = [sys.executable, "-m", "tests.publish.kills.forge"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forge:
        assert forge.stdin is not None
        assert forge.stdout is not None
        assert forge.stdout.readline() == "ready\n"
        try:
            yield forge
        finally:
            forge.stdin.close()
