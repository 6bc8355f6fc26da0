"""Alarms: who is told what, and how.

`rules` and `words` decide, without I/O. `alarmer` is the loop that keeps what this node noticed, describes alarms
and delivers them; `levels` watches what lasts. `channels` take messages to people.
"""
