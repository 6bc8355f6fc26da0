"""What is special to etcd: what others see there, servers that go and come, fail-over, rights, encryption."""

from __future__ import annotations

import asyncio
import base64
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from rota.clock import SystemClock
from rota.coordinators.etcd import coordinator, gateway
from rota.coordinators.etcd.coordinator import EtcdCoordinator
from rota.coordinators.etcd.wire import Range, Ranged
from rota.coordinators.recipes import LEADER, Election
from rota.errors import CoordinatorRefused, CoordinatorUnavailable, InvalidInput, SessionLost
from tests.conftest import installed
from tests.contract.coordinator.test_listen import Ear
from tests.servers.etcd import EtcdServer
from tests.servers.ports import free_port
from tests.servers.proxy import FaultProxy

pytestmark = pytest.mark.nightly  # what is special to one kind; the contract itself runs every time

NAMESPACE = "test-etcd"
PASSWORD = "p@ss:w/rd"
ROTA = "rota:p%40ss%3Aw%2Frd@"
BOUND_S = 6.0
"""What a verb may take at most, and some time for a busy machine."""

Make = Callable[..., EtcdCoordinator]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes clients that are closed after the test, each in a namespace of the test's own."""
    namespace = f"{NAMESPACE}/{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:

        def client(*ports: int, who: str = "", options: str = "", ttl_s: float = 2.0) -> EtcdCoordinator:
            where = ",".join(f"127.0.0.1:{port}" for port in ports)
            made = EtcdCoordinator(f"etcd://{who}{where}{options}", SystemClock(), namespace=namespace, ttl_s=ttl_s)
            stack.push_async_callback(made.close)
            return made

        yield client


@pytest.fixture
def own() -> Iterator[EtcdServer]:
    """A server that the test may kill."""
    with installed(EtcdServer) as server:
        yield server


@pytest.fixture
async def proxy(etcd_server: EtcdServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy("127.0.0.1", etcd_server.port) as proxy:
        yield proxy


async def ask(server: EtcdServer, path: str, token: str = "", **message: object) -> dict[str, Any]:
    """What etcd itself says, to a plain HTTP client."""
    url = f"http://127.0.0.1:{server.port}/v3/{path}"
    headers = {"Authorization": token} if token else {}
    async with aiohttp.ClientSession() as http, http.post(url, json=message, headers=headers) as response:
        answer = await response.json()
    assert response.status == 200, answer
    return dict(answer)


async def raw(server: EtcdServer, client: EtcdCoordinator, key: str) -> dict[str, Any]:
    found = await ask(server, "kv/range", key=base64.b64encode(f"{client._prefix}{key}".encode()).decode())
    return dict(found["kvs"][0])


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def listening(client: EtcdCoordinator, folder: str = "jobs") -> Ear:
    """An ear that has been woken once, for the watch was made."""
    ear = Ear()
    client.listen(folder, ear)
    await until(lambda: ear.count == 1)
    return ear


async def test_others_see_leases_and_plain_values(make: Make, etcd_server: EtcdServer) -> None:
    a = make(etcd_server.port)
    session = await a.join()
    await a.claim({"live/a": "address"})
    await a.put("all/a", "here since today")
    await Election(a, "host-a:7700").campaign()
    live, lasting, leader = [await raw(etcd_server, a, key) for key in ("live/a", "all/a", LEADER)]
    assert f"{int(live['lease']):016x}" == f"{int(leader['lease']):016x}" == session
    assert "lease" not in lasting
    values = [base64.b64decode(it["value"]).decode() for it in (live, lasting, leader)]
    assert values == ["address", "here since today", "host-a:7700"]


async def test_a_session_that_is_over_is_told_by_every_verb_that_needs_it(make: Make, etcd_server: EtcdServer) -> None:
    a, b = make(etcd_server.port), make(etcd_server.port)
    await b.join()
    verbs: list[Callable[[], Any]] = [
        lambda: a.claim({"jobs/free": ""}),
        lambda: a.claim({"jobs/taken": ""}),
        lambda: a.release({"jobs/mine": 1}),
        lambda: a.update("jobs/mine", 1, ""),
    ]
    await b.claim({"jobs/taken": ""})
    for verb in verbs:
        await ask(etcd_server, "lease/revoke", ID=str(int(await a.join(), 16)))
        with pytest.raises(SessionLost):
            await verb()
        assert a.session is None
        assert a.believed_until_s == 0


async def test_a_join_whose_answer_is_lost_leaves_no_session_behind(
    make: Make, etcd_server: EtcdServer, proxy: FaultProxy
) -> None:
    async def leases() -> set[str]:
        return {it["ID"] for it in (await ask(etcd_server, "lease/leases")).get("leases", ())}

    a = make(proxy.port, ttl_s=60)
    before = await leases()
    await proxy.delay(0.5)
    joining = asyncio.create_task(a.join())
    async with asyncio.timeout(10):
        while await leases() <= before:
            await asyncio.sleep(0.02)
    joining.cancel()
    await asyncio.wait([joining])
    assert joining.cancelled()
    assert a.session is None
    await proxy.pass_through()
    await a.leave()
    assert await leases() <= before


async def test_a_watch_goes_on_after_its_server_was_killed(make: Make, own: EtcdServer) -> None:
    a, b = make(own.port), make(own.port)
    ear = await listening(a)
    own.kill()
    with pytest.raises(CoordinatorUnavailable):
        await b.put("jobs/1", "")
    await asyncio.to_thread(own.start)
    await until(lambda: ear.count > 1)
    for number in range(3):
        before = ear.count
        assert await b.put(f"jobs/{number}", "")
        await until(lambda before=before: ear.count > before)  # type: ignore[misc]


async def test_a_watch_goes_on_after_what_it_missed_was_forgotten(
    make: Make, etcd_server: EtcdServer, proxy: FaultProxy
) -> None:
    a, b = make(proxy.port), make(etcd_server.port)
    ear = await listening(a)
    await proxy.refuse()
    proxy.abort()
    revision = max([await b.put("jobs/1", str(number)) or 0 for number in range(5)])
    await ask(etcd_server, "kv/compaction", revision=revision)
    assert ear.count == 1
    await proxy.pass_through()
    await until(lambda: ear.count > 1)
    await until(lambda: a._watcher._next > revision)
    before = ear.count
    await b.put("jobs/1", "")
    await until(lambda: ear.count > before)


async def test_a_watch_that_is_cut_off_silently_is_noticed(
    make: Make, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "SILENCE_S", 0.3)
    monkeypatch.setattr(gateway, "ANSWER_S", 0.5)
    ear = await listening(make(proxy.port))
    await proxy.black_hole()
    connections = proxy.accepted
    await until(lambda: proxy.accepted >= connections + 2)
    proxy.abort()
    await proxy.pass_through()
    await until(lambda: ear.count > 1)


async def test_a_watch_that_is_made_anew_in_silence_wakes_nobody(
    make: Make, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "SILENCE_S", 0.05)
    ear = await listening(make(proxy.port))
    connections = proxy.accepted
    await until(lambda: proxy.accepted >= connections + 5)
    assert ear.count == 1


async def test_a_change_between_two_watches_is_heard(
    make: Make, etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "SILENCE_S", 0.05)
    a, b = make(etcd_server.port), make(etcd_server.port)
    ear, other = await listening(a), await listening(b, "other")
    plainly = a._gateway.stream

    @asynccontextmanager
    async def late(*wish: Any) -> AsyncIterator[Any]:
        await b.put("jobs/1", "")
        async with plainly(*wish) as answers:
            yield answers

    monkeypatch.setattr(a._gateway, "stream", late)
    await until(lambda: ear.count > 3)
    assert other.count == 1


async def test_long_values_and_many_changes_pass_through_a_watch(make: Make, etcd_server: EtcdServer) -> None:
    a, b = make(etcd_server.port), make(etcd_server.port)
    ear = await listening(a)
    await b.join()
    won = await b.claim({f"jobs/{number}": "x" * 300_000 for number in range(12)})
    await b.put("jobs/last", "y" * 900_000)
    await until(lambda: a._watcher._next > max(won.values()) + 1)
    assert ear.count > 1


async def test_a_session_ends_though_its_server_was_down_in_between(make: Make, own: EtcdServer) -> None:
    a, b = make(own.port, ttl_s=1.0), make(own.port)
    await a.join()
    first = await a.claim({"jobs/1": "a"})
    own.kill()
    await until(lambda: time.monotonic() > a.believed_until_s)
    with pytest.raises(CoordinatorUnavailable):
        await a.renew()
    await asyncio.to_thread(own.start)
    await b.join()
    async with asyncio.timeout(10):
        while not (second := await b.claim({"jobs/1": "b"})):
            await asyncio.sleep(0.05)
            await b.renew()
    assert second["jobs/1"] > first["jobs/1"]
    with pytest.raises(SessionLost):
        await a.claim({"jobs/2": ""})
    assert not await a.renew()


async def test_a_session_lives_through_a_short_restart(make: Make, own: EtcdServer) -> None:
    a, b = make(own.port, ttl_s=10), make(own.port)
    await a.join()
    won = await a.claim({"jobs/1": ""})
    own.kill()
    await asyncio.to_thread(own.start)
    assert await a.renew()
    await b.join()
    assert await b.claim({"jobs/1": ""}) == {}
    assert await a.claim({"jobs/1": ""}) == won


async def test_a_server_that_says_nothing_is_unavailable_in_time(make: Make, proxy: FaultProxy) -> None:
    a = make(proxy.port)
    await a.join()
    await proxy.black_hole()
    began_s = time.monotonic()
    told = await asyncio.gather(
        *(a.renew(), a.claim({"jobs/1": ""}), a.release({"jobs/1": 1}), a.update("jobs/1", 1, "")),
        *(a.get("plan"), a.read("jobs"), a.keys("jobs"), a.put("plan", ""), a.put("plan", "", version=0)),
        *(a.delete("plan", 1), make(proxy.port).join()),
        return_exceptions=True,
    )
    assert {type(it) for it in told} == {CoordinatorUnavailable}
    assert time.monotonic() - began_s < BOUND_S
    with pytest.raises(CoordinatorUnavailable):
        await a.leave()
    assert a.session is None
    proxy.abort()
    await proxy.pass_through()
    await a.join()
    assert await a.claim({"jobs/1": ""})


async def test_a_verb_that_is_cancelled_breaks_nothing(make: Make, proxy: FaultProxy) -> None:
    a = make(proxy.port)
    await a.join()
    await proxy.black_hole()
    for verb in (a.claim({"jobs/1": ""}), a.read("jobs"), a.renew()):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await verb
    await proxy.pass_through()
    assert await a.renew()
    assert list(await a.claim({"jobs/1": ""})) == ["jobs/1"]


async def test_another_endpoint_is_asked_when_the_first_is_dead(make: Make, etcd_server: EtcdServer) -> None:
    a, b = make(free_port(), etcd_server.port), make(etcd_server.port)
    await a.join()
    ear = await listening(a)
    assert await a.claim({"jobs/1": ""})
    await until(lambda: ear.count > 1)
    assert await b.keys("jobs") == {"jobs/1"}


async def test_another_endpoint_renews_when_the_first_falls_silent(
    make: Make, etcd_server: EtcdServer, proxy: FaultProxy
) -> None:
    a = make(proxy.port, etcd_server.port, ttl_s=4.0)
    await a.join()
    believed_s = a.believed_until_s
    await proxy.black_hole()
    assert await a.renew()
    assert time.monotonic() < believed_s
    assert a.believed_until_s > believed_s
    assert await a.put("plan", "1", version=0)


async def test_large_folders_are_read_in_pages_of_one_moment(
    make: Make, etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "PAGE", 10)
    a = make(etcd_server.port)
    await a.join()
    wanted = {f"jobs/{number}": str(number) for number in range(35)}
    await a.claim(wanted)
    plainly, asked = a._reader._ask, 0

    async def disturbed(wish: Range) -> Ranged:
        """After the first page, the revision that it has shown is forgotten."""
        nonlocal asked
        found = await plainly(wish)
        asked += 1
        if asked == 1:
            await ask(etcd_server, "kv/compaction", revision=await a.put("other", "x"))
        return found

    monkeypatch.setattr(a._reader, "_ask", disturbed)
    assert {it.key: it.value for it in await a.read("jobs")} == wanted
    assert asked == 1 + 4
    assert await a.keys("jobs") == wanted.keys()


@pytest.mark.parametrize(
    "url",
    [
        "etcd://",
        "etcd://host:port",
        "etcd://host:0",
        "etcd://host:99999",
        "etcd://a:1,,b:2",
        "etcd://[::1",
        "etcd://a:1/path",
        "etcd://user@a:1",
        "etcd://user:secret@a:1?timeout=3",
        "etcd://user:sec?ret@a:1",
        "etcd://a:1?tls=perhaps",
        "etcd://a:1?tls=true&tls=false",
        "etcd://a:1?ca=",
        "etcd://a:1?tls=false&ca=/etc/hosts",
        "etcd://a:1?cert=/etc/hosts",
        "etcd://a:1?ca=/nowhere",
        "etcd://a:1?ca=/etc/hosts",
    ],
)
async def test_a_wrong_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^coordinator.url: ") as refused:
        EtcdCoordinator(url, SystemClock(), namespace=NAMESPACE, ttl_s=2)
    assert "sec" not in str(refused.value)


async def test_without_aiohttp_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "rota.coordinators.etcd.gateway")
    with pytest.raises(CoordinatorRefused, match=r"pip install 'rota\[etcd\]'"):
        EtcdCoordinator("etcd://a:1", SystemClock(), namespace=NAMESPACE, ttl_s=2)


async def test_a_server_without_the_gateway_is_refused(make: Make) -> None:
    installed(EtcdServer)
    with EtcdServer("--enable-grpc-gateway=false") as server, pytest.raises(CoordinatorRefused, match="gateway"):
        await make(server.port).join()


async def test_a_user_has_the_rights_that_it_was_given(make: Make, own: EtcdServer) -> None:
    await require_users(own)
    a = make(own.port, who=ROTA)
    ear = await listening(a)
    await a.join()
    assert await a.claim({"jobs/1": ""})
    await until(lambda: ear.count > 1)
    await a.leave()
    for stranger in ("", "rota:wrong@", "guest:guest@"):
        with pytest.raises(CoordinatorRefused, match="etcd says"):
            await make(own.port, who=stranger).put("plan", "")


async def test_a_user_whose_token_is_forgotten_gets_another(make: Make, own: EtcdServer) -> None:
    await require_users(own)
    speaking, hearing = make(own.port, who=ROTA, ttl_s=20), make(own.port, who=ROTA)
    await speaking.join()
    ear = await listening(hearing)
    await speaking.put("plan", "")  # tokens that are older than the last write are not found in the log
    await asyncio.to_thread(own.restart)
    assert await speaking.renew()
    await until(lambda: ear.count > 1)
    before = ear.count
    assert await speaking.claim({"jobs/1": ""})
    await until(lambda: ear.count > before)


async def require_users(server: EtcdServer) -> None:
    """Let only `rota` into the namespace of the tests, and `guest` nowhere."""
    start, end = (base64.b64encode(it.encode()).decode() for it in (f"{NAMESPACE}/", f"{NAMESPACE}0"))
    await ask(server, "auth/role/add", name="cluster")
    right = {"permType": "READWRITE", "key": start, "range_end": end}
    await ask(server, "auth/role/grant", name="cluster", perm=right)
    for name, password, role in (("root", "root", "root"), ("rota", PASSWORD, "cluster"), ("guest", "guest", "")):
        await ask(server, "auth/user/add", name=name, password=password)
        if role:
            await ask(server, "auth/user/grant", user=name, role=role)
    await ask(server, "auth/enable")


async def test_a_user_is_no_harm_where_nobody_is_asked(make: Make, etcd_server: EtcdServer) -> None:
    assert await make(etcd_server.port, who="rota:x@").put("plan", "")


async def test_an_encrypted_server_is_trusted_by_its_certificate_only(make: Make) -> None:
    installed(EtcdServer)
    with EtcdServer(tls=True) as server:
        cert, key = server.certificate, server.certificate.with_name("key.pem")
        a = make(server.port, options=f"?ca={cert}&cert={cert}&key={key}")
        await a.join()
        ear = await listening(a)
        await a.claim({"jobs/1": ""})
        await until(lambda: ear.count > 1)
        with pytest.raises(CoordinatorRefused, match="not trusted"):
            await make(server.port, options="?tls=true").put("plan", "")
        with pytest.raises(CoordinatorUnavailable):
            await make(server.port).put("plan", "")
