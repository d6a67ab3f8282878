"""Training recipes as data, and the resolution to functions that a trainer calls.

Recipes are read without torch; what resolves them needs it, and is imported when it is asked for.
"""
