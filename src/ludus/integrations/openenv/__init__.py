"""OpenEnv's protocol: unmodified OpenEnv clients play what `ludus serve` serves.

The routes are those of `openenv-core` 0.3: `/ws`, `/reset`, `/step`, `/state`, `/schema`,
`/metadata`, `/health`, `/mcp` and `/web`. ludus imports nothing of that package.
"""
