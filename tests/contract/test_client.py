"""The SDK's clients against a real store: from threads, from an event loop, after a fork, from an app."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rota
from rota.clock import SystemClock
from rota.control import Control
from rota.control.assigning import Answer
from rota.model.states import ItemState, RunState
from rota.ports import Store
from rota.wiring import open_store
from tests.contract.test_control import Executor
from tests.factories import MANUAL, a_definition


@pytest.fixture
async def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path}/rota.db"
    store = open_store(made, SystemClock(), actor="test")
    await store.migrate()
    await store.close()
    return made


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = open_store(url, SystemClock(), actor="test")
    yield opened
    await opened.close()


async def test_a_program_without_an_event_loop_assigns_and_finishes(url: str, store: Store) -> None:
    """S2.18 to S2.21: the whole interface for assignments."""
    with rota.Client(url) as client:
        client.create_tenant("acme", cap=3, rate="100/1")
        client.update_tenant("acme", weight=2)
        client.set_capacity(50)
        made = client.assign("acme", ["a", "b"], [{"x": 1}, None], retries=2, timeout_s=30)
        node = await Executor(store, 10).join()
        await node.begin_outside(await node.round())
        (quota,) = client.tenants()
        assert quota.limit is not None
        assert (quota.limit.cap, quota.limit.weight, quota.ready, quota.running) == (3, 2, 0, 2)
        assert client.extend(made.items[0].id, 60) is not None
        assert client.finish(made.items[0].id, result=1) is Answer.FINISHED
        assert client.finish(made.items[0].id, 5) is Answer.STALE
        assert client.finish("99999") is Answer.UNKNOWN
        assert "waits to be finished from outside" in client.explain(made.id).reasons[0].text
        assert client.cancel(made.id).done.ended == 1
        detail = client.run(made.id)
        assert [item.state for item in detail.items] == [ItemState.SUCCEEDED, ItemState.CANCELLED]
        assert client.remove_tenant("acme").quotas == ("default",)


async def test_tenants_are_created_once_and_updated_only_when_there(url: str) -> None:
    async with rota.AsyncClient(url) as client:
        await client.create_tenant("acme", cap=1)
        with pytest.raises(rota.Refused, match="has a quota default already"):
            await client.create_tenant("acme")
        with pytest.raises(rota.NotFound, match="has no quota mail"):
            await client.update_tenant("acme", quota="mail", cap=1)
        await client.create_tenant("acme", quota="mail")
        await client.update_tenant("acme", quota="mail", cap=4)
        assert [(it.quota, it.limit and it.limit.cap) for it in await client.tenants()] == [("default", 1), ("mail", 4)]


async def test_a_program_with_an_event_loop_triggers_and_cancels(url: str, store: Store) -> None:
    await Control(store, SystemClock()).jobs.apply([a_definition("nightly", rule=MANUAL)])
    async with rota.AsyncClient(url) as client:
        runs = await asyncio.gather(*(client.trigger("nightly", {"n": 1}, key="k") for _ in range(5)))
        assert len({run.id for run in runs}) == 1, "the same key starts one run"
        assert [run.state for run in (await client.cancel(runs[0].id)).runs] == [RunState.CANCELLED]


def test_many_threads_may_ask_at_once(url: str) -> None:
    with rota.Client(url) as client, ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: client.assign("default", [f"n-{n}"]), range(24)))
        assert len({it.id for it in made}) == 24
        assert client.tenants()[0].ready == 24


def test_a_client_works_on_after_it_was_closed_and_after_a_fork(url: str) -> None:
    client = rota.Client(url)
    client.set_capacity(5)
    client.close()
    client.close()
    client.set_capacity(6)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.set_capacity(7)
            client.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert client.set_capacity(8).cap == 8
    client.close()


def test_an_error_comes_to_whoever_asked(url: str) -> None:
    with rota.Client(url) as client:
        with pytest.raises(rota.InvalidInput, match="numbers: must be 1 to 10000"):
            client.assign("default", [])
        with pytest.raises(rota.Refused, match="acme"):
            client.assign("acme", ["a"])
        with pytest.raises(rota.NotFound, match="there is no job none"):
            client.trigger("none")


def test_the_store_is_that_of_the_configuration(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROTA_STORE", raising=False)
    with rota.Client() as client:
        client.create_tenant("from-the-folder")
    monkeypatch.chdir("/")
    monkeypatch.setenv("ROTA_STORE", url)
    with rota.Client() as client:
        assert [it.tenant for it in client.tenants()] == ["from-the-folder"]


def test_a_store_that_is_not_there_or_would_forget_is_refused(tmp_path: Path) -> None:
    with (
        rota.Client(f"sqlite:///{tmp_path}/none.db") as client,
        pytest.raises(rota.RotaError, match="there is no store at"),
    ):
        client.tenants()
    assert not (tmp_path / "none.db").exists()
    with rota.Client("memory:") as client, pytest.raises(rota.RotaError, match="is seen by no node"):
        client.tenants()


async def test_an_app_assigns_to_its_own_tasks_and_tells_its_listeners(url: str, store: Store) -> None:
    app = rota.App(project="mail", store=url)

    @app.task
    def send(number: str, info: object) -> None: ...

    @app.on_fail
    def failed(told: object) -> None: ...

    try:
        by_function = app.assign(["a"], [{"to": "x"}], handler=send)
        by_name = app.assign(["b"], handler="send", timeout_s=5)
        elsewhere = app.assign(["c"], handler="other/work")
        outside = app.assign(["d"])
        works = {run.id: run.work for run in await store.runs_of([1, 2, 3, 4])}
        found = {run_id: work and (work.handler, work.notify, work.timeout_s) for run_id, work in works.items()}
        assert found == {
            by_function.id: ("default/mail/send", ("on_fail",), 120),
            by_name.id: ("default/mail/send", ("on_fail",), 5),
            elsewhere.id: ("default/other/work", ("on_fail",), 120),
            outside.id: (None, ("on_fail",), 120),
        }
        assert app.finish(outside.items[0].id) is Answer.STALE
        assert app.extend(outside.items[0].id, 5) is None
        assert app.set_capacity(9).cap == 9
        with pytest.raises(rota.InvalidInput, match="handler: must be a task of this app"):
            app.assign(["e"], handler=print)
    finally:
        app.client.close()


def test_a_program_that_forgets_to_close_ends_quietly(url: str) -> None:
    program = f"import rota\napp = rota.App(store={url!r})\nprint(app.set_capacity(5).cap)\n"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")
