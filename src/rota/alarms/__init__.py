"""Alarms: who is told what, and how.

`rules` and `words` decide, without I/O. `alarmer` is the loop; `pending`, `levels`, `describer` and `delivery` are its
parts. `channels` take messages to people.
"""
