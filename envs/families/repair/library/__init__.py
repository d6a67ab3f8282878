"""The small, right functions into which the environment puts mistakes.

Each is described by its docstring and short enough to read. No function imports anything or calls
another, so that any function can be in any file.
"""
