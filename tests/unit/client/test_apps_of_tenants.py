"""Handlers and listeners belong to an app of a tenant and project: nobody else's app is told of an item."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

import rota
import rota.testing
from rota.core.dispatch.board import can_run
from rota.definitions.folder import Watched
from rota.model.work import Lane

RED = """
import rota
app = rota.App(tenant="red")
@app.task
def work(): ...
@app.on_start
def begin(told): ...
"""
BLUE = RED.replace("red", "blue")


def _app(tenant: str, told: list[str], project: str = "default") -> rota.App:
    app = rota.App(tenant=tenant, project=project)

    @app.on_start
    def begin(about: rota.Told) -> None:
        told.append(f"{tenant}/{project} start {about.tenant} {about.number} {about.info}")

    @app.on_fail
    def failed(about: rota.Told) -> None:
        told.append(f"{tenant}/{project} fail {about.tenant} {about.number} {about.info}")

    @app.task
    def breaks(info: object) -> None:
        raise ValueError("broken")

    return app


async def _load(*files: Path) -> Watched:
    return Watched([str(it) for it in files], lambda: date(2026, 1, 1))


def test_the_listeners_of_one_tenant_are_not_told_of_the_items_of_another() -> None:
    told: list[str] = []
    red, blue = _app("red", told), _app("blue", told)
    with rota.testing.kit(red, blue) as kit:
        for tenant in ("red", "blue"):
            kit.client.create_tenant(tenant)
        blue.assign(["b1"], ["blue's payload"])
        red.assign(["r1"], ["red's payload"])
        kit.advance(1)
        assert sorted(told) == [
            "blue/default start blue b1 blue's payload",
            "red/default start red r1 red's payload",
        ]


def test_the_listeners_of_one_project_are_not_told_of_the_items_of_another() -> None:
    told: list[str] = []
    one, two = _app("default", told, "one"), _app("default", told, "two")
    with rota.testing.kit(one, two) as kit:
        two.assign(["n1"], ["secret"])
        two.assign(["n2"], ["secret"], handler="default/two/breaks")
        kit.advance(1)
        assert sorted(told) == [
            "default/two fail default n2 secret",
            "default/two start default n1 secret",
        ]


def test_an_app_is_told_of_what_it_assigned_to_another_tenant() -> None:
    told: list[str] = []
    app = _app("default", told)
    with rota.testing.kit(app) as kit:
        kit.client.create_tenant("acme")
        app.assign(["n1"], ["x"], tenant="acme")
        kit.advance(1)
        assert told == ["default/default start acme n1 x"]


def test_a_client_names_the_app_that_is_told_and_it_is_that_of_the_tenant_by_default() -> None:
    told: list[str] = []
    first, second = _app("red", told), _app("red", told, "other")
    with rota.testing.kit(first, second) as kit:
        kit.client.create_tenant("red")
        kit.client.assign("red", ["n1"])
        kit.client.assign("red", ["n2"], app="red/other")
        kit.advance(1)
        assert sorted(told) == ["red/default start red n1 None", "red/other start red n2 None"]
        with pytest.raises(rota.InvalidInput, match="app: must be"):
            kit.client.assign("red", ["n3"], app="a/b/c")


def test_two_apps_of_one_project_with_the_same_listener_are_refused_by_a_kit_which_names_both() -> None:
    told: list[str] = []
    first, second = _app("red", told), _app("red", told)
    with pytest.raises(rota.InvalidInput, match=r"on_start.*_tenants\.py:\d+ and .*_tenants\.py"):
        rota.testing.kit(first, second)


def test_items_that_release_0_1_kept_need_the_app_of_their_tenant() -> None:
    old = Lane(tenant="red", handler="listener:on_start")
    assert can_run(frozenset({"listener:red/default/on_start"}), old.needs)
    assert not can_run(frozenset({"listener:blue/default/on_start", "listener:on_start", "listener:*"}), old.needs)


async def test_a_node_has_the_listeners_of_all_its_apps_each_under_its_tenant_and_project(tmp_path: Path) -> None:
    (tmp_path / "red.py").write_text(RED)
    (tmp_path / "blue.py").write_text(BLUE)
    loaded = await (await _load(tmp_path)).load()
    assert not loaded.problems
    assert dict(loaded.homes)["listener:red/default/on_start"] == str(tmp_path / "red.py")
    assert dict(loaded.homes)["listener:blue/default/on_start"] == str(tmp_path / "blue.py")


async def test_two_apps_of_one_file_may_have_listeners_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "both.py"
    file.write_text(RED + BLUE.replace("app", "other").replace("import rota\n", ""))
    loaded = await (await _load(file)).load()
    assert loaded.listeners == ("listener:red/default/on_start", "listener:blue/default/on_start")


@pytest.mark.parametrize("apart", [True, False])
async def test_a_listener_that_two_files_have_is_an_error_that_names_both_and_neither_is_called(
    tmp_path: Path, apart: bool
) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text(RED)
    second.write_text(RED.replace("def work", "def other_work"))
    loaded = await (await _load(first, second) if apart else await _load(tmp_path)).load()
    (problem,) = loaded.problems
    assert problem.file == str(second)
    assert "red/default/on_start" in str(problem)
    assert str(first) in str(problem)
    assert loaded.listeners == ()
    assert [name for name, _ in loaded.homes] == ["red/default/work", "red/default/other_work"]


async def test_a_handler_that_two_files_have_is_called_in_neither(tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text(RED)
    second.write_text(RED.replace("@app.on_start", ""))
    loaded = await (await _load(first, second)).load()
    assert [str(it) for it in loaded.problems] == [f"{second}: jobs.work: is defined in {first} too"]
    assert loaded.handlers == ()


async def test_two_listeners_in_one_file_are_told_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "both.py"
    file.write_text(RED + RED.replace("app", "other").replace("work", "rest"))
    loaded = await (await _load(file)).load()
    (problem,) = loaded.problems
    assert "red/default/on_start" in str(problem)
    assert f"{file}:6 and {file}:13" in problem.reason
