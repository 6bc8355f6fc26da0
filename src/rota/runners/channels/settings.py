"""What the channels of a node are told once."""

from __future__ import annotations

from rota.model.value import Value

SEND_S = 30.0
"""How long one message may take to send, whatever the channel."""


class CourierSettings(Value, frozen=True, kw_only=True):
    """The mail server, whom a webhook may call, and what commands begin with."""

    smtp_host: str = ""
    smtp_port: int = 25
    smtp_user: str = ""
    smtp_password: str = ""
    smtp_from: str = ""
    smtp_tls: str = "auto"
    smtp_ca: str = ""
    hosts: tuple[str, ...] = ()
    """Private hosts that webhooks may reach."""
    environment: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    user: str | None = None
    """Whom commands run as; none: the user of the node."""
    state_dir: str = ""
    node: str = ""
    send_s: float = SEND_S
