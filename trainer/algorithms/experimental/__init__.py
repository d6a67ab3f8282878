"""Methods known from an abstract or from memory, written as read: `*_as_read`, used in no
recipe and without invented defaults. Each docstring says what is not verified.
"""
