"""The migration makes the tables of the code, and takes them away; other databases are refused."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect

from autotuner import migrations
from autotuner.core.errors import StoreUnavailable
from autotuner.store.engine import make_engine, writing
from autotuner.store.schema import (
    VERSION_TABLE,
    alembic_config,
    current_revision,
    head_revision,
    migrate,
    write_revision,
)
from autotuner.store.sql import open_store
from autotuner.store.tables import metadata

SCRIPTS = Path(migrations.__file__).parent


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    engine = make_engine(url)
    try:
        with writing(engine) as connection:
            yield connection
    finally:
        engine.dispose()


def differences(connection: Connection) -> list[Any]:
    """What the database lacks of the tables of the code, and the other way round."""
    options = {"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
    found: list[Any] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    return found


def work_on(url: str) -> str:
    """What a service does before it answers; the revision that it finds."""
    with closing(open_store(url)) as store:
        return store.check()


def copied_scripts(folder: Path, *, with_versions: bool) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "" if with_versions else "0*.py")
    return shutil.copytree(SCRIPTS, folder / "scripts", ignore=ignored)


def test_an_empty_database_becomes_what_the_code_declares(empty_url: str) -> None:
    migrate(empty_url)
    with connected(empty_url) as connection:
        assert current_revision(connection) == head_revision()
        assert differences(connection) == []


def test_the_comparison_sees_a_missing_index_and_a_missing_column(empty_url: str) -> None:
    migrate(empty_url)
    with connected(empty_url) as connection:
        connection.exec_driver_sql("DROP INDEX ix_measurements_ranking")
        connection.exec_driver_sql("ALTER TABLE runs DROP COLUMN detail")
        assert {difference[0] for difference in differences(connection)} == {"add_index", "add_column"}


def test_migrating_again_changes_nothing(empty_url: str) -> None:
    migrate(empty_url)
    migrate(empty_url)
    with connected(empty_url) as connection:
        assert differences(connection) == []


def test_every_revision_can_be_undone_and_made_again(empty_url: str) -> None:
    migrate(empty_url)
    with connected(empty_url) as connection:
        command.downgrade(alembic_config(connection), "base")
    with connected(empty_url) as connection:
        assert inspect(connection).get_table_names() == [VERSION_TABLE]
    migrate(empty_url)
    with connected(empty_url) as connection:
        assert differences(connection) == []


def test_services_that_start_together_migrate_once(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, [empty_url] * 4))
    with connected(empty_url) as connection:
        assert differences(connection) == []


def test_migrating_works_from_any_folder(empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    migrate(empty_url)
    with connected(empty_url) as connection:
        assert current_revision(connection) == head_revision()


BROKEN_REVISION = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade() -> None:
    op.create_table("half", sa.Column("id", sa.Integer()))
    op.execute("INSERT INTO missing VALUES (1)")
"""


def test_a_revision_that_fails_leaves_nothing_behind(empty_url: str, tmp_path: Path) -> None:
    migrate(empty_url)
    scripts = copied_scripts(tmp_path, with_versions=True)
    (scripts / "versions" / "9999_broken.py").write_text(BROKEN_REVISION.format(head=head_revision()))
    with pytest.raises(Exception, match="missing"), connected(empty_url) as connection:
        command.upgrade(alembic_config(connection, scripts), "head")
    with connected(empty_url) as connection:
        assert current_revision(connection) == head_revision()
        assert differences(connection) == []


def test_a_drafted_revision_makes_the_tables_without_importing_the_code(empty_url: str, tmp_path: Path) -> None:
    scripts = copied_scripts(tmp_path, with_versions=False)
    draft = write_revision(empty_url, "all tables", scripts)
    assert draft.name == "0001_all_tables.py"
    assert "autotuner" not in draft.read_text()
    with connected(empty_url) as connection:
        command.upgrade(alembic_config(connection, scripts), "head")
        assert differences(connection) == []


@pytest.mark.parametrize("act", [migrate, work_on], ids=["migrating it", "working on it"])
def test_a_database_of_the_time_before_the_first_release_is_refused_with_what_to_do(
    act: Callable[[str], object], empty_url: str
) -> None:
    migrate(empty_url)
    with connected(empty_url) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '0010'")
    with pytest.raises(StoreUnavailable, match=r"revision 0010, which was written before .* to a new database"):
        act(empty_url)


def test_the_database_of_a_newer_program_is_left_as_it_is_and_worked_on(empty_url: str) -> None:
    migrate(empty_url)
    with connected(empty_url) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    migrate(empty_url)
    assert work_on(empty_url) == "9999"


@pytest.mark.parametrize("script", sorted((SCRIPTS / "versions").glob("0*.py")), ids=lambda path: path.stem)
def test_a_revision_never_imports_the_code(script: Path) -> None:
    tree = ast.parse(script.read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not any(name.startswith(("autotuner", "api", "trials")) for name in modules if name)
