"""What the errors of the driver mean: some are answers, all others become errors of ours."""

from __future__ import annotations

from kazoo import exceptions as kazoo

from rota.coordinators.zookeeper.node import No
from rota.errors import CoordinatorError, CoordinatorRefused, CoordinatorUnavailable, SessionLost

_NOES = {
    kazoo.NoNodeError: No.MISSING,
    kazoo.NodeExistsError: No.EXISTS,
    kazoo.BadVersionError: No.CHANGED,
    kazoo.NotEmptyError: No.HAS_CHILDREN,
    kazoo.NoChildrenForEphemeralsError: No.BELOW_CLAIM,
}


def answer_of(error: Exception) -> No:
    """The answer that an error is; raises ours for one that is none."""
    if (no := _NOES.get(type(error))) is not None:
        return no
    raise _fault(error) from error


def _fault(error: Exception) -> CoordinatorError:
    match error:
        case kazoo.SessionExpiredError():
            return SessionLost("ZooKeeper has ended the session")
        case kazoo.NoAuthError() | kazoo.AuthFailedError() | kazoo.InvalidACLError():
            return CoordinatorRefused("the nodes of this namespace in ZooKeeper belong to somebody else")
        case kazoo.UnimplementedError():
            return CoordinatorRefused("this ZooKeeper is too old: 3.6 or later is needed")
    return CoordinatorUnavailable(f"ZooKeeper did not answer: {type(error).__name__}")
