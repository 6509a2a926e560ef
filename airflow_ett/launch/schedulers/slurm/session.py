"""One SSH session to a login node: one TCP connection, on which many threads have their channels.

The connection is Airflow's: host, port, user, keys, and what it says of host keys are taken as
``airflow.providers.ssh`` takes them. Whatever waits here has an end: a session whose other side
does not answer is closed, and with it all that waits on it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from airflow_ett.errors import ConfigurationError, LaunchError
from airflow_ett.launch.schedulers.slurm.login import ASK, Login
from airflow_ett.launch.schedulers.slurm.transport import TIMEOUT_S, Result

T = TypeVar("T")

REPLY_S = 15.0
"""So long sshd itself may take to answer, whatever Slurm does."""

FILES_S = 30.0
"""So long a file may take to answer, and what is sent to be acknowledged."""

CHANNELS = 10
"""So many sshd allows on a session, unless its MaxSessions says otherwise."""

FILES = 3
"""So many of them are kept for files, once they were needed."""

STATE_DIR = "slurm_state_dir"
"""The name, among a connection's extras, of the folder of all apps on the cluster's side."""

_HOOK = "airflow.providers.ssh.hooks.ssh"
_SSH_PORT = 22
_CHUNK = 1 << 16
_PAUSE_S = 0.1


def check_installed() -> None:
    """Raise :class:`ConfigurationError` where Airflow's SSH provider is not installed."""
    _hook()


def connect(conn_id: str) -> Session:
    """Open a session by an SSH connection of Airflow's.

    Raises :class:`LaunchError` that says what to do, :class:`ConfigurationError` where the provider
    is missing.
    """
    hook_class = _hook()
    try:
        extras = hook_class.get_connection(conn_id).extra_dejson
        hook = hook_class(ssh_conn_id=conn_id)
        hook.conn_timeout = hook.conn_timeout or REPLY_S
        hook.banner_timeout = REPLY_S
        hook.conn_retry_attempts = 1  # each look of a watcher tries again
        client = hook.get_conn()
    except Exception as error:
        raise LaunchError(
            f"no session by SSH connection {conn_id!r}: {type(error).__name__}: {error}. Is the "
            "login node up, and has that connection of Airflow's its host, port, user and key, and "
            "the host's own key in host_key or in known_hosts?"
        ) from error
    host = str(hook.remote_host) + ("" if hook.port == _SSH_PORT else f":{hook.port}")
    session = Session(client, f"{host} (SSH connection {conn_id!r})", host)
    try:
        session.look_round(str(extras.get(STATE_DIR) or ""))
    except BaseException:
        session.close()
        raise
    return session


def _hook() -> Any:
    try:
        return importlib.import_module(_HOOK).SSHHook
    except ImportError as error:
        raise ConfigurationError(
            "cfg",
            f"ssh_conn_id needs Airflow's SSH provider ({error}): pip install 'airflow-ett[ssh]' "
            "where Airflow's workers and triggerers run",
        ) from error


class Session:
    """Safe to use from several threads. ``name`` is the other side, for people."""

    def __init__(self, client: Any, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.login = Login({})
        self.state_dir = ""
        self._client = client
        self._transport = client.get_transport()
        self._idle: list[Any] = []
        if isinstance(self._transport.sock, socket.socket):
            # Keepalives are sent, and the end is where nobody acknowledges them. Commands are small
            # packets, each of which would else wait 40 ms for the last one's acknowledgement.
            waits = {socket.TCP_USER_TIMEOUT: int(FILES_S * 1000), socket.TCP_NODELAY: 1}
            for option, value in waits.items():
                self._transport.sock.setsockopt(socket.IPPROTO_TCP, option, value)

    @property
    def alive(self) -> bool:
        """Whether the session is still there, as far as anybody has noticed."""
        # paramiko itself does not notice the end of a command that leads to a jump host.
        jump = getattr(self._transport.sock, "process", None)
        return bool(self._transport.is_active()) and not (jump and _has_ended(jump.pid))

    def close(self) -> None:
        """End the session; whoever waits on it is told so."""
        with contextlib.suppress(OSError):  # such a command may have ended by itself
            self._client.close()

    def look_round(self, state_dir: str) -> None:
        """Find out what a login has there. Raises :class:`LaunchError`."""
        channel = self.start(ASK)
        told = self.finish(channel, "", "bash -l")
        self.login = Login.read(told.out)
        if not self.login.environment.get("PATH"):
            raise LaunchError(
                f"{self.name} does not tell what a login has there: `bash -lc` must be allowed, "
                f"and said {(told.err or told.out).strip()[-200:] or 'nothing'!r}"
            )
        self.state_dir = state_dir

    def start(self, command: str) -> Any:
        """Have a shell begin a command; return its channel.

        Raises :class:`LaunchError` where sshd does not answer, or opens no more channels.
        """

        def begin(channel: Any) -> Any:
            channel.exec_command(command)
            return channel

        return self._open("begins no command", begin)

    def finish(self, channel: Any, text: str, what: str) -> Result:
        """Send a command its stdin, and return how it ended, and what it printed.

        Raises :class:`LaunchError` where it takes longer than :data:`TIMEOUT_S`, or the session
        breaks.
        """
        limit = time.monotonic() + TIMEOUT_S
        try:
            with contextlib.suppress(OSError):  # it may end before it has read all
                channel.sendall(text.encode())
                channel.shutdown_write()
            out = _drained(channel, channel.recv, limit)
            err = _drained(channel, channel.recv_stderr, limit)
            if not channel.status_event.wait(limit - time.monotonic()):
                raise TimeoutError
        except TimeoutError as error:
            raise LaunchError(
                f"{what} on {self.name} did not end within {TIMEOUT_S:g} s: slurmctld, slurmdbd or "
                "the login node is overloaded or away"
            ) from error
        finally:
            channel.close()
        if channel.exit_status < 0:
            why = "the session has broken, or a signal has ended it"
            raise LaunchError(f"{what} on {self.name} was cut off: {why}")
        return Result(channel.exit_status, out, err)

    def files(self, use: Callable[[Any], T]) -> T:
        """Return what ``use`` makes of an SFTP client.

        Raises ``OSError`` as ``use`` does, :class:`LaunchError` where the session breaks.
        """
        client = self._sftp()
        usable = False
        try:
            result = use(client)
            usable = True
        except Exception as error:
            slow = isinstance(error, TimeoutError)
            broken = not isinstance(error, OSError) or client.get_channel().closed
            usable = not slow and not broken
            if usable:
                raise
            if broken:
                self.close()
            raise self._lost("does not answer about a file", error) from error
        finally:
            if usable and len(self._idle) < FILES:
                self._idle.append(client)
            else:
                client.close()
        return result

    def _sftp(self) -> Any:
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        client_class = importlib.import_module("paramiko").SFTPClient

        def begin(channel: Any) -> Any:
            channel.invoke_subsystem("sftp")
            return client_class(channel)

        return self._open("offers no SFTP", begin)

    def _open(self, fails: str, begin: Callable[[Any], T]) -> T:
        """Open a channel and return what ``begin`` makes of it; ``fails`` says that it cannot."""
        channel = self._channel()
        channel.settimeout(FILES_S)
        try:
            with self._watched():
                return begin(channel)
        except Exception as error:
            channel.close()
            raise self._lost(fails, error) from error

    def _channel(self) -> Any:
        """Open a channel; wait where sshd has enough of them, which close a little late there."""
        limit = time.monotonic() + REPLY_S - _PAUSE_S
        while True:
            try:
                with self._watched():
                    return self._transport.open_session(timeout=REPLY_S)
            except Exception as error:
                if not _refused(error):
                    self.close()
                if not self.alive or time.monotonic() > limit:
                    what = f"opens no channel: it should allow {CHANNELS} at a time (MaxSessions)"
                    raise self._lost(what, error) from error
                with contextlib.suppress(IndexError):
                    self._idle.pop().close()
                time.sleep(_PAUSE_S)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Close the session where the block takes too long: parts of it wait for ever."""
        alarm = threading.Timer(REPLY_S, self.close)
        alarm.daemon = True
        alarm.start()
        try:
            yield
        finally:
            alarm.cancel()

    def _lost(self, what: str, error: Exception) -> LaunchError:
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        if self.alive:
            return LaunchError(f"{self.name} {what}: {told}")
        return LaunchError(f"the session to {self.name} has broken: {told}")


def _has_ended(pid: int) -> bool:
    """Tell whether a child has ended, which stays to be waited for: paramiko signals it later."""
    with contextlib.suppress(ChildProcessError):
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, pid, ended) is not None
    return True


def _refused(error: Exception) -> bool:
    """Tell whether sshd opens no more channels, of which paramiko tells one of several alone."""
    channel_exception = importlib.import_module("paramiko").ChannelException
    return isinstance(error, channel_exception) or str(error) == "Unable to open channel."


def _drained(channel: Any, receive: Callable[[int], bytes], limit: float) -> str:
    """Return all that comes until its end. Raises ``TimeoutError``.

    Of the stream that is not read meanwhile the channel takes 2 MiB, more than Slurm's commands
    ever complain.
    """
    chunks: list[bytes] = []
    while True:
        channel.settimeout(max(0.01, limit - time.monotonic()))
        chunk = receive(_CHUNK)
        if not chunk:
            return b"".join(chunks).decode(errors="replace")
        chunks.append(chunk)
