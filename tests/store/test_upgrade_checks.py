"""Tables made by hand, half-migrated or restored in part: told apart, explained, left alone."""

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, event, inspect, text

from airflow_ett.errors import StoreDamaged, StoreError, StoreMismatch
from airflow_ett.store import Store, open_store, schema, upgrade
from airflow_ett.store.examine import examine
from airflow_ett.store.revision import REVISION, VERSION_TABLE

on_sqlite = pytest.mark.parametrize("empty_url", ["sqlite"], indirect=True)
VERSION = f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)"


def _run(store: Store, *statements: str) -> None:
    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    store.enter_wal()
    store.write(work)


def _layout(store: Store) -> dict[str, list[str]]:
    with store.read() as connection:
        inspector = inspect(connection)
        tables = inspector.get_table_names()
        return {t: [str(c["name"]) for c in inspector.get_columns(t)] for t in tables}


def _is_left_alone(url: str, *found: str) -> None:
    """Check and upgrade refuse, in one line that says what was found and what to do."""
    store = open_store(url)
    before = _layout(store)
    for look in (lambda: examine(store), lambda: upgrade(url)):
        with pytest.raises(StoreDamaged) as caught:
            look()
        message = str(caught.value)
        assert "\n" not in message
        assert "secret" not in message
        for part in (*found, store.address, "Nothing was changed", "airflow-ett db upgrade"):
            assert part in message
    assert _layout(store) == before
    store.close()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DROP TABLE ett_phase", "table ett_phase is missing"),
        ("ALTER TABLE ett_job DROP COLUMN tts_ns", "ett_job has no column tts_ns"),
        ("DROP INDEX ix_ett_job_end", "ett_job needs the index ix_ett_job_end on (end_ns)"),
        (
            "ALTER TABLE ett_phase ADD COLUMN cost BIGINT NOT NULL",
            "ett_phase has a column cost that must be filled and that nobody fills",
        ),
    ],
)
def test_tables_that_were_changed(store: Store, url: str, statement: str, found: str) -> None:
    if store.is_sqlite and "NOT NULL" in statement:
        pytest.skip("SQLite adds no such column")
    _run(store, statement)
    _is_left_alone(url, found)


def test_what_would_keep_events_out_in_silence(store: Store, url: str) -> None:
    """A new event that is not unique by an index of somebody's own would count as known."""
    _run(store, "CREATE UNIQUE INDEX of_mine ON ett_event (kind)")
    _is_left_alone(url, "ett_event must not be unique by of_mine: rows would be lost")


def test_a_table_made_by_hand_without_a_key_and_with_short_numbers(store: Store, url: str) -> None:
    _run(
        store,
        "DROP TABLE ett_source",
        'CREATE TABLE ett_source (path TEXT, job TEXT NOT NULL, "offset" TEXT NOT NULL)',
    )
    _is_left_alone(
        url,
        "ett_source.offset is TEXT(), not BigInteger()",
        "ett_source needs the primary key (path), not none",
        "ett_source needs the index ix_ett_source_job on (job)",
    )


@pytest.mark.postgres
def test_postgres_columns_that_hold_less_than_ours(request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue("postgres")
    server.psql("CREATE DATABASE ett_narrow")
    url = str(server.get_uri(database="ett_narrow"))
    upgrade(url)
    store = open_store(url)
    for change in ("seq TYPE INTEGER", "data TYPE JSONB", "kind TYPE VARCHAR(20)"):
        _run(store, f"ALTER TABLE ett_event ALTER COLUMN {change}")
    _is_left_alone(url, "ett_event.seq is INTEGER()", "ett_event.data", "ett_event.kind is VARCHAR")
    store.close()


@on_sqlite
@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["DROP TABLE {v}"], f"but no table {VERSION_TABLE}"),
        (["DELETE FROM {v}"], f"but no row in {VERSION_TABLE}"),
        (["INSERT INTO {v} VALUES ('0002')"], "at 2 revisions at once (0002, {r})"),
        (["UPDATE {v} SET version_num = 'a1b2'"], "at revision 'a1b2', which no airflow-ett"),
        (["UPDATE {v} SET version_num = '0000'"], "at revision '0000', which no airflow-ett"),
        (["DROP TABLE {v}", "CREATE TABLE {v} (x TEXT)"], "has no column version_num"),
    ],
)
def test_a_version_that_cannot_be_told(
    store: Store, url: str, statements: list[str], found: str
) -> None:
    _run(store, *(statement.format(v=VERSION_TABLE) for statement in statements))
    _is_left_alone(url, found.replace("{r}", REVISION))
    with pytest.raises(StoreDamaged):
        store.check()


@on_sqlite
def test_one_table_made_by_hand_and_no_version(empty_url: str) -> None:
    store = open_store(empty_url)
    _run(store, "CREATE TABLE ett_job (job TEXT PRIMARY KEY)")
    _is_left_alone(empty_url, "holds ett_job, but no table")


def _at(url: str, revision: str) -> Store:
    store = open_store(url)
    store.enter_wal()

    def work(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(schema._MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)

    store.write(work)
    return store


@pytest.mark.parametrize("revision", ["0001", "0002", "0003"])
def test_every_former_revision_is_upgraded(empty_url: str, revision: str) -> None:
    _at(empty_url, revision).close()
    with pytest.raises(StoreMismatch, match=f"at revision {revision}, this version needs"):
        examine(open_store(empty_url))
    upgrade(empty_url)
    assert examine(open_store(empty_url)) == []


@pytest.mark.parametrize(
    ("revision", "statement", "found"),
    [
        ("0003", "DROP TABLE ett_rollup", "table ett_rollup is missing"),
        ("0003", "CREATE TABLE ett_file (job TEXT)", "table ett_file is there already"),
        ("0001", "ALTER TABLE ett_job ADD COLUMN mapping TEXT", "has the column mapping already"),
        (
            "0001",
            "CREATE INDEX ix_ett_source_job ON ett_source (job)",
            "has the index ix_ett_source",
        ),
    ],
)
def test_an_upgrade_refuses_what_is_half_migrated(
    empty_url: str, revision: str, statement: str, found: str
) -> None:
    store = _at(empty_url, revision)
    _run(store, statement)
    before = _layout(store)
    with pytest.raises(StoreDamaged, match=found):
        upgrade(empty_url)
    assert _layout(store) == before
    with pytest.raises(StoreMismatch, match=f"at revision {revision}"):
        store.check()
    store.close()


def test_what_is_odd_and_harmless_is_told(store: Store, url: str) -> None:
    _run(
        store,
        "CREATE TABLE ett_backup (x TEXT)",
        "CREATE TABLE others (x TEXT)",
        "ALTER TABLE ett_job ADD COLUMN note TEXT",
    )
    assert examine(store) == [
        "table ett_backup is not airflow-ett's; it is left alone",
        "ett_job has columns that are not airflow-ett's: note",
    ]
    upgrade(url)


@on_sqlite
def test_an_empty_version_table_alone_is_an_empty_database(empty_url: str) -> None:
    _run(open_store(empty_url), VERSION)
    with pytest.raises(StoreMismatch, match="has no ETT tables"):
        examine(open_store(empty_url))


@on_sqlite
def test_a_newer_database_is_not_compared(store: Store, url: str) -> None:
    _run(store, f"UPDATE {VERSION_TABLE} SET version_num = '0999'", "DROP TABLE ett_phase")
    for look in (lambda: examine(store), lambda: upgrade(url)):
        with pytest.raises(StoreMismatch, match="Install the newer version"):
            look()


def test_the_quick_check_asks_no_more_than_the_revision(store: Store) -> None:
    asked: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_rest: object) -> None:
        if not statement.startswith(("BEGIN", "SET")):
            asked.append(statement)

    event.listen(store._engine, "before_cursor_execute", note)
    store.check()
    assert len(asked) == 2


def test_a_database_that_is_away_is_not_called_damaged() -> None:
    with pytest.raises(StoreError) as caught:
        examine(open_store("postgresql://bob:secret@127.0.0.1:1/ett"))
    assert not isinstance(caught.value, StoreDamaged)
