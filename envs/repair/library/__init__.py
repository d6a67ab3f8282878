"""Small functions of our own, each right, described by its docstring and short enough to read:
what repairs are practised on.

None of them imports anything or calls another one, so that any of them can stand in any file.
"""
