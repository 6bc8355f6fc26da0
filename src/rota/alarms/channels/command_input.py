"""Executes a command with the channel of this process as its standard input.

The boundary gives every program an empty input, but a command reads its message there. This file is executed by its
path, inside the boundary, and imports nothing of rota.
"""

from __future__ import annotations

import os
import sys

CHANNEL = 3


def main() -> None:
    os.dup2(CHANNEL, 0)
    os.close(CHANNEL)
    try:
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.stderr.write(f"cannot execute {sys.argv[1]!r}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
