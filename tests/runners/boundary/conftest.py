"""What the tests of the boundaries share."""

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rota.runners.boundary import BoundaryKind, Yard
from tests.runners.boundary.rig import KINDS, Rig


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that other users can reach."""
    folder = tmp_path_factory.mktemp("boundary")
    for path in (folder, *list(folder.parents)[:2]):
        path.chmod(0o755)
    return folder


@pytest.fixture
def rig(folder: Path) -> Iterator[Rig]:
    rig = Rig(folder / "rig")
    yield rig
    rig.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> BoundaryKind:
    found: BoundaryKind = request.param
    return found


@pytest.fixture
async def yard(kind: BoundaryKind, folder: Path) -> AsyncIterator[Yard]:
    """An open yard of each kind, whose deadline is far."""
    yard = await Yard.open(kind, state_dir=folder / "state", node="n1")
    yard.renew(time.clock_gettime(time.CLOCK_BOOTTIME) + 1000)
    yield yard
    await yard.close()
