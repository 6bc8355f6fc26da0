"""A command answers soon, and a worker starts soon: they load no more than they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def loaded(script: str, *words: str) -> set[str]:
    """The packages that a process has loaded at the end of a script."""
    code = f"import sys\n{script}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_an_app_loads_nothing_of_what_runs_it() -> None:
    heavy = {"asyncio", "structlog", "rich", "sqlalchemy", "aiohttp"}
    assert loaded("import rota; rota.App()").isdisjoint(heavy)


def test_a_command_that_draws_nothing_loads_no_drawing_and_leaves_the_collector_on(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/rota.db"
    script = "import gc; from rota.cli.main import run; assert run(sys.argv[1:]) == 0; assert gc.isenabled()"
    packages = loaded(script, "store", "migrate", "--store", store)
    assert packages.isdisjoint({"rich"})
    packages = loaded(script, "run", "list", "--json", "--store", store)
    assert {"structlog", "sqlalchemy"} <= packages
    assert packages.isdisjoint({"rich", "pydantic", "alembic", "aiohttp"})


def test_who_uses_rich_and_structlog_gets_both() -> None:
    script = (
        "from rota.cli.loading import load\n"
        "load('rota.cli.runs')\n"
        "from rich.table import Table\n"
        "import structlog; structlog.get_logger().info('said')"
    )
    assert {"rich", "structlog"} <= loaded(script)
