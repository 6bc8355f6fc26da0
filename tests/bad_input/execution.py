"""The part of the corpus about how tasks are executed."""

from __future__ import annotations

from typing import Any

from tests.bad_input.entry import Entry, field_entries, inner_entries

NUL = "\x00"
HALF = "\ud800"


def _numbers(low: float, high: float, words: str = "") -> list[tuple[Any, str]]:
    """What is no number of that range."""
    said = words or f"from {low:g} to {high:.10g}"
    return [
        (low - 1, said),
        (high + 1, said),
        (2**63, said),
        (str(high), said),
        (True, "true"),
        ([high], "a list"),
        ({"value": high}, "a mapping"),
        (float("nan"), "number"),
        (float("inf"), "number"),
        (None, "empty"),
    ]


def _whole(low: int, high: int) -> list[tuple[Any, str]]:
    return [*_numbers(low, high, f"whole number from {low} to {high}"), (low + 0.5, "whole")]


YEAR_S = 366 * 86_400
RETRIES = inner_entries(
    "retries",
    [
        (-1, "max", "0 to 100"),
        (101, "max", "0 to 100"),
        (1.5, "max", "whole"),
        ("3", "max", "'3'"),
        (True, "max", "true"),
        (2**63, "max", "whole"),
        ([3], "", "mapping"),
        (None, "", "empty"),
        ({}, "max", "missing"),
        ({"backoff": 5}, "max", "missing"),
        ({"max": None}, "max", "empty"),
        ({"max": "many"}, "max", "whole"),
        ({"maximum": 3}, "maximum", "did you mean max"),
        ({"max": 1, "timeout_s": 3}, "timeout_s", "known"),
        ({"max": 1, "seconds": 3}, "seconds", "goes inside backoff"),
        ({"max": 1, "backoff": -1}, "backoff.seconds", "number of seconds"),
        ({"max": 1, "backoff": 31 * 86_400 + 1}, "backoff.seconds", "2678400"),
        ({"max": 1, "backoff": "5"}, "backoff.seconds", "'5'"),
        ({"max": 1, "backoff": "exponential"}, "backoff.seconds", "'exponential'"),
        ({"max": 1, "backoff": True}, "backoff.seconds", "true"),
        ({"max": 1, "backoff": None}, "backoff", "empty"),
        ({"max": 1, "backoff": []}, "backoff.seconds", "1 to 100"),
        ({"max": 1, "backoff": [1] * 101}, "backoff.seconds", "1 to 100"),
        ({"max": 1, "backoff": [1, -1]}, "backoff.seconds", "not -1"),
        ({"max": 1, "backoff": [1, "2"]}, "backoff.seconds", "'2'"),
        ({"max": 1, "backoff": [[1]]}, "backoff.seconds", "a list"),
        ({"max": 1, "backoff": {"seconds": float("nan")}}, "backoff.seconds", "number"),
        ({"max": 1, "backoff": {"kind": "list", "seconds": [float("inf")]}}, "backoff.seconds", "number"),
        ({"max": 1, "backoff": {}}, "backoff.seconds", "missing"),
        ({"max": 1, "backoff": {"kind": "exponential"}}, "backoff.seconds", "missing"),
        ({"max": 1, "backoff": {"kind": "linear", "seconds": 1}}, "backoff.kind", "fixed, list, exponential"),
        ({"max": 1, "backoff": {"kind": None, "seconds": 1}}, "backoff.kind", "empty"),
        ({"max": 1, "backoff": {"kind": "list", "seconds": 1}}, "backoff.seconds", "must be a list"),
        ({"max": 1, "backoff": {"seconds": [1, 2]}}, "backoff.seconds", "one number"),
        ({"max": 1, "backoff": {"kind": "exponential", "seconds": [1]}}, "backoff.seconds", "one number"),
        ({"max": 1, "backoff": {"kind": "exponential", "seconds": 0}}, "backoff.seconds", "more than 0"),
        ({"max": 1, "backoff": {"kind": "exponential", "seconds": 3601}}, "backoff.seconds", "at most max_s (3600)"),
        ({"max": 1, "backoff": {"kind": "exponential", "seconds": 1, "factor": 0.5}}, "backoff.factor", "1 to 100"),
        ({"max": 1, "backoff": {"kind": "exponential", "seconds": 1, "factor": 1e9}}, "backoff.factor", "1 to 100"),
        ({"max": 1, "backoff": {"kind": "exponential", "seconds": 1, "max_s": 1e9}}, "backoff.max_s", "2678400"),
        ({"max": 1, "backoff": {"seconds": 1, "factor": 2}}, "backoff.factor", "only with the kind exponential"),
        ({"max": 1, "backoff": {"kind": "list", "seconds": [1], "max_s": 2}}, "backoff.max_s", "only with the kind"),
        ({"max": 1, "backoff": {"seconds": 1, "jitter": 1.5}}, "backoff.jitter", "0 to 1"),
        ({"max": 1, "backoff": {"seconds": 1, "jitter": "10%"}}, "backoff.jitter", "'10%'"),
        ({"max": 1, "backoff": {"seconds": 1, "jitter_s": 1}}, "backoff.jitter_s", "did you mean jitter"),
        ({"max": 1, "only": []}, "only", "1 to 100"),
        ({"max": 1, "only": [1] * 101}, "only", "1 to 100"),
        ({"max": 1, "only": "ValueError"}, "only", "a list"),
        ({"max": 1, "only": 75}, "only", "a list"),
        ({"max": 1, "only": None}, "only", "empty"),
        ({"max": 1, "only": [0]}, "only", "1 to 999"),
        ({"max": 1, "only": [-9]}, "only", "1 to 999"),
        ({"max": 1, "only": [1000]}, "only", "1 to 999"),
        ({"max": 1, "only": ["75"]}, "only", "a number from 1"),
        ({"max": 1, "only": [True]}, "only", "not true"),
        ({"max": 1, "only": [1.5]}, "only", "not 1.5"),
        ({"max": 1, "only": [None]}, "only", "not nothing"),
        ({"max": 1, "only": [""]}, "only", "exception"),
        ({"max": 1, "only": ["requests.Timeout"]}, "only", "without its module"),
        ({"max": 1, "only": ["Value Error"]}, "only", "exception"),
        ({"max": 1, "only": ["x" * 101]}, "only", "exception"),
        ({"max": 1, "only": [f"a{NUL}"]}, "only", "exception"),
        ({"max": 1, "only": [HALF]}, "only", "exception"),
        ({"max": 1, "only": [75, 75]}, "only", "75 twice"),
        ({"max": 1, "never": ["KeyError", "KeyError"]}, "never", "KeyError twice"),
        ({"max": 1, "never": [{"code": 1}]}, "never", "a mapping"),
        ({"max": 1, "only": [75, "KeyError"], "never": ["KeyError"]}, "never", "which only names too"),
        ({"max": 1, "only": [75], "never": [75, 76]}, "never", "names 75, which"),
    ],
)

SECONDS = [
    *field_entries("timeout_s", [*_numbers(0.1, YEAR_S), (0, "0.1"), (10 * YEAR_S, "31622400")]),
    *field_entries("warn_s", [*_numbers(0.1, YEAR_S), (0, "0.1")]),
    *field_entries("grace_s", _numbers(0, 3600)),
    *field_entries("start_within_s", _numbers(0, 31 * 86_400)),
    *field_entries("hold_s", _numbers(0, 86_400)),
    *field_entries("cpu_s", _numbers(1, YEAR_S)),
    Entry("warn-at-timeout", "warn_s", "less than timeout_s", {"warn_s": 5, "timeout_s": 5}),
    Entry("warn-after-timeout", "warn_s", "6 is not less than 5.5", {"warn_s": 6, "timeout_s": 5.5}),
    Entry("timeout-bad-value", "timeout_s", "0.1", {"timeout": 0}, sdk_only=True),
    Entry("timeout-twice", "timeout", "means the same", {"timeout": 5, "timeout_s": 5}, sdk_only=True),
]

COUNTS = [
    *field_entries("lost_max", _whole(1, 100)),
    *field_entries("cap", _whole(1, 100_000)),
    *field_entries("concurrency", _whole(1, 1000)),
    *field_entries("memory_mb", _whole(1, 1024 * 1024)),
    *field_entries("processes_max", _whole(1, 100_000)),
]

RATE = inner_entries(
    "rate",
    [
        ({}, "max", "missing"),
        ({"max": 5}, "period_s", "missing"),
        ({"period_s": 5}, "max", "missing"),
        ({"max": 0, "period_s": 5}, "max", "1 to 100000"),
        ({"max": 100_001, "period_s": 5}, "max", "1 to 100000"),
        ({"max": 1.5, "period_s": 5}, "max", "whole"),
        ({"max": "5", "period_s": 5}, "max", "'5'"),
        ({"max": True, "period_s": 5}, "max", "true"),
        ({"max": 5, "period_s": 0}, "period_s", "0.1"),
        ({"max": 5, "period_s": 31 * 86_400 + 1}, "period_s", "2678400"),
        ({"max": 5, "period_s": "1m"}, "period_s", "'1m'"),
        ({"max": 5, "period_s": float("nan")}, "period_s", "number"),
        ({"max": 5, "period": 1}, "period", "did you mean period_s"),
        ("5/60", "", "mapping"),
        (5, "", "mapping"),
        ([5, 60], "", "mapping"),
        (None, "", "empty"),
    ],
)

_NAMES: list[tuple[Any, str]] = [
    ("", "name must be"),
    ("a/b", "name must be"),
    ("..", "name must be"),
    ("a b", "name must be"),
    ("ü", "name must be"),
    ("x" * 101, "name must be"),
    (f"a{NUL}", "name must be"),
    (5, "name must be"),
    (["a"], "name must be"),
    (None, "empty"),
]
WORDS = [
    *field_entries("group", _NAMES),
    *field_entries("quota", _NAMES),
    *field_entries(
        "resources",
        [
            ("printer", "a list"),
            ({"printer": 1}, "a list"),
            (None, "empty"),
            ([""], "name must be"),
            (["a/b"], "name must be"),
            ([5], "name must be"),
            ([None], "name must be"),
            (["printer", "printer"], "printer twice"),
            ([f"r{number}" for number in range(21)], "at most 20"),
        ],
    ),
    *field_entries(
        "on_exhausted",
        [
            ("stop", "fail, alarm, pause"),
            ("Fail", "did you mean fail"),
            ("", "one of"),
            (1, "one of"),
            (["fail"], "one of"),
            (None, "empty"),
        ],
    ),
]

PLACE = [
    *field_entries(
        "directory",
        [
            ("", "full path"),
            ("reports", "full path"),
            ("./reports", "full path"),
            ("../../etc", "full path"),
            ("~/reports", "full path"),
            ("$HOME", "full path"),
            ("C:\\reports", "full path"),
            ("/a\nb", "printable"),
            ("/\x1b[31m", "printable"),
            ("/abc\u202edef", "printable"),
            (f"/a{NUL}b", "printable"),
            (f"/{HALF}", "printable"),
            ("/" + "x" * 4095, "4095"),
            ("/" + "ü" * 2048, "4095"),
            (5, "full path"),
            (["/tmp"], "full path"),
            (None, "empty"),
        ],
    ),
    *field_entries(
        "user",
        [
            ("", "name of a user"),
            ("0", "name of a user"),
            (0, "name of a user"),
            (1000, "name of a user"),
            ("-rf", "name of a user"),
            ("a b", "name of a user"),
            ("a:b", "name of a user"),
            ("root\n", "name of a user"),
            (f"root{NUL}", "name of a user"),
            ("x" * 33, "name of a user"),
            ("ü", "name of a user"),
            (True, "name of a user"),
            (["root"], "name of a user"),
            (None, "empty"),
        ],
    ),
]

ENVIRONMENT = [
    *field_entries(
        "env",
        [
            ("A=b", "mapping"),
            (["A=b"], "mapping"),
            (None, "empty"),
            ({"": "x"}, "name must be"),
            ({"A=B": "x"}, "name must be"),
            ({f"A{NUL}": "x"}, "name must be"),
            ({HALF: "x"}, "name must be"),
            ({"1A": "x"}, "name must be"),
            ({"A-B": "x"}, "name must be"),
            ({"A B": "x"}, "name must be"),
            ({"A\nB": "x"}, "name must be"),
            ({"BASH_FUNC_x%%": "() { :; }"}, "name must be"),
            ({"ÄPFEL": "x"}, "name must be"),
            ({"A" * 101: "x"}, "name must be"),
            ({"PATH": "/tmp"}, "PATH is reserved"),
            ({"PYTHONPATH": "/tmp"}, "PYTHONPATH is reserved"),
            ({"PYTHONHOME": "/tmp"}, "PYTHONHOME is reserved"),
            ({"LD_PRELOAD": "/tmp/x.so"}, "LD_PRELOAD is reserved"),
            ({"LD_LIBRARY_PATH": "/tmp"}, "LD_LIBRARY_PATH is reserved"),
            ({"LD_AUDIT": "/tmp/x.so"}, "LD_AUDIT is reserved"),
            ({"ROTA_STORE": "x"}, "ROTA_STORE is reserved"),
            ({"ROTA_": "x"}, "ROTA_ is reserved"),
            ({"A": f"x{NUL}"}, "NUL"),
            ({"A": HALF}, "half"),
            ({"A": "x" * (32 * 1024 + 1)}, "A has more than 32768"),
            ({"A": "ü" * (16 * 1024 + 1)}, "A has more than 32768"),
            ({f"A{number}": "x" * 30_000 for number in range(5)}, "131072"),
            ({f"A{number}": "x" for number in range(101)}, "at most 100"),
            ({"A": 5}, "A must be text"),
            ({"A": True}, "A must be text"),
            ({"A": None}, "A must be text"),
            ({"A": ["x"]}, "A must be text"),
        ],
    ),
    *field_entries(
        "env",
        [({"A": "x" * 2_000_000}, "32768"), ({1: "x"}, "name must be"), ({"A": b"x"}, "A must be text")],
        group="env-objects",
        sdk_only=True,
    ),
]

_HTTP = {"http": {"url": "https://example.com/"}}
BESIDE = [
    *(
        Entry(f"http-with-{key}", key, "only with shell and python", {**_HTTP, key: value}, yaml_only=True)
        for key, value in {
            "memory_mb": 64,
            "cpu_s": 5,
            "processes_max": 5,
            "directory": "/tmp",
            "user": "nobody",
            "env": {"A": "b"},
        }.items()
    ),
    Entry("http-with-concurrency", "concurrency", "not with http", {**_HTTP, "concurrency": 2}, yaml_only=True),
    Entry("shell-with-concurrency", "concurrency", "not with shell", {"concurrency": 2}, yaml_only=True),
]

EXECUTION = [*RETRIES, *SECONDS, *COUNTS, *RATE, *WORDS, *PLACE, *ENVIRONMENT, *BESIDE]
