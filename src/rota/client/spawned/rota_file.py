"""The app's file for processes that a task starts with `multiprocessing`.

They look for the functions of the file under the name that it has in the worker, find this module, and it makes the
file take its place. Its folder is the last one in a worker's `sys.path`, which these processes get.
"""

from __future__ import annotations

import importlib.util
import sys

_spec = importlib.util.spec_from_file_location(__name__, sys.argv[0])
if _spec is None or _spec.loader is None:
    raise ImportError(f"the app's file is not known here: sys.argv[0] is {sys.argv[0]!r}", name=__name__)
_module = importlib.util.module_from_spec(_spec)
sys.modules[__name__] = _module
_spec.loader.exec_module(_module)
