"""What runs inside a slot: standard library only, so that the interpreter every program is forked
from stays small.

The slot's interpreter imports this folder as the top-level package `inside`; everyone else sees
`ludus.sandboxes.inside`.
"""
