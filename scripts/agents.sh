#!/bin/sh
# Make an environment for each agent under build/agents, and let the agents play through the gateway.
#
#   scripts/agents.sh                 every agent
#   scripts/agents.sh openai codex    some of them
#
# LUDUS_AGENT_ROUNDS=40 repeats each run; LUDUS_AGENT_MODEL=smollm2 lets a released model play.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3.11}"
all="openai anthropic langgraph smolagents openai-agents pydantic-ai mini-swe-agent codex opencode"

wants() {
    case "$1" in
        openai) echo "openai==3.57.0" ;;
        anthropic) echo "anthropic==2.13.0" ;;
        langgraph) echo "langgraph==1.2.24 langchain-openai" ;;
        smolagents) echo "smolagents[openai]==1.26.0" ;;
        openai-agents) echo "openai-agents==0.24.0" ;;
        pydantic-ai) echo "pydantic-ai-slim[openai,anthropic]==2.68.0" ;;
        mini-swe-agent) echo "mini-swe-agent==2.4.6" ;;
        codex) echo "npm @openai/codex@0.169.0" ;;
        opencode) echo "npm opencode-ai@1.18.33" ;;
        *) echo "no agent '$1'; known: $all" >&2; exit 2 ;;
    esac
}

build() { # one agent's environment, unless it is there already
    at="build/agents/$1"
    packages="$(wants "$1")"
    [ "$(cat "$at/ready" 2>/dev/null)" != "$packages" ] || return 0
    mkdir -p "$at"
    case "$packages" in
        npm*)
            command -v npm >/dev/null || { echo "SKIPPED $1: there is no npm"; return 0; }
            npm install --silent --no-fund --no-audit --prefix "$at" "${packages#npm }" ||
                { echo "SKIPPED $1: npm cannot install ${packages#npm }"; return 0; } ;;
        *)
            [ -x "$at/bin/python" ] || "$python" -m venv "$at"
            # shellcheck disable=SC2086
            "$at/bin/python" -m pip install --quiet --disable-pip-version-check $packages ||
                { echo "SKIPPED $1: $packages cannot be installed here"; return 0; } ;;
    esac
    echo "$packages" >"$at/ready"
}

for agent in ${*:-$all}; do
    build "$agent"
    echo "$agent: $(wants "$agent")"
done
.venv/bin/python -m pytest -q -o filterwarnings=default -p no:cacheprovider tests/peers/test_agents.py
