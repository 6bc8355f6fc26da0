"""Other systems than Linux."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
sys.platform = "win32"
for name in ("fcntl", "pwd", "grp", "resource", "termios", "_posixsubprocess"):
    sys.modules[name] = None
from rota.cli.main import main
main()
"""


def test_windows_gets_one_line_that_names_wsl() -> None:
    done = subprocess.run([sys.executable, "-c", CODE, "up"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "WSL" in done.stderr
