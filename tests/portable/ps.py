"""The `ps` of macOS, as far as it is asked: `ps.py PROC -A -o KEYWORD=,...`, from a /proc that nobody else finds."""

import os
import sys
import time
from pathlib import Path


def column(keyword: str, pid: str, fields: list[str], booted: int) -> str:
    if keyword == "lstart":
        started = booted + int(fields[19]) // os.sysconf("SC_CLK_TCK")
        return time.strftime("%a %b %e %H:%M:%S %Y    ", time.localtime(started))
    values = {"pid": pid, "ppid": fields[1], "pgid": fields[2], "stat": f"{fields[0]}s"}
    return f"{values[keyword]:>5}"


def main(proc: Path, everybody: str, option: str, words: str) -> None:
    assert (everybody, option) == ("-A", "-o"), sys.argv
    keywords = [word.removesuffix("=") for word in words.split(",")]
    booted = next(int(line.split()[1]) for line in (proc / "stat").open() if line.startswith("btime"))
    for folder in proc.glob("[1-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        print(*(column(keyword, folder.name, fields, booted) for keyword in keywords))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
