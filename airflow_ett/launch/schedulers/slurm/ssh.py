"""A cluster that is reached by ssh: its commands and its files, over one session per process.

The session is opened when it is first needed and again after it has broken. sshd allows so many
channels on it (:data:`CHANNELS`), which commands, files and locks share: they wait for theirs.
"""

from __future__ import annotations

import contextlib
import shlex
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from airflow_ett import config
from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.slurm.session import CHANNELS, FILES, Session, connect
from airflow_ett.launch.schedulers.slurm.transport import TIMEOUT_S, Result, Stat

T = TypeVar("T")

AGAIN_S = 5.0
"""After a session could not be opened, nobody tries again for so long: hundreds of jobs may be
watched, and a login node may shut out whoever knocks too often."""

_HELD_S = 600
"""So long a lock may be held: sshd does not notice the loss of the machine that holds it."""

_LOCKS = 2
"""Their holders need commands and files, too."""

_LOCKED = "locked"
_STATE_DIR = "~/ett/slurm"
_NOT_FOUND = 127


@dataclass(frozen=True, slots=True)
class _Held:
    """A lock: what holds it, and the second one that commands hold for themselves."""

    session: Session
    channel: Any
    busy: str


class Ssh:
    """A :class:`Transport` by an SSH connection of Airflow's, for several threads at once."""

    def __init__(self, conn_id: str, connect: Callable[[str], Session] = connect) -> None:
        self._conn_id = conn_id
        self._connect = connect
        self._connecting = threading.Lock()
        self._current: Session | None = None
        self._refused = -AGAIN_S, ""
        self._mine = threading.local()
        self._commands = _Turns(CHANNELS - FILES - _LOCKS)
        self._files = _Turns(FILES)
        self._locks = _Turns(_LOCKS)

    def run(self, argv: Sequence[str], input: str | None = None) -> Result:
        """See :class:`Commands`.

        Where the session breaks as it begins, it is begun once more, unless a lock is held.
        """
        with self._commands.take(f"{argv[0]} on {self._conn_id}"):
            session, channel = self._start(argv)
            result = session.finish(channel, input or "", argv[0])
        if result.code == _NOT_FOUND:
            raise LaunchError(
                f"{argv[0]} could not be run on {session.name}: {result.err.strip()}. It must be "
                "on the PATH that `bash -l` has there: have ~/.bash_profile load Slurm's module"
            )
        return result

    def state_dir(self, wanted: Path) -> Path:
        """See :class:`Transport`. The connection's own comes first, the user's home last.

        The option's default lies below ``AIRFLOW_HOME``, which a cluster has not.
        """
        session = self._session()
        if not session.state_dir and wanted == config.airflow_home() / "ett" / "slurm":
            return session.login.path(_STATE_DIR)
        path = session.login.path(session.state_dir or str(wanted))
        if not path.is_absolute():
            raise LaunchError(
                f"slurm_state_dir: {session.state_dir!r}, of {session.name}, is no absolute path, "
                "nor does it begin with ~/"
            )
        return path

    def address(self, path: Path) -> str:
        """See :class:`Transport`."""
        return f"sftp://{self._session().host}{quote(str(path))}"

    def read(self, path: Path, offset: int = 0, size: int = -1) -> bytes:
        """See :class:`Transport`."""

        def use(sftp: Any) -> bytes:
            with sftp.open(str(path), "rb") as file:
                file.seek(offset)
                return bytes(file.read(size if size >= 0 else None))

        return self._use(use)

    def stat(self, path: Path) -> Stat:
        """See :class:`Transport`."""
        found = self._use(lambda sftp: sftp.stat(str(path)))
        return Stat(int(found.st_size), float(found.st_mtime))

    def write(self, path: Path, text: str) -> None:
        """See :class:`Transport`."""
        draft = str(path.with_name(f".{path.name}.{threading.get_native_id()}"))

        def use(sftp: Any) -> None:
            with sftp.open(draft, "wb") as file:
                file.chmod(0o600)
                file.write(text.encode())
            sftp.posix_rename(draft, str(path))

        self._use(use)

    def make(self, path: Path) -> None:
        """See :class:`Transport`."""

        def use(sftp: Any) -> None:
            missing = []
            folder = path
            while not _is_folder(sftp, folder):
                missing.append(folder)
                folder = folder.parent
            for each in reversed(missing):
                try:
                    sftp.mkdir(str(each), 0o700)
                except OSError:
                    if not _is_folder(sftp, each):  # else somebody else has just made it
                        raise

        self._use(use)

    def folders(self, path: Path) -> list[str]:
        """See :class:`Transport`."""
        try:
            found = self._use(lambda sftp: sftp.listdir_attr(str(path)))
        except FileNotFoundError:
            return []
        return sorted(each.filename for each in found if stat.S_ISDIR(each.st_mode))

    @contextlib.contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """See :class:`Transport`. Its session is the only one that this thread uses meanwhile.

        What holds the lock ends with the session. A command that was begun meanwhile may not:
        each holds a second lock, and whoever comes next waits for that, too.
        """
        wait, busy = ("flock", "-w", f"{TIMEOUT_S:g}"), f"{path}.busy"
        free = shlex.join((*wait, busy, "true"))
        hold = f"{free} && echo {_LOCKED} && exec timeout {_HELD_S} cat"
        argv = (*wait, str(path), "sh", "-c", hold)
        with self._locks.take(f"the lock {path} on {self._conn_id}"):
            session, channel = self._start(argv)
            with contextlib.closing(channel):
                channel.settimeout(3 * TIMEOUT_S)
                if channel.recv(len(_LOCKED) + 1).strip() != _LOCKED.encode():
                    told = channel.recv_stderr(1000).decode(errors="replace").strip()
                    raise LaunchError(
                        f"{path} on {session.name} cannot be locked: "
                        f"{told or 'somebody else holds it, or the session has broken'}"
                    )
                self._mine.held = _Held(session, channel, busy)
                try:
                    yield
                finally:
                    self._mine.held = None

    def _start(self, argv: Sequence[str]) -> tuple[Session, Any]:
        if held := self._held():
            argv = ("flock", held.busy, "env", *argv)

        def start(session: Session) -> tuple[Session, Any]:
            return session, session.start(session.login.command(argv))

        return self._reach(start)

    def _held(self) -> _Held | None:
        """Return the lock that this thread holds."""
        held: _Held | None = getattr(self._mine, "held", None)
        return held

    def _use(self, use: Callable[[Any], T]) -> T:
        """Return what ``use``, which may be done twice, makes of an SFTP client."""
        with self._files.take(f"files on {self._conn_id}"):
            return self._reach(lambda session: session.files(use))

    def _reach(self, act: Callable[[Session], T]) -> T:
        """Return what comes of ``act``, on a new session where the old one turns out to be over."""
        session = self._session()
        try:
            return act(session)
        except LaunchError:
            if session.alive:
                raise
        return act(self._session())

    def _session(self) -> Session:
        if held := self._held():
            if not held.session.alive or held.channel.exit_status_ready():
                raise LaunchError(f"a lock on {held.session.name} was lost, maybe with the session")
            return held.session
        asked_s = time.monotonic()
        current = self._current
        if current is not None and current.alive:
            return current
        with self._connecting:
            if self._current is not None and self._current.alive:
                return self._current
            refused_s, why = self._refused
            if why and (refused_s > asked_s or time.monotonic() - refused_s < AGAIN_S):
                raise LaunchError(why)
            try:
                if self._current is not None:
                    self._current.close()
                self._current = self._connect(self._conn_id)
            except LaunchError as error:
                self._refused = time.monotonic(), str(error)
                raise
            return self._current


class _Turns:
    """So many at a time. Who waits longer than a command may take has waited in vain."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextlib.contextmanager
    def take(self, what: str) -> Iterator[None]:
        if not self._free.acquire(timeout=TIMEOUT_S):
            raise LaunchError(f"{what} had to wait for longer than {TIMEOUT_S:g} s for the others")
        try:
            yield
        finally:
            self._free.release()


def _is_folder(sftp: Any, path: Path) -> bool:
    try:
        mode = sftp.stat(str(path)).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(f"{path} is no folder")
    return True
