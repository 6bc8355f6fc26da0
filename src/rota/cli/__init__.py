"""The command line. It translates: words to `rota.control`, answers to tables or JSON, errors to exit codes."""

import sys

_BAD_INPUT = 2

if sys.platform == "win32":  # before anything is imported that is not there
    sys.stderr.write(
        "rota: Windows has no process groups and signals that rota could rely on. Run it in WSL: wsl rota\n"
    )
    raise SystemExit(_BAD_INPUT)
