"""The SDK says the same as YAML, and says at once what is wrong."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import rota
from rota.definitions.yaml import read_yaml
from rota.model.job import Definition, Task
from rota.model.trigger import Cron, Manual, Once
from rota.model.value import digest

TODAY = date(2026, 11, 15)


@pytest.fixture
def app() -> rota.App:
    return rota.App()


def only(app: rota.App) -> Definition:
    (definition,) = app.definitions(TODAY)
    return definition


def test_the_public_names_are_exactly_these() -> None:
    assert rota.__all__ == [
        *("App", "AsyncClient", "AsyncTaskFunction", "Client", "Context", "Handle", "InvalidInput", "MapHandle"),
        *("NotFound", "Refused", "RotaError", "RunView", "StaleToken", "Stopped", "TaskFailed", "TaskFunction"),
        *("Told", "__version__", "current", "fence"),
    ]
    assert all(hasattr(rota, name) for name in rota.__all__)
    internal = {"annotations", "TYPE_CHECKING", "import_module"}
    public = {
        name for name, value in vars(rota).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - internal <= set(rota.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        rota.nothing  # noqa: B018


def test_the_version_is_that_of_the_package() -> None:
    pyproject = Path(__file__).parents[3] / "pyproject.toml"
    assert f'version = "{rota.__version__}"' in pyproject.read_text()


def test_a_function_stays_as_it_is(app: rota.App) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task(every_s=5)
    async def triple(number: int) -> int:
        return 3 * number

    assert double(2) == 4
    assert asyncio.run(triple(2)) == 6
    assert list(inspect.signature(double).parameters) == ["number"]
    assert app.handlers == {"double": double.function, "triple": triple.function}
    assert [definition.name for definition in app.definitions(TODAY)] == ["double", "triple"]


def test_a_bare_task_runs_only_when_asked(app: rota.App) -> None:
    @app.task
    def by_hand() -> None: ...

    assert only(app).schedule.rule == Manual()
    assert only(app).tasks == (Task(name="main", runner="python", config={"handler": "by_hand"}),)


def test_the_sdk_and_yaml_say_the_same() -> None:
    app = rota.App(tenant="acme", project="reports")
    app.calendar(
        "plant", weekdays="mon-fri", closed=[date(2026, 12, 24), "2026-12-27..2026-12-31"], zone="Europe/Berlin"
    )

    @app.task(
        name="nightly-report",
        title="Nightly report",
        cron="0 3 * * *",
        zone="Europe/Berlin",
        start_at=datetime(2026, 12, 1, tzinfo=timezone(timedelta(hours=1))),
        end_at="2027-12-01T00:00:00Z",
        jitter_s=30,
        calendar="plant",
        misfire={"policy": "all", "grace_s": 60, "per_s": 10},
        overlap={"policy": "allow", "live_max": 3, "key": "db-${region}"},
        backlog_max=50,
        pause_after=3,
        params={"region": "eu"},
    )
    def report() -> None: ...

    text = """
        tenant: acme
        project: reports
        calendars:
          plant: {weekdays: mon-fri, closed: [2026-12-24, 2026-12-27..2026-12-31], zone: Europe/Berlin}
        jobs:
          nightly-report:
            title: Nightly report
            cron: "0 3 * * *"
            zone: Europe/Berlin
            start_at: 2026-12-01T00:00:00+01:00
            end_at: 2027-12-01T00:00:00Z
            jitter_s: 30
            calendar: plant
            misfire: {policy: all, grace_s: 60, per_s: 10}
            overlap: {policy: allow, live_max: 3, key: "db-${region}"}
            backlog_max: 50
            pause_after: 3
            params: {region: eu}
            shell: ["true"]
    """
    (written,) = read_yaml(text, file=None, today=TODAY)
    same_task = msgspec.structs.replace(written, tasks=only(app).tasks)
    assert same_task == only(app)
    assert digest(same_task) == digest(only(app))


def test_an_instant_may_be_a_datetime(app: rota.App) -> None:
    @app.task(once_at=datetime(2026, 12, 24, 18, tzinfo=timezone(timedelta(hours=1))))
    def once() -> None: ...

    assert only(app).schedule.rule == Once(once_at=datetime(2026, 12, 24, 17, tzinfo=UTC))


def test_countries_are_looked_up_when_the_day_is_known(app: rota.App) -> None:
    app.calendar("china", country="CN")

    @app.task(cron="0 3 * * *", zone="Asia/Shanghai", calendar="china")
    def report() -> None: ...

    calendar = only(app).schedule.calendar
    assert calendar is not None
    assert calendar.is_open(date(2026, 10, 10))
    assert not calendar.is_open(date(2026, 10, 1))
    assert calendar.zone == "Asia/Shanghai"


def test_an_error_names_the_task_and_the_field(app: rota.App) -> None:
    with pytest.raises(rota.InvalidInput, match=r"^hello\.cron: minute: 61 is not between 0 and 59$"):

        @app.task(cron="61 * * * *")
        def hello() -> None: ...

    assert app.definitions(TODAY) == ()


def test_a_name_can_be_used_once(app: rota.App) -> None:
    app.task(name="same")(print)
    with pytest.raises(rota.InvalidInput, match=r"^same\.name: there is a task of this name already, in <.*>$"):
        app.task(name="same")(print)
    with pytest.raises(rota.InvalidInput, match=r"^Same\.name: the name differs from same only in capital"):
        app.task(name="Same")(print)
    app.calendar("same", weekdays="all")
    with pytest.raises(rota.InvalidInput, match=r"^calendars\.same: there is a calendar same already$"):
        app.calendar("same", weekdays="all")


def test_a_name_that_was_refused_can_still_be_used(app: rota.App) -> None:
    with pytest.raises(rota.InvalidInput):
        app.task(name="Hello", every_s=-1)(print)
    app.task(name="hello", every_s=1)(print)
    assert only(app).name == "hello"


def test_what_is_no_plain_function_is_refused(app: rota.App) -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(rota.InvalidInput, match="generator"):
            app.task(function)
    with pytest.raises(rota.InvalidInput, match=r"^function: must be a function, not 5$"):
        app.task(5)  # type: ignore[call-overload]
    with pytest.raises(rota.InvalidInput, match="name must be"):
        app.task(lambda: None)


def test_an_app_has_at_most_one_listener_of_each_kind(app: rota.App) -> None:
    """S2.16, S2.17, A2.12: the first stays, the second is an error."""

    @app.on_start
    def started(told: object) -> None: ...

    @app.on_fail
    async def failed(told: object) -> None: ...

    @app.on_timeout
    def timed_out(told: object) -> None: ...

    assert app.listeners == {"on_start": started, "on_fail": failed, "on_timeout": timed_out}
    for register in (app.on_start, app.on_fail, app.on_timeout):
        with pytest.raises(rota.InvalidInput, match=r"^on_\w+: there is a listener already, in .*; an app has at most"):
            register(print)
    assert app.listeners == {"on_start": started, "on_fail": failed, "on_timeout": timed_out}
    assert rota.App().listeners == {}, "another app has its own"
    with pytest.raises(TypeError):
        app.listeners["on_start"] = print  # type: ignore[index]


def test_a_listener_must_be_a_plain_function(app: rota.App) -> None:
    def generator(told: object) -> Iterator[int]:
        yield 1

    with pytest.raises(rota.InvalidInput, match=r"^on_start: is a generator"):
        app.on_start(generator)
    with pytest.raises(rota.InvalidInput, match=r"^on_fail: must be a function, not 5$"):
        app.on_fail(5)  # type: ignore[type-var]
    assert app.listeners == {}


def test_a_node_can_call_handlers_and_listeners_by_the_names_it_advertises() -> None:
    app = rota.App(tenant="acme", project="reports")

    @app.task
    def nightly() -> None: ...

    @app.on_start
    def started(told: object) -> None: ...

    assert app.functions == {"acme/reports/nightly": nightly.function, "listener:acme/reports/on_start": started}


def test_timeout_is_another_word_for_timeout_s(app: rota.App) -> None:
    app.task(name="a", retries=3, timeout=5)(print)
    assert (only(app).tasks[0].timeout_s, only(app).tasks[0].retry.max) == (5.0, 3)
    with pytest.raises(rota.InvalidInput, match=r"^b\.timeout: timeout_s is given too, and means the same$"):
        app.task(name="b", timeout=5, timeout_s=5)(print)


@pytest.mark.parametrize("store", ["", "  ", "x" * 2001, "sqlite:///a\nb", "sqlite:///\x00", 5, b"sqlite:///x"])
def test_a_store_is_a_text_that_is_not_shown(store: object) -> None:
    with pytest.raises(rota.InvalidInput, match=r"^store: must be a URL of at most 2000 characters, like sqlite"):
        rota.App(store=store)  # type: ignore[arg-type]


def test_a_store_is_only_kept(app: rota.App) -> None:
    assert app.store is None
    assert rota.App(store="postgresql://u:p@db/rota").store == "postgresql://u:p@db/rota"


def test_later_changes_of_what_was_given_change_nothing(app: rota.App) -> None:
    params = {"region": "eu"}
    app.task(name="report", params=params)(print)
    params["region"] = "us"
    params["bad name"] = "x"
    assert only(app).params == {"region": "eu"}


def test_a_zone_of_a_cron_is_kept(app: rota.App) -> None:
    app.task(name="a", cron="0 3 * * *", zone="Europe/Berlin")(print)
    assert only(app).schedule.rule == Cron(expression="0 3 * * *", zone="Europe/Berlin")
