"""The corpus of bad inputs: one table, sent through every way in."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from tests.bad_input.entry import DROP, Entry, field_entries, inner_entries
from tests.bad_input.execution import EXECUTION

NUL = "\x00"
HALF = "\ud800"
BOM = "\ufeff"


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


CRON = field_entries(
    "cron",
    [
        ("", "empty"),
        ("   ", "empty"),
        ("* * * *", "fields"),
        ("* * * * * * * *", "fields"),
        ("60 * * * *", "59"),
        ("* 24 * * *", "23"),
        ("* * 0 * *", "1"),
        ("* * 32 * *", "31"),
        ("* * * 13 *", "12"),
        ("* * * 0 *", "1"),
        ("* * * * 8", "week"),
        ("-1 * * * *", "minute"),
        ("*/0 * * * *", "minute"),
        ("*/-5 * * * *", "minute"),
        ("*/x * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("0-59/-1 * * * *", "minute"),
        ("1, * * * *", "minute"),
        (",1 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("1- * * * *", "minute"),
        ("1.5 * * * *", "minute"),
        ("+1 * * * *", "minute"),
        ("0x10 * * * *", "minute"),
        ("1_0 * * * *", "minute"),
        ("@reboot", "@hourly"),
        ("@every 5s", "@hourly"),
        ("L * * * *", "minute"),
        ("W * * * *", "minute"),
        ("? * * * *", "minute"),
        ("* L * * *", "hour"),
        ("* * * L *", "month"),
        ("* * * * 5#6", "week"),
        ("* * * * 5#0", "week"),
        ("* * 32W * *", "day"),
        ("* * * JANUARY *", "month"),
        ("* * * * XYZ", "week"),
        ("0 0 30 2 *", "never"),
        ("0 0 31 4,6,9,11 *", "never"),
        ("0 0 0 1 1 * 1960", "1970"),
        ("0 0 0 29 2 * 2027", "never"),
        ("9" * 5000 + " * * * *", "1000"),
        (",".join(["1"] * 10_000) + " * * * *", "1000"),
        (f"0 3{NUL} * * *", "NUL"),
        ("０ ３ * * *", "ASCII"),
        ("٣ * * * *", "ASCII"),
        ("0\u00a03 * * *", "ASCII"),
        ("0 3 * * *\n0 4 * * *", "ASCII"),
        ("0 3 * * * ; rm -rf /", "fields"),
        ("{{ 7*7 }} * * * *", "understood"),
        (f"{HALF} * * * *", "half"),
        (5, "text"),
        (True, "text"),
        (None, "empty"),
        (["0 3 * * *"], "text"),
        ({"minute": 5}, "text"),
    ],
)

ZONE = field_entries(
    "zone",
    [
        ("Mars/Olympus", "zone"),
        ("../../etc/passwd", "zone"),
        ("/usr/share/zoneinfo/UTC", "zone"),
        ("", "empty"),
        ("UTC\n", "zone"),
        (f"UTC{NUL}", "NUL"),
        ("x" * 5000, "100"),
        ("Asia", "zone"),
        ("localtime", "zone"),
        ("posixrules", "zone"),
        ("Factory", "zone"),
        ("EST5EDT4", "zone"),
        ("europe/berlin", "zone"),
        ("UTC+2", "zone"),
        ("+02:00", "zone"),
        (2, "text"),
        (False, "text"),
        (None, "empty"),
    ],
)
ZONE += [
    Entry("zone-with-every", "zone", "every_s", {"cron": DROP, "every_s": 5, "zone": "UTC"}),
    Entry("zone-with-delay", "zone", "delay_s", {"cron": DROP, "delay_s": 5, "zone": "UTC"}),
    Entry("zone-with-once", "zone", "once_at", {"cron": DROP, "once_at": "2026-12-24T18:00:00Z", "zone": "UTC"}),
    Entry("zone-without-trigger", "zone", "none", {"cron": DROP, "zone": "UTC"}),
]

_BAD_INSTANTS: list[tuple[Any, str]] = [
    ("2026-12-24T18:00:00", "offset"),
    ("2026-12-24", "time of day"),
    ("2026-12-24T18:00+01:00", "instant"),
    ("0001-01-01T00:00:00Z", "1970"),
    ("0001-01-01T00:00:00+05:00", "outside"),
    ("9999-12-31T23:59:59Z", "2200"),
    ("9999-12-31T23:59:59-05:00", "outside"),
    ("10000-01-01T00:00:00Z", "instant"),
    ("2026-12-31T23:59:60Z", "leap second"),
    ("2026-02-30T00:00:00Z", "no such day"),
    ("2026-13-01T00:00:00Z", "no such day"),
    ("2026-12-24T24:00:00Z", "no such day"),
    ("2026-12-24T18:00:00+24:00", "offset"),
    ("2026-12-24T18:00:00-24:00", "offset"),
    ("2026-12-24T18:00:00+01:60", "offset"),
    ("2026-12-24T18:00:00.1234567Z", "6 digits"),
    ("2026-12-24T18:00:00 Europe/Berlin", "instant"),
    ("٢٠٢٦-12-24T18:00:00Z", "instant"),
    ("2026-W52-4T18:00:00Z", "instant"),
    ("tomorrow", "instant"),
    ("", "instant"),
    (1e308, "instant"),
    (1798131600, "instant"),
    (True, "instant"),
    (None, "empty"),
    ({"at": 1}, "instant"),
]
TIMES = [
    *field_entries("once_at", _BAD_INSTANTS, beside={"cron": DROP}),
    *field_entries("start_at", _BAD_INSTANTS[:12]),
    *field_entries("end_at", _BAD_INSTANTS[12:]),
    Entry(
        "start-after-end", "end_at", "before", {"start_at": "2027-01-01T00:00:00Z", "end_at": "2026-01-01T00:00:00Z"}
    ),
    Entry("nothing-between", "cron", "never", {"start_at": "2027-01-01T04:00:00Z", "end_at": "2027-01-01T05:00:00Z"}),
    Entry("datetime-without-zone", "once_at", "offset", {"cron": DROP, "once_at": datetime(2026, 12, 24)}),  # noqa: DTZ001
    Entry(
        "datetime-too-far",
        "once_at",
        "outside",
        {"cron": DROP, "once_at": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))},
        sdk_only=True,
    ),
    Entry("datetime-too-late", "start_at", "2200", {"start_at": datetime(2300, 1, 1, tzinfo=UTC)}),
]

_BAD_SECONDS: list[tuple[Any, str]] = [
    (-1, "seconds"),
    (0, "seconds"),
    (0.01, "seconds"),
    (1e9, "seconds"),
    (2**63, "seconds"),
    (10**30, "seconds"),
    (1e308, "seconds"),
    ("3", "seconds"),
    ("1_000", "seconds"),
    (True, "seconds"),
    (None, "empty"),
    ([5], "seconds"),
    (float("nan"), "number"),
    (float("inf"), "number"),
    (float("-inf"), "number"),
]
PERIODS = [
    *field_entries("every_s", _BAD_SECONDS, beside={"cron": DROP}),
    *field_entries("delay_s", _BAD_SECONDS, beside={"cron": DROP}),
    *field_entries(
        "jitter_s", [(-1, "seconds"), (86_401, "seconds"), ("3", "seconds"), (False, "seconds"), (None, "empty")]
    ),
]

_WINDOW = {"opens": "09:00", "closes": "17:30", "every_s": 900}
WINDOW = inner_entries(
    "window",
    [
        ({}, "opens", "missing"),
        ({**_WINDOW, "opens": "9:00"}, "opens", "time of day"),
        ({**_WINDOW, "opens": "24:00"}, "opens", "time of day"),
        ({**_WINDOW, "opens": "09:60"}, "opens", "time of day"),
        ({**_WINDOW, "opens": "09"}, "opens", "time of day"),
        ({**_WINDOW, "opens": "09:00Z"}, "opens", "time of day"),
        ({**_WINDOW, "opens": "０９:00"}, "opens", "time of day"),
        ({**_WINDOW, "opens": 9}, "opens", "text"),
        ({**_WINDOW, "closes": ""}, "closes", "empty"),
        ({**_WINDOW, "closes": "later"}, "closes", "time of day"),
        ({**_WINDOW, "every_s": 0}, "every_s", "seconds"),
        ({**_WINDOW, "every_s": "900"}, "every_s", "seconds"),
        ({**_WINDOW, "every_s": True}, "every_s", "seconds"),
        ({**_WINDOW, "weekdays": "xyz"}, "weekdays", "weekday"),
        ({**_WINDOW, "weekdays": "fri-mon"}, "weekdays", "backwards"),
        ({**_WINDOW, "weekdays": []}, "weekdays", "weekdays"),
        ({**_WINDOW, "weekdays": [1, 2]}, "weekdays", "weekday"),
        ({**_WINDOW, "weekdays": "mon,"}, "weekdays", "weekday"),
        ({**_WINDOW, "weekdays": None}, "weekdays", "empty"),
        ({**_WINDOW, "colses": "17:30"}, "colses", "closes"),
        ({**_WINDOW, "zone": "UTC"}, "zone", "known"),
        ("09:00-17:30", "", "mapping"),
    ],
    beside={"cron": DROP},
)

ENDLESS = field_entries(
    "endless",
    [
        ("", "empty"),
        ("x", "pause"),
        ("-1", "pause"),
        ("0", "seconds"),
        ("1e400", "pause"),
        ("60;", "pause"),
        ("60; 30", "more than one"),
        ("60; 2@", "fields"),
        ("60; 2@61 *", "minute"),
        ("60; 2@* 25", "hour"),
        ("60; 2@* * * * * *", "at most day"),
        ("99999999", "seconds"),
        (";".join(["5@* 1"] * 60), "50"),
        ("６０", "ASCII"),
        (f"60{NUL}", "NUL"),
        ("60;" * 5000, "1000"),
        (60, "text"),
        (None, "empty"),
        ("2@0 0 30 2", "never"),
    ],
    beside={"cron": DROP},
)
ENDLESS += [Entry("endless-with-jitter", "jitter_s", "endless", {"cron": DROP, "endless": "60", "jitter_s": 3})]

TRIGGER = [
    Entry("two-triggers", "every_s", "only one", {"every_s": 5}),
    Entry("three-triggers", "delay_s", "only one", {"every_s": 5, "delay_s": 5}),
    Entry("start-without-trigger", "start_at", "trigger", {"cron": DROP, "start_at": "2026-12-24T18:00:00Z"}),
    Entry("end-without-trigger", "end_at", "trigger", {"cron": DROP, "end_at": "2026-12-24T18:00:00Z"}),
    Entry("jitter-without-trigger", "jitter_s", "trigger", {"cron": DROP, "jitter_s": 5}),
    Entry("calendar-without-trigger", "calendar", "trigger", {"cron": DROP, "calendar": "weekdays"}),
]

MISFIRE = inner_entries(
    "misfire",
    [
        ("never", "policy", "skip, once, all"),
        ("Once", "policy", "once"),
        ("", "policy", "one of"),
        ({"policy": None}, "policy", "empty"),
        ({"policy": 1}, "policy", "one of"),
        ({"policy": "all", "count_max": 0}, "count_max", "1 to 1000"),
        ({"policy": "all", "count_max": 1001}, "count_max", "1 to 1000"),
        ({"policy": "all", "count_max": 1.5}, "count_max", "whole"),
        ({"policy": "all", "count_max": "3"}, "count_max", "'3'"),
        ({"policy": "all", "count_max": True}, "count_max", "true"),
        ({"policy": "all", "count_max": 2**63}, "count_max", "whole"),
        ({"policy": "all", "per_s": 0}, "per_s", "0.01"),
        ({"policy": "all", "per_s": 1001}, "per_s", "1000"),
        ({"policy": "all", "per_s": float("nan")}, "per_s", "number"),
        ({"policy": "all", "per_s": "fast"}, "per_s", "number"),
        ({"policy": "skip", "per_s": 5}, "per_s", "only with"),
        ({"policy": "once", "count_max": 5}, "count_max", "only with"),
        ({"count_max": 5}, "count_max", "only with"),
        ({"grace_s": -1}, "grace_s", "from 0"),
        ({"grace_s": 31 * 86400 + 1}, "grace_s", "2678400"),
        ({"grace_s": "60"}, "grace_s", "number"),
        ({"grace": 60}, "grace", "grace_s"),
        (["skip"], "", "mapping"),
        (True, "", "mapping"),
    ],
)

OVERLAP = inner_entries(
    "overlap",
    [
        ("deny", "policy", "forbid, allow, queue, replace"),
        ("allow", "live_max", "missing"),
        ({"policy": "allow", "live_max": 0}, "live_max", "1 to 10000"),
        ({"policy": "allow", "live_max": 10_001}, "live_max", "1 to 10000"),
        ({"policy": "allow", "live_max": -1}, "live_max", "1 to 10000"),
        ({"policy": "allow", "live_max": 10**9}, "live_max", "1 to 10000"),
        ({"policy": "allow", "live_max": 1.0}, "live_max", "whole"),
        ({"policy": "allow", "live_max": "3"}, "live_max", "'3'"),
        ({"policy": "allow", "live_max": True}, "live_max", "true"),
        ({"policy": "forbid", "live_max": 3}, "live_max", "only with"),
        ({"policy": "queue", "queue_max": 0}, "queue_max", "1 to 10000"),
        ({"policy": "queue", "queue_max": float("inf")}, "queue_max", "number"),
        ({"policy": "replace", "queue_max": 3}, "queue_max", "only with"),
        ({"key": ""}, "key", "empty"),
        ({"key": "x" * 201}, "key", "200"),
        ({"key": "a\nb"}, "key", "printable"),
        ({"key": "a\u202eb"}, "key", "printable"),
        ({"key": f"a{NUL}"}, "key", "NUL"),
        ({"key": "${region}"}, "key", "no parameter"),
        ({"key": "${}"}, "key", "parameter"),
        ({"key": "$region"}, "key", "$"),
        ({"key": "cost $5"}, "key", "$"),
        ({"key": "a$"}, "key", "$"),
        ({"key": "${jndi:ldap://x}"}, "key", "no parameter"),
        ({"key": "${region"}, "key", "$"),
        ({"key": 7}, "key", "text"),
        ({"keys": "x"}, "keys", "did you mean key"),
        (3, "", "mapping"),
    ],
)
OVERLAP += [
    Entry("key-of-a-list", "overlap.key", "must be text", {"overlap": {"key": "${a}"}, "params": {"a": [1]}}),
    Entry("key-of-nothing", "overlap.key", "must be text", {"overlap": {"key": "${a}"}, "params": {"a": None}}),
    Entry("key-too-long-when-filled", "overlap.key", "200", {"overlap": {"key": "${a}"}, "params": {"a": "x" * 201}}),
    Entry(
        "key-unprintable-when-filled", "overlap.key", "printable", {"overlap": {"key": "${a}"}, "params": {"a": "\n"}}
    ),
]

NUMBERS = field_entries(
    "backlog_max",
    [
        (-1, "0 to 1000"),
        (1001, "0 to 1000"),
        (1.5, "whole"),
        ("3", "'3'"),
        (True, "true"),
        (2**63, "0 to 1000"),
        (float("nan"), "number"),
        (float("inf"), "number"),
        (None, "empty"),
    ],
)

NUMBERS += field_entries(
    "pause_after",
    [(0, "1 to 1000"), (1001, "1 to 1000"), (1.5, "whole"), ("3", "'3'"), (True, "true"), (None, "empty")],
)

TITLE = field_entries(
    "title",
    [
        ("x" * 201, "200"),
        ("two\nlines", "line"),
        (f"nul{NUL}", "printable"),
        ("\x1b[31mred", "printable"),
        ("abc\u202edef", "printable"),
        (HALF, "printable"),
        (5, "text"),
        (None, "empty"),
    ],
)

PARAMS = field_entries(
    "params",
    [
        ([1], "mapping"),
        ("a=b", "mapping"),
        (None, "empty"),
        ({"a-b": 1}, "name"),
        ({"1a": 1}, "name"),
        ({"": 1}, "name"),
        ({"x" * 65: 1}, "name"),
        ({"naïve": 1}, "name"),
        ({"a=b": 1}, "name"),
        ({"__proto__": 1}, "name"),
        ({f"a{NUL}": 1}, "name"),
        ({"a": "x" * 70_000}, "65536"),
        ({"a": list(range(20_000))}, "65536"),
        ({"a": _deep(25)}, "20 levels"),
        ({"a": f"x{NUL}y"}, "NUL"),
        ({"a": HALF}, "half"),
        ({"a": {"b": [f"{NUL}"]}}, "NUL"),
        ({"a": 2**63}, "64 bits"),
        ({"a": -(2**70)}, "64 bits"),
        ({"a": float("nan")}, "number"),
        ({"a": [float("inf")]}, "number"),
    ],
)
_LOOP: list[Any] = []
_LOOP.append(_LOOP)
_BOMB: Any = "lol"
for _ in range(15):
    _BOMB = [_BOMB] * 9
PARAMS += field_entries(
    "params",
    [
        ({"a": {1, 2}}, "JSON"),
        ({"a": b"x"}, "JSON"),
        ({"a": (1,)}, "JSON"),
        ({"a": _LOOP}, "20 levels"),
        ({"a": _BOMB}, "parts"),
        ({1: 2}, "name"),
        ({"a": {1: 2}}, "key"),
        ({"a": 10**5000}, "64 bits"),
        ({"a": object()}, "JSON"),
    ],
    sdk_only=True,
    group="params-objects",
)

_BAD_NAMES = [
    "",
    " ",
    ".",
    "..",
    ".hidden",
    "-rf",
    "_x",
    "a/b",
    "a\\b",
    "../../etc/passwd",
    "a b",
    "a:b",
    "a\nb",
    f"a{NUL}b",
    "x" * 101,
    "x" * 256,
    "ü",
    "u\u0308",
    "\u212a",
    "a\u200db",
    "👩\u200d👩\u200d👧",
    "abc\u202edef",
    "a\u200bb",
    BOM + "a",
    "jöb",
    "名前",
    "a;b",
    "' OR 1=1 --",
    "<script>",
    "{{ 7*7 }}",
    "${x}",
    "%(x)s",
    "=1+1",
    "@x",
    "a\tb",
    "a%2fb",
]
NAMES = [
    *(Entry(f"name-{number}", "name", "name must be", name=name) for number, name in enumerate(_BAD_NAMES)),
    Entry("name-half", "name", "name must be", name=HALF),
    *(
        Entry(f"{key}-{number}", key, "name must be", top={key: value}, whole=True)
        for key in ("tenant", "project")
        for number, value in enumerate(["", "..", "a/b", "ü", "x" * 101, 5, True, ["a"]])
    ),
]

UNKNOWN = [
    Entry("unknown-key", "crom", "cron", {"crom": "x"}),
    Entry("unknown-key-far", "frobnicate", "known", {"frobnicate": 1}),
    Entry("unknown-case", "Cron", "cron", {"Cron": "x"}),
    Entry("unknown-retry", "retry", "retries", {"retry": 3}),
    Entry("unknown-timeout", "timeout", "did you mean timeout_s", {"timeout": 3}, yaml_only=True),
    Entry("unknown-backoff", "backoff", "goes inside retries", {"backoff": 3}),
    Entry("unknown-policy", "policy", "goes inside misfire or overlap", {"policy": "skip"}),
    Entry("unknown-proto", "__proto__", "known", {"__proto__": {}}),
    Entry("unknown-class", "__class__", "known", {"__class__": {}}),
    Entry("unknown-model-config", "model_config", "known", {"model_config": {}}),
    Entry("unknown-newline", "'a\\nb'", "known", {"a\nb": 1}),
    Entry("unknown-top", "job", "jobs", top={"job": {}}, whole=True, yaml_only=True),
]

SHELL = field_entries(
    "shell",
    [
        ("ls -l", "shell text"),
        ('"; touch pwned #', "shell text"),
        ([], "1 to 1000"),
        (["x"] * 1001, "1 to 1000"),
        ([""], "empty"),
        (["  "], "empty"),
        (["ls", f"a{NUL}b"], "NUL"),
        (["ls", HALF], "half"),
        (["ls", 5], "argument 1"),
        (["ls", True], "argument 1"),
        (["ls", None], "argument 1"),
        (["ls", ["x"]], "argument 1"),
        (["ls", "x" * 200_000], "bytes"),
        ({"argv": ["ls"]}, "list"),
        (None, "empty"),
    ],
    yaml_only=True,
)

PYTHON = field_entries(
    "python",
    [
        ("", "function"),
        ("module", "function"),
        ("module:", "function"),
        (":function", "function"),
        ("a.b.c", "function"),
        ("a:b:c", "function"),
        ("a..b:c", "function"),
        ("a/b:c", "function"),
        ("1a:c", "function"),
        ("mödul:f", "function"),
        ("os:system('x')", "function"),
        ("__import__('os').system:x", "function"),
        ("a:b\n", "function"),
        ("a" * 300 + ":b", "function"),
        (["a:b"], "function"),
        (None, "empty"),
    ],
    yaml_only=True,
)

_BAD_URLS = [
    ("", "1 to 2048"),
    ("example.com", "http"),
    ("ftp://x/", "http"),
    ("file:///etc/passwd", "http"),
    ("gopher://x/", "http"),
    ("javascript:alert(1)", "http"),
    ("http:/x", "http"),
    ("http://", "host"),
    ("http:///x", "host"),
    ("http://:80/", "host"),
    ("http://x:99999/", "port"),
    ("http://x:0/", "host"),
    ("http://x:y/", "port"),
    ("http://u:p@x/", "user"),
    ("http://a@127.0.0.1#@ok/", "user"),
    ("http://x/ y", "blanks"),
    ("http://x/\r\nHost: y", "blanks"),
    (f"http://x/{NUL}", "NUL"),
    ("http://０１２７.0.0.1/", "ASCII"),
    ("http://münchen.example/", "ASCII"),
    ("http://x\\@y/", "backslashes"),
    ("http://[::1/", "host"),
    ("http://[x]/", "host"),
    ("http://x/#frag", "fragment"),
    ("http://" + "x" * 3000, "2048"),
    ("http://-x/", "host"),
    ("http://a%00b/", "host"),
    (5, "URL"),
    (None, "empty"),
]
_URL = {"url": "https://example.com/"}
HTTP = inner_entries("http", [({"url": url}, "url", word) for url, word in _BAD_URLS], yaml_only=True, group="url")
HTTP += inner_entries(
    "http",
    [
        ({"method": "GET"}, "url", "missing"),
        ({**_URL, "method": "get"}, "method", "GET"),
        ({**_URL, "method": "TRACE"}, "method", "one of"),
        ({**_URL, "method": "GET /x HTTP/1.1\r\n"}, "method", "one of"),
        ({**_URL, "headers": {"A": "x\r\nB: y"}}, "headers", "line"),
        ({**_URL, "headers": {"A": f"{NUL}"}}, "headers", "NUL"),
        ({**_URL, "headers": {"A\r\nB": "x"}}, "headers", "name"),
        ({**_URL, "headers": {"A=B:": "x"}}, "headers", "name"),
        ({**_URL, "headers": {"": "x"}}, "headers", "name"),
        ({**_URL, "headers": {"Ä": "x"}}, "headers", "name"),
        ({**_URL, "headers": {"A": 5}}, "headers", "text"),
        ({**_URL, "headers": {"A": "x", "a": "y"}}, "headers", "twice"),
        ({**_URL, "headers": {"Host": "internal"}}, "headers", "reserved"),
        ({**_URL, "headers": {"content-length": "5"}}, "headers", "reserved"),
        ({**_URL, "headers": {"Transfer-Encoding": "chunked"}}, "headers", "reserved"),
        ({**_URL, "headers": {"A": "x" * 9000}}, "headers", "8192"),
        ({**_URL, "headers": {f"A{number}": "x" for number in range(101)}}, "headers", "100"),
        ({**_URL, "headers": ["A: x"]}, "headers", "mapping"),
        ({**_URL, "body": {"a": 1}}, "body", "GET"),
        ({**_URL, "method": "POST", "body": "x" * 70_000}, "body", "65536"),
        ({**_URL, "method": "POST", "body": _deep(25)}, "body", "20 levels"),
        ({**_URL, "method": "POST", "body": f"{NUL}"}, "body", "NUL"),
        ({**_URL, "timeout": 5}, "timeout", "known"),
        ("https://example.com/", "", "mapping"),
    ],
    yaml_only=True,
)
RUNNERS = [
    Entry("no-runner", "jobs.job", "to run", text="jobs: {job: {cron: '0 3 * * *'}}\n", whole=True),
    Entry("two-runners", "python", "only one", {"shell": ["ls"], "python": "a:b"}, yaml_only=True),
    Entry("runner-in-sdk", "shell", "function itself", {"shell": ["ls"]}, sdk_only=True),
]


def _calendar(fields: Any, key: str, word: str, number: int) -> Entry:
    field = f"calendars.own.{key}" if key else "calendars.own"
    return Entry(f"calendar-{key or 'whole'}-{number}", field, word, calendars={"own": fields}, whole=True)


CALENDARS = [
    _calendar(fields, key, word, number)
    for number, (fields, key, word) in enumerate(
        [
            ({}, "", "says nothing"),
            ({"country": "XX"}, "country", "code"),
            ({"country": "China"}, "country", "CN"),
            ({"country": "cn"}, "country", "CN"),
            ({"country": ""}, "country", "empty"),
            ({"country": 86}, "country", "text"),
            ({"country": "../CN"}, "country", "code"),
            ({"weekdays": "mon-xyz"}, "weekdays", "weekday"),
            ({"weekdays": "weekend"}, "weekdays", "weekday"),
            ({"weekdays": 5}, "weekdays", "weekdays"),
            ({"weekdays": [None]}, "weekdays", "weekday"),
            ({"closed": "2026-12-24"}, "closed", "list"),
            ({"closed": ["2026-12-32"]}, "closed", "no such day"),
            ({"closed": ["2026-02-29"]}, "closed", "no such day"),
            ({"closed": ["24.12.2026"]}, "closed", "day like"),
            ({"closed": ["20261224"]}, "closed", "day like"),
            ({"closed": [20261224]}, "closed", "day like"),
            ({"closed": ["2026-12-31..2026-12-24"]}, "closed", "backwards"),
            ({"closed": ["0001-01-01..9999-12-31"]}, "closed", "10000"),
            ({"closed": ["2000-01-01..2020-01-01", "2030-01-01..2050-01-01"]}, "closed", "10000"),
            ({"closed": ["2026-12-24.."]}, "closed", "day like"),
            ({"closed": [None]}, "closed", "day like"),
            ({"open": [True]}, "open", "day like"),
            ({"open": ["2026-12-24T00:00:00Z"]}, "open", "day like"),
            ({"weekdays": "all", "zone": "Mars/Olympus"}, "zone", "zone"),
            ({"weekdays": "all", "zone": "Asia"}, "zone", "zone"),
            ({"holidays": ["2026-12-24"]}, "holidays", "known"),
        ]
    )
]
CALENDARS += [
    Entry("calendar-unknown", "calendar", "no calendar", {"calendar": "nowhere"}),
    Entry("calendar-near", "calendar", "plant", {"calendar": "plan"}, calendars={"plant": {"weekdays": "all"}}),
    Entry("calendar-path", "calendar", "name", {"calendar": "../x"}),
    Entry("calendar-inline", "calendar", "name", {"calendar": {"weekdays": "all"}}),
    Entry("calendar-number", "calendar", "name", {"calendar": 5}),
    Entry("calendar-empty", "calendar", "empty", {"calendar": None}),
    Entry(
        "calendar-taken", "calendars.weekdays", "always there", calendars={"weekdays": {"weekdays": "all"}}, whole=True
    ),
    Entry("calendar-bad-name", "calendars.'a/b'", "name", calendars={"a/b": {"weekdays": "all"}}, whole=True),
    Entry(
        "calendar-twins",
        "calendars.Own",
        "only in capital",
        calendars={"own": {"weekdays": "all"}, "Own": {"weekdays": "all"}},
        whole=True,
    ),
    Entry("calendar-list", "calendars.own", "mapping", calendars={"own": ["2026-12-24"]}, whole=True, yaml_only=True),
]


def _text(id_: str, field: str, word: str, text: str | bytes) -> Entry:
    return Entry(id_, field, word, text=text, whole=True)


_JOB = "jobs:\n  job:\n    cron: '0 3 * * *'\n    shell: ['true']\n"
_LOLS = "".join(f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]\n" for number in range(1, 10))
YAML = [
    _text("yaml-empty", "", "nothing", ""),
    _text("yaml-comment-only", "", "nothing", "# nothing\n"),
    _text("yaml-null", "", "mapping", "null\n"),
    _text("yaml-text", "", "mapping", "hello\n"),
    _text("yaml-list", "", "mapping", "- a\n"),
    _text("yaml-no-jobs", "jobs", "missing", "tenant: a\n"),
    _text("yaml-jobs-null", "jobs", "empty", "jobs:\n"),
    _text("yaml-jobs-list", "jobs", "mapping", "jobs: [a]\n"),
    _text("yaml-job-null", "jobs.a", "mapping", "jobs: {a: }\n"),
    _text("yaml-job-text", "jobs.a", "mapping", "jobs: {a: b}\n"),
    _text("yaml-calendars-list", "calendars", "mapping", "calendars: [a]\n" + _JOB),
    _text("yaml-alias-bomb", "l1", "anchors", "l0: &l0 lol\n" + _LOLS + _JOB),
    _text("yaml-alias", "b", "aliases", "a: &x 1\nb: *x\n" + _JOB),
    _text("yaml-unknown-alias", "b", "aliases", "b: *nowhere\n" + _JOB),
    _text("yaml-anchor", "tenant", "anchors", "tenant: &x default\n" + _JOB),
    _text("yaml-recursive-alias", "a", "anchors", "a: &a [*a]\n" + _JOB),
    _text("yaml-merge", "jobs.a", "merge", "jobs:\n  a:\n    <<: {cron: '0 3 * * *'}\n    shell: [x]\n"),
    _text("yaml-python-object", "tenant", "tags", "tenant: !!python/object/apply:os.system ['true']\n" + _JOB),
    _text("yaml-python-name", "tenant", "tags", "tenant: !!python/name:os.system\n" + _JOB),
    _text("yaml-str-tag", "tenant", "tags", "tenant: !!str x\n" + _JOB),
    _text("yaml-own-tag", "tenant", "tags", "tenant: !env HOME\n" + _JOB),
    _text("yaml-bare-tag", "tenant", "tags", "tenant: ! x\n" + _JOB),
    _text("yaml-binary", "tenant", "tags", "tenant: !!binary aGk=\n" + _JOB),
    _text("yaml-duplicate-job", "jobs.a", "twice", "jobs:\n  a: {shell: [x]}\n  a: {shell: [y]}\n"),
    _text("yaml-duplicate-key", "jobs.a.cron", "twice", "jobs:\n  a: {cron: x, shell: [x], cron: y}\n"),
    _text("yaml-duplicate-top", "jobs", "twice", _JOB + _JOB),
    _text("yaml-duplicate-quoted", "jobs.a", "twice", "jobs:\n  a: {shell: [x]}\n  'a': {shell: [y]}\n"),
    _text("yaml-two-documents", "", "several", _JOB + "---\n" + _JOB),
    _text("yaml-1000-documents", "", "several", "---\na: 1\n" * 1000),
    _text("yaml-int-key", "jobs", "text", "jobs:\n  1: {shell: [x]}\n"),
    _text("yaml-bool-key", "jobs", "text", "jobs:\n  true: {shell: [x]}\n"),
    _text("yaml-null-key", "jobs", "text", "jobs:\n  ~: {shell: [x]}\n"),
    _text("yaml-float-key", "jobs.a.params", "text", "jobs:\n  a: {shell: [x], params: {1.5: x}}\n"),
    _text("yaml-list-key", "jobs", "text", "jobs:\n  ? [a]\n  : {shell: [x]}\n"),
    _text("yaml-map-key", "jobs", "text", "jobs:\n  ? {a: b}\n  : {shell: [x]}\n"),
    _text("yaml-tab-indent", "", "tab", "jobs:\n\ta: {}\n"),
    _text("yaml-tab-inside", "", "tab", "jobs: {a:\t{shell: [x]}}\n"),
    _text("yaml-nan", "jobs.a.jitter_s", "number", "jobs: {a: {cron: x, jitter_s: .nan, shell: [x]}}\n"),
    _text("yaml-inf", "jobs.a.jitter_s", "number", "jobs: {a: {cron: x, jitter_s: -.inf, shell: [x]}}\n"),
    _text("yaml-1e400", "jobs.a.every_s", "large", "jobs: {a: {every_s: 1e400, shell: [x]}}\n"),
    _text("yaml-5000-digits", "jobs.a.every_s", "digits", f"jobs: {{a: {{every_s: {'9' * 5000}, shell: [x]}}}}\n"),
    _text("yaml-no-is-text", "jobs.a.backlog_max", "'no'", "jobs: {a: {backlog_max: no, shell: [x]}}\n"),
    _text("yaml-sexagesimal", "jobs.a.every_s", "'12:30:45'", "jobs: {a: {every_s: 12:30:45, shell: [x]}}\n"),
    _text("yaml-underscores", "jobs.a.every_s", "'1_000'", "jobs: {a: {every_s: 1_000, shell: [x]}}\n"),
    _text("yaml-date-as-number", "jobs.a.every_s", "'2026-12-24'", "jobs: {a: {every_s: 2026-12-24, shell: [x]}}\n"),
    _text("yaml-1-mib", "", "1024 KiB", "#" + "x" * 1024 * 1024),
    _text("yaml-1-mib-bytes", "", "1024 KiB", b"#" + b"x" * 1024 * 1024),
    _text("yaml-deep-flow", "", "50", "[" * 100_000),
    _text("yaml-deep-block", "", "50", "- " * 500_000),
    _text("yaml-deep-mapping", "", "50", "a: " + "{a: " * 60 + "1" + "}" * 60),
    _text("yaml-deep-keys", "", "text", "? " * 100_000),
    _text("yaml-not-utf8", "", "UTF-8", b"jobs: {a: \xff}\n"),
    _text("yaml-latin1", "", "UTF-8", "title: J\u00f6b\n".encode("latin-1")),
    _text("yaml-overlong-utf8", "", "UTF-8", b"a: \xc0\xaf\n"),
    _text("yaml-surrogate-bytes", "", "UTF-8", b"a: \xed\xa0\x80\n"),
    _text("yaml-utf16", "", "UTF-16", _JOB.encode("utf-16")),
    _text("yaml-utf32", "", "UTF-16", _JOB.encode("utf-32")),
    _text("yaml-utf16-bare", "", "U+0000", _JOB.encode("utf-16-le")),
    _text("yaml-bom-inside", "", "U+FEFF", "jobs:\n" + BOM + "  a: {}\n"),
    _text("yaml-nul", "", "U+0000", "jobs: \x00\n"),
    _text("yaml-escape", "", "U+001B", "jobs: \x1b[31m\n"),
    _text("yaml-del", "", "U+007F", "jobs: \x7f\n"),
    _text("yaml-c1", "", "U+0085", "jobs: \x85\n"),
    _text("yaml-line-separator", "", "U+2028", "jobs: \u2028\n"),
    _text("yaml-rtl-override", "", "U+202E", "# \u202e hidden\n" + _JOB),
    _text("yaml-lone-cr", "", "U+000D", "jobs:\r  a: 1\n"),
    _text("yaml-raw-surrogate", "", "U+D800", "jobs: \ud800\n"),
    _text("yaml-escaped-nul", "tenant", "NUL", 'tenant: "a\\0b"\n' + _JOB),
    _text("yaml-escaped-half", "tenant", "half", 'tenant: "\\ud800"\n' + _JOB),
    _text("yaml-escaped-beyond", "", "YAML", 'tenant: "\\UFFFFFFFF"\n' + _JOB),
    _text("yaml-directive", "", "directives", "%YAML 1.1\n---\n" + _JOB),
    _text("yaml-tag-directive", "", "directives", "%TAG ! tag:x,2000:\n---\n" + _JOB),
    _text("yaml-unclosed", "", "YAML", "jobs: {a: [\n"),
    _text("yaml-unclosed-quote", "", "YAML", "jobs: 'a\n"),
    _text("yaml-bad-indent", "", "YAML", "jobs:\n    a: 1\n  b: 2\n"),
    _text("yaml-colon", "", "YAML", "a: b: c\n"),
    _text("yaml-reserved", "", "YAML", "a: @b\n"),
    _text("yaml-bad-escape", "", "YAML", 'a: "\\q"\n'),
    _text("yaml-trailing-garbage", "", "YAML", '{"jobs": {}} garbage\n'),
    _text("yaml-json-garbage", "", "YAML", '{"jobs": {}}}\n'),
    _text("yaml-html", "", "mapping", "<!doctype html><p>hello</p>\n"),
    _text("yaml-gzip", "", "UTF-8", gzip.compress(_JOB.encode(), mtime=0)),
    _text("yaml-twins", "jobs.JOB", "only in capital", _JOB + "  JOB: {shell: [x]}\n"),
    _text(
        "yaml-10001-jobs", "jobs", "10000", "jobs: {" + ", ".join(f"j{number}: " for number in range(10_001)) + "}\n"
    ),
]

CORPUS: tuple[Entry, ...] = (
    *CRON, *ZONE, *TIMES, *PERIODS, *WINDOW, *ENDLESS, *TRIGGER, *MISFIRE, *OVERLAP, *NUMBERS, *TITLE, *PARAMS, *NAMES,
    *UNKNOWN, *SHELL, *PYTHON, *HTTP, *RUNNERS, *EXECUTION, *CALENDARS, *YAML,
)  # fmt: skip
