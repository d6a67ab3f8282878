#!/bin/sh
# Make the virtual environment of a peer under build/peers and run its tests there, or those of all peers.
#
#   scripts/peers.sh            every peer
#   scripts/peers.sh trl openenv
#
# Where the package index cannot be reached, the peer's tests are skipped and the reason is told.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3.11}"
all="openenv trl"
failed=""

wants() { # what a peer's environment holds besides ludus; torch first, and its CPU build
    case "$1" in
        openenv) echo "openenv-core==0.3.0" ;;
        trl) echo "trl==1.16.0 jmespath" ;;
        *) echo "no peer '$1'; known: $all" >&2; exit 2 ;;
    esac
}
torch() {
    case "$1" in
        trl|verl|tinker) return 0 ;;
        *) return 1 ;;
    esac
}

for peer in ${@:-$all}; do
    at="build/peers/$peer"
    log="build/peers/$peer.log"
    packages="$(wants "$peer")"
    mkdir -p build/peers
    if [ "$(cat "$at/ready" 2>/dev/null)" != "$packages" ]; then
        [ -x "$at/bin/python" ] || "$python" -m venv "$at"
        pip="$at/bin/python -m pip install --quiet --disable-pip-version-check"
        : >"$log"
        if torch "$peer"; then
            $pip "torch==2.13.0+cpu" >>"$log" 2>&1 || $pip "torch>=2.6" >>"$log" 2>&1 || true
        fi
        # shellcheck disable=SC2086
        if ! $pip $packages --editable . pytest pytest-asyncio pytest-timeout hypothesis >>"$log" 2>&1; then
            echo "SKIPPED $peer: $packages cannot be installed here ($log): $(grep -m 1 ERROR "$log" || tail -n 1 "$log")"
            continue
        fi
        echo "$packages" >"$at/ready"
    fi
    echo "== $peer"
    # warnings of a peer's own packages are no errors of ours
    "$at/bin/python" -m pytest -q -o filterwarnings=default -p no:cacheprovider "tests/peers/test_$peer.py" ||
        failed="$failed $peer"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
