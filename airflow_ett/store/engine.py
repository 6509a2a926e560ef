"""The connection to the ETT database: SQLite or Postgres, behind one small object.

Every failure comes out as :class:`StoreError`; no message holds a password or the whole URL.
"""

from __future__ import annotations

import errno
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
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
    make_url,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    SQLAlchemyError,
    StatementError,
)
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from airflow_ett.errors import EventLogError, StoreError, StoreMismatch
from airflow_ett.metric import COMPONENTS, Components
from airflow_ett.store.arrays import insert_arrays
from airflow_ett.store.folds import Folds
from airflow_ett.store.revision import REVISION, stored_revision

_AT_ONCE = 5_000
_SQLITE_BUSY = {5, 6}
_SQLITE_TOO_BIG = 18
_POSTGRES_BUSY = {"40001", "40P01", "55P03"}
_T = TypeVar("_T")


class Store:
    """An open ETT database. ``open_store`` makes it; one per process will do."""

    def __init__(self, url: URL, engine: Engine, patience_s: float, components: Components) -> None:
        self.components = components
        self.folds = Folds()
        self._engine = engine
        self._patience_s = patience_s
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

        A database that is locked, a deadlock or a lost connection makes it run again, as long as
        the store's patience lasts, so it must be harmless to repeat. Raises :class:`StoreError`,
        and :class:`EventLogError` when the values are at fault.
        """
        engine = self._engine.execution_options(ett_writes=True)
        again = Retrying(
            retry=retry_if_exception(_is_transient),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            stop=stop_after_delay(self._patience_s),
            reraise=True,
        )
        with self._translated():
            for attempt in again:
                with attempt, engine.begin() as connection:
                    result = work(connection)
        return result

    def check(self) -> None:
        """Raise :class:`StoreMismatch` unless the tables are at this version's revision.

        It looks at the revision alone: :func:`airflow_ett.store.examine.examine` compares the
        tables themselves. Raises :class:`StoreDamaged` where the revision cannot be told, and
        :class:`StoreError` when the database does not answer.
        """
        with self.read() as connection:
            found = stored_revision(connection, f"The ETT database {self.address}")
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
        """Close all connections; the next use opens new ones."""
        self._engine.dispose()

    def enter_wal(self) -> None:
        """Create an SQLite file, where needed, that readers and one writer can use at once."""
        if self.file is None:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.touch()
            if not self.file.is_file():
                raise OSError(errno.EINVAL, "it is no file")
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
        # SQLite's driver and the encoding tell of odd values in errors of Python's own.
        except (SQLAlchemyError, OverflowError, UnicodeError) as error:
            if is_about_values(error):
                problem = f"An event holds a value that cannot be stored: {reason(error)}"
                raise EventLogError(problem) from error
            raise StoreError(f"The ETT database {self.address} failed: {reason(error)}") from error


def open_store(url: str, *, patience_s: float = 30.0, components: Components = COMPONENTS) -> Store:
    """Return the store at an SQLAlchemy URL of SQLite or Postgres; nothing is connected yet.

    ``patience_s`` bounds how long a read or a write waits for a lock, and for a server that does
    not let it in (2 s at least, then). Jobs are measured with ``components``.
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
        engine = (_sqlite if backend == "sqlite" else _postgres)(parsed, patience_s)
    except (ImportError, NoSuchModuleError) as error:
        raise StoreError(
            f"[ett] sql_alchemy_conn: there is no driver for {parsed.drivername}. For Postgres "
            "install `airflow-ett[postgres]`."
        ) from error
    return Store(parsed, engine, patience_s, components)


def is_about_values(error: Exception) -> bool:
    """Return whether what was to be stored is at fault: one job is odd, the database is well."""
    if isinstance(error, DBAPIError):
        too_big = (getattr(error.orig, "sqlstate", None) or "").startswith("54")
        too_big |= getattr(error.orig, "sqlite_errorcode", 0) == _SQLITE_TOO_BIG
        return too_big or isinstance(error, DataError | IntegrityError)
    # A StatementError holds what a value's conversion raised.
    return isinstance(error, StatementError) or not isinstance(error, SQLAlchemyError)


def reason(error: Exception) -> str:
    """Return what went wrong in one line, without the statement and its values."""
    if isinstance(error, StatementError) and error.orig is not None:
        problem = str(error.orig).strip().splitlines() or [type(error).__name__]
        return problem[0]
    return type(error).__name__ if isinstance(error, SQLAlchemyError) else repr(error)


def insert_new(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> int:
    """Insert the rows whose key is not there yet and return how many these were.

    All rows have the same columns: whole numbers, texts and JSON.
    """
    insert_some = _insert_many if connection.dialect.name == "sqlite" else insert_arrays
    left = iter(rows)
    new = 0
    while some := list(islice(left, _AT_ONCE)):
        new += insert_some(connection, table, some)
    return new


def _insert_many(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    statement = sqlite.insert(table).on_conflict_do_nothing()
    counting = {"preserve_rowcount": True}
    return connection.execute(statement, rows, execution_options=counting).rowcount


def lock(connection: Connection, name: str) -> None:
    """Hold others off from ``name`` until the transaction ends (SQLite has one writer anyway)."""
    if connection.dialect.name == "postgresql":
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        connection.execute(select(func.pg_advisory_xact_lock(number)))


def _postgres(url: URL, patience_s: float) -> Engine:
    timeout = max(1, math.ceil(patience_s))
    options = {"connect_timeout": timeout, "application_name": "airflow-ett"}
    engine = create_engine(url, pool_pre_ping=True, connect_args=options, hide_parameters=True)

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_ms(patience_s)}")

    return engine


def _sqlite(url: URL, patience_s: float) -> Engine:
    engine = create_engine(url, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={_ms(patience_s)}")

    # A transaction that reads first and then writes fails at once, without waiting, when another
    # wrote in between; one that says at its begin that it will write waits its turn.
    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("ett_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _ms(seconds: float) -> int:
    # 0 would mean for ever to Postgres.
    return max(1, round(seconds * 1000))


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    return code in _SQLITE_BUSY or getattr(error.orig, "sqlstate", None) in _POSTGRES_BUSY
