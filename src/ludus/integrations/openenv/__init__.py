"""OpenEnv's protocol, so that its clients, unmodified, play what `ludus serve` serves.

The routes are those of `openenv-core` 0.3: `/ws`, `/reset`, `/step`, `/state`, `/schema`,
`/metadata`, `/health`, `/mcp` and `/web`. ludus imports nothing of that package.
"""
