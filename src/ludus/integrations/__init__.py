"""Bridges that let other projects' trainers and evaluators play ludus environments.

Each module is for a single project and imports that project's package only when it is used, so that
`import ludus.integrations.trl` says what to install where TRL is missing. `docs/peers.md` shows how
each is used.
"""
