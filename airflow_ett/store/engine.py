"""The connection to the ETT database: SQLite or Postgres, behind one small object.

Every failure comes out as :class:`StoreError`; no message holds a password or the whole URL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from airflow_ett.errors import EventLogError, StoreError, StoreMismatch

VERSION_TABLE = "ett_alembic_version"
REVISION = "0001"
"""The revision that this version needs. Revisions are numbered, so that their order is theirs."""

_BUSY_MS = 10_000
_RETRY_S = 30
_CONNECT_S = 10
_SQLITE_BUSY = {5, 6}
_POSTGRES_BUSY = {"40001", "40P01", "55P03"}
_T = TypeVar("_T")


class Store:
    """An open ETT database. ``open_store`` makes it; one per process will do."""

    def __init__(self, url: URL, engine: Engine) -> None:
        self._engine = engine
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self.file = Path(url.database or "") if self.is_sqlite else None
        place = f":{url.port}" if url.port else ""
        self.address = f"{url.get_backend_name()}://{url.host or ''}{place}/{url.database or ''}"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading. Raises :class:`StoreError`."""
        with self._translated(), self._engine.connect() as connection:
            yield connection

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work`` in one transaction and commit; return what it returns.

        A database that is locked, a deadlock or a lost connection makes it run again, for at most
        half a minute, so it must be harmless to repeat. Raises :class:`StoreError`.
        """
        engine = self._engine.execution_options(ett_writes=True)
        again = Retrying(
            retry=retry_if_exception(_is_transient),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            stop=stop_after_delay(_RETRY_S),
            reraise=True,
        )
        with self._translated():
            for attempt in again:
                with attempt, engine.begin() as connection:
                    result = work(connection)
        return result

    def check(self) -> None:
        """Raise :class:`StoreMismatch` unless the tables are at this version's revision.

        Raises :class:`StoreError` when the database does not answer.
        """
        with self.read() as connection:
            found = None
            if inspect(connection).has_table(VERSION_TABLE):
                found = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
        if found is None:
            raise self._missing(f"The database {self.address} has no ETT tables")
        if found < REVISION:
            raise StoreMismatch(
                f"The ETT database {self.address} is at revision {found}, this version needs "
                f"{REVISION}. Run `airflow-ett db upgrade`.",
                found=found,
                needed=REVISION,
            )
        if found > REVISION:
            raise StoreMismatch(
                f"The ETT database {self.address} is at revision {found}, made by a newer "
                f"airflow-ett than this one, which needs {REVISION}. Install the newer version.",
                found=found,
                needed=REVISION,
            )

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def enter_wal(self) -> None:
        """Create an SQLite file, where needed, that readers and one writer can use at once."""
        if self.file is None:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.touch()
        except OSError as error:
            raise StoreError(f"Cannot create the ETT database {self.file}: {error}") from error
        with self._translated():
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA journal_mode=WAL")
            finally:
                connection.close()

    def _missing(self, what: str) -> StoreMismatch:
        message = f"{what}. Run `airflow-ett db upgrade`."
        return StoreMismatch(message, found=None, needed=REVISION)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        # Connecting to an SQLite file that is not there would create an empty one.
        if self.file is not None and not self.file.is_file():
            raise self._missing(f"There is no ETT database at {self.file}")
        try:
            yield
        # An event may hold a number or a text that no column takes: then the job is odd, not the
        # database. SQLite's driver and the encoding say so in errors of Python's own.
        except (DataError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "orig", error)
            raise EventLogError(
                f"An event holds a value that cannot be stored: {reason}"
            ) from error
        except DBAPIError as error:
            problem = str(error.orig).strip().splitlines() or [type(error).__name__]
            raise StoreError(f"The ETT database {self.address} failed: {problem[0]}") from error
        except SQLAlchemyError as error:
            name = type(error).__name__
            raise StoreError(f"The ETT database {self.address} failed: {name}") from error


def open_store(url: str) -> Store:
    """Return the store at an SQLAlchemy URL of SQLite or Postgres; nothing is connected yet.

    Raises :class:`StoreError` when the URL or its driver cannot be used.
    """
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError) as error:
        raise StoreError("[ett] sql_alchemy_conn is no SQLAlchemy URL") from error
    if backend not in ("sqlite", "postgresql"):
        raise StoreError(f"[ett] sql_alchemy_conn: use SQLite or Postgres, not {backend!r}")
    try:
        engine = _sqlite(parsed) if backend == "sqlite" else _postgres(parsed)
    except (ImportError, NoSuchModuleError) as error:
        raise StoreError(
            f"[ett] sql_alchemy_conn: there is no driver for {parsed.drivername}. For Postgres "
            "install `airflow-ett[postgres]`."
        ) from error
    return Store(parsed, engine)


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert the rows whose key is not there yet and return how many these were."""
    if not rows:
        return 0
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).on_conflict_do_nothing()
    counting = {"preserve_rowcount": True}
    return connection.execute(statement, list(rows), execution_options=counting).rowcount


def lock(connection: Connection, name: str) -> None:
    """Hold others off from ``name`` until the transaction ends (SQLite has one writer anyway)."""
    if connection.dialect.name == "postgresql":
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        connection.execute(select(func.pg_advisory_xact_lock(number)))


def _postgres(url: URL) -> Engine:
    options = {"connect_timeout": _CONNECT_S, "application_name": "airflow-ett"}
    return create_engine(url, pool_pre_ping=True, connect_args=options)


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")

    # A transaction that reads first and then writes fails at once, without waiting, when another
    # wrote in between; one that says at its begin that it will write waits its turn.
    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("ett_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    return code in _SQLITE_BUSY or getattr(error.orig, "sqlstate", None) in _POSTGRES_BUSY
