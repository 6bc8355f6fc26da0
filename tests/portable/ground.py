"""A place without Linux: a Python that lacks what macOS lacks, in a mount namespace where nobody finds /proc."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REAL = sys.executable

PYTHON = """#!/bin/sh
# Options of the interpreter go to it; what it runs goes to the file that takes things away first.
flags=
while :; do
    case "$1" in
        -I|-S|-P|-u|-B) flags="$flags $1"; shift ;;
        -X) flags="$flags -X $2"; shift 2 ;;
        *) break ;;
    esac
done
exec {real} $flags {taken} "$0" "$@"
"""

PS = """#!/bin/sh
exec {real} -IS {file} {here}/proc "$@"
"""

HIDE = """
set -e
mount --bind /proc {here}/proc
mount -t tmpfs none /proc
if [ -d /sys/fs/cgroup ]; then mount -t tmpfs none /sys/fs/cgroup; fi
mount --bind {here}/ps "$(readlink -f /bin/ps)"
exec "$@"
"""


class Ground:
    """What is needed for it, in a folder; processes of any user can be started there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "proc").mkdir()
        shutil.copy(HERE / "taken.py", folder / "taken.py")
        self.python = folder / "python"
        _program(self.python, PYTHON.format(real=shlex.quote(REAL), taken=shlex.quote(str(folder / "taken.py"))))
        _program(folder / "ps", PS.format(real=shlex.quote(REAL), file=HERE / "ps.py", here=shlex.quote(str(folder))))
        self._hide = HIDE.format(here=shlex.quote(str(folder)))

    def break_ps(self) -> None:
        """Let `ps` say something else."""
        _program(self._folder / "ps", "#!/bin/sh\necho 1 2 3\n")

    def command(self, *arguments: str) -> list[str]:
        """How to run that Python there; the process that is started becomes it."""
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        hidden = ["unshare", "--mount", *root, "sh", "-c", self._hide, "sh"]
        return [*hidden, str(self.python), *arguments]


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
