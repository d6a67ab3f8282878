#!/bin/sh
# Install the environments of other projects under build/peers/home, and run the tests that play them.
#
#   scripts/peers_in.sh            every kind
#   scripts/peers_in.sh in         the same; other names are peers of scripts/peers.sh, and are left to it
#
# Where the package index cannot be reached, the tests of a kind are skipped and the reason is told.
set -eu
cd "$(dirname "$0")/.."
case " ${*:-in} " in *" in "*) ;; *) exit 0 ;; esac

LUDUS_HOME="$PWD/build/peers/home"
export LUDUS_HOME
mkdir -p "$LUDUS_HOME"
for kind in reasoning-gym textarena gem verifiers inspect alfworld; do
    [ -e "$LUDUS_HOME/envs/$kind/ludus-env.json" ] && continue
    .venv/bin/ludus env install "$kind" || echo "SKIPPED $kind: it cannot be installed here"
done
openenv="build/peers/openenv/bin/python"   # made by scripts/peers.sh openenv
[ ! -x "$openenv" ] || export LUDUS_OPENENV_PYTHON="$PWD/$openenv"
verifiers="build/peers/verifiers/bin"   # likewise; it holds uv, with which the package starts agents
[ ! -x "$verifiers/uv" ] || PATH="$PATH:$PWD/$verifiers"
old_mcp="build/peers/old_mcp"   # the SDK of the older era of MCP
[ -x "$old_mcp/bin/python" ] || "${PYTHON:-python3.11}" -m venv "$old_mcp"
if "$old_mcp/bin/python" -m pip install --quiet --disable-pip-version-check "mcp==1.30.0" 2>"$old_mcp.log"; then
    export LUDUS_OLD_MCP_PYTHON="$PWD/$old_mcp/bin/python"
fi
echo "== in"
.venv/bin/python -m pytest -q -o filterwarnings=default -p no:cacheprovider tests/peers/test_in_*.py
