"""Opening, checking and upgrading a database."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from airflow_ett.errors import StoreError, StoreMismatch
from airflow_ett.store import Store, open_store, schema, tables, upgrade
from airflow_ett.store.revision import REVISION, VERSION_TABLE


def _set_revision(store: Store, revision: str) -> None:
    def work(connection: Connection) -> None:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))

    store.write(work)


def test_an_empty_database_says_what_to_do(empty_url: str) -> None:
    with pytest.raises(StoreMismatch, match="airflow-ett db upgrade") as caught:
        open_store(empty_url).check()
    assert (caught.value.found, caught.value.needed) == (None, REVISION)


def test_looking_at_a_missing_file_does_not_create_it(tmp_path: Path) -> None:
    with pytest.raises(StoreMismatch, match="no ETT database"):
        open_store(f"sqlite:///{tmp_path}/none/ett.db").check()
    assert not (tmp_path / "none").exists()


def test_a_folder_in_place_of_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"Cannot create the ETT database .*it is no file"):
        upgrade(f"sqlite:///{tmp_path}")


def test_upgrade_makes_the_tables_and_repeats_harmlessly(empty_url: str) -> None:
    upgrade(empty_url)
    upgrade(empty_url)
    open_store(empty_url).check()


def test_upgrades_at_the_same_time_take_turns(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(upgrade, [empty_url] * 4))
    open_store(empty_url).check()


def test_an_older_and_a_newer_database_are_told_apart(store: Store, url: str) -> None:
    _set_revision(store, "0001")
    with pytest.raises(StoreMismatch, match=f"at revision 0001, this version needs {REVISION}"):
        store.check()
    _set_revision(store, "9999")
    with pytest.raises(StoreMismatch, match="Install the newer version"):
        store.check()
    with pytest.raises(StoreMismatch, match="Install the newer version"):
        upgrade(url)


def test_the_revisions_make_exactly_the_tables(store: Store) -> None:
    with store.read() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, tables.metadata) == []


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).with_name("migrations")))
    return config


def test_the_needed_revision_is_the_newest() -> None:
    config = _config()
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_sqlite_lets_readers_read_while_one_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    with open_store(url).read() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"


def test_a_database_that_is_away_is_one_clear_error_without_the_password() -> None:
    store = open_store("postgresql://bob:secret@127.0.0.1:1/ett")
    with pytest.raises(StoreError) as caught:
        store.check()
    assert "postgresql://127.0.0.1:1/ett" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://u:secret@h/d", "sqlite+nope:///x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="sql_alchemy_conn") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
