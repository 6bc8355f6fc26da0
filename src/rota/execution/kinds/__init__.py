"""The kinds of task, one module each: how its part of a definition is checked, and how an attempt of it is executed.

    kind.py       what a kind says
    registry.py   ours and those of plugins, by name

`definitions` reads a kind to check what a person wrote; `execution` reads it to execute attempts. Only what checking
needs is imported at the top of a module here, so that reading a definition stays cheap.
"""
