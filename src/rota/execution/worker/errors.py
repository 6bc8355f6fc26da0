"""Failures that rota itself finds. Their messages explain them, so no traceback is kept."""

from __future__ import annotations


class TaskFault(Exception):
    """A failure with the name under which a retry policy knows it."""

    def __init__(self, cause: str, message: str, code: int | None = None) -> None:
        self.cause = cause
        self.code = code
        super().__init__(message)
