"""The table that users read is the data of the product, and the kinds that it offers are those that it can make."""

import subprocess
import sys
from pathlib import Path

import pytest

from rota.execution.isolation.availability import why_not
from rota.execution.isolation.promises import PROMISES, BoundaryKind, Promise
from tests.execution.isolation.rig import IS_ROOT, KINDS, NOBODY, ROOT, AgentFailed, Rig

ROWS = {
    "what it is": "means",
    "the agent is killed": "agent_killed",
    "the supervisor is killed": "supervisor_killed",
    "both are killed": "both_killed",
    "daemonised grandchildren": "daemonised",
    "another user": "other_user",
    "the switch": "switch",
}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_the_documents_show_the_table_of_promises() -> None:
    text = (ROOT / "docs" / "boundaries.md").read_text()
    head, _, *rows = text.partition("product -->\n")[2].partition("\n\n")[0].splitlines()
    assert cells(head)[1:] == [line.name for line in PROMISES]
    assert {row[0]: row[1:] for row in map(cells, rows)} == {
        name: [getattr(line, field) for line in PROMISES] for name, field in ROWS.items()
    }


def test_every_promise_is_in_the_documents() -> None:
    assert set(ROWS.values()) == set(Promise.__struct_fields__) - {"kind", "full", "linux"}
    assert [line.kind for line in PROMISES if line.linux] == list(BoundaryKind)


def test_each_kind_says_whether_it_can_be_had_and_why_not() -> None:
    assert [kind for kind in BoundaryKind if not why_not(kind)] == KINDS
    assert BoundaryKind.GUARDIAN in KINDS


@pytest.mark.skipif(not IS_ROOT, reason="as root, another user is tried too")
def test_a_kind_that_cannot_be_had_is_refused(folder: Path) -> None:
    rig = Rig(folder / "rig", user=NOBODY)
    try:
        with pytest.raises(AgentFailed, match="no cgroup boundary: there is no cgroup v2 hierarchy"):
            rig.start(BoundaryKind.CGROUP)
        assert list(rig.state_dir.iterdir()) == []
    finally:
        rig.close()


def test_the_zygote_loads_nothing_but_the_standard_library() -> None:
    """It is forked for every tree, and each fork costs what it has loaded."""
    script = (
        "import sys; sys.path.append(sys.argv[1]); import rota.execution.isolation.zygote\n"
        "print([name for name, module in sys.modules.items()"
        " if 'site-packages' in str(getattr(module, '__file__', ''))"
        " or name.split('.')[0] in ('asyncio', 'msgspec', 'structlog', 'subprocess')])"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(ROOT / "src")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
