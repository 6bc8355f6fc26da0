"""Channels: how messages about alarms reach people. One module for each, which checks whom to tell and sends.

channel.py    what a channel says
registry.py   ours and those of plugins, by name; the courier sends by the channel of a rule, in bounded time
"""
