"""Channels: how messages about alarms reach people. One module for each kind; each sends in bounded time."""

from rota.runners.channels.courier import ChannelCourier
from rota.runners.channels.settings import CourierSettings

__all__ = ["ChannelCourier", "CourierSettings"]
