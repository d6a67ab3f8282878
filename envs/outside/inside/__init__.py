"""The code that runs in a peer's interpreter, next to the peer's package.

The standard library is all that is needed here, since ludus itself is not installed there. That
interpreter imports this folder as the top-level package `inside`; everyone else sees
`ludus.envs.outside.inside`.
"""
