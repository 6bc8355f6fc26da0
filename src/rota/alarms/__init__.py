"""Alarms: who is told what, and how.

`rules` and `words` decide, without I/O. `alarmer` is the loop that describes and delivers; `pending` and `levels` are
its parts. `channels` take messages to people.
"""
