#!/bin/sh
# Make the virtual environment of a peer under build/peers and run its tests there, or those of all peers.
#
#   scripts/peers.sh            every peer
#   scripts/peers.sh trl openenv
#   NEWEST=1 scripts/peers.sh   the same with what the index has now instead of the versions named here, in
#                               environments of their own; what broke is what fails
#
# Where the package index cannot be reached, the peer's tests are skipped and the reason is told.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3.11}"
all="export openenv ors trl skyrl inspect_ai tinker verifiers verl nemo_gym"
failed=""
lane="${NEWEST:+newest-}"

wants() { # what a peer's environment holds besides ludus
    if [ -n "$lane" ]; then pinned "$1" | sed 's/==[^ ]*//g'; else pinned "$1"; fi
}

pinned() {
    case "$1" in
        export) echo "pandas==3.1.1 datasets==5.2.0 pyarrow==26.0.1 scipy==1.17.1" ;;
        openenv) echo "openenv==0.10.0" ;;
        trl) echo "trl==1.16.0 jmespath pillow" ;;
        ors) echo "ors-sdk==0.1.0 openreward==0.1.167" ;;
        skyrl) echo "skyrl-gym==0.4.0" ;;
        inspect_ai) echo "inspect-ai==0.3.285" ;;
        # the cookbook itself comes without its dependencies, see `build`
        tinker) echo "tinker==0.38.0 peft blobfile chz cloudpickle datasets pillow safetensors termcolor tiktoken tqdm transformers>=5.7 pyrage" ;;
        verifiers) echo "verifiers==0.4.0 uv" ;; # starts its agents with uv
        nemo_gym) echo "httpx" ;; # the package is in an environment of its own, see build_nemo_gym
        verl) echo "verl==0.9.1 cachetools uvicorn fastapi" ;; # the last three it imports and does not declare
        *) echo "no peer '$1'; known: $all" >&2; exit 2 ;;
    esac
}
torch() {
    case "$1" in
        trl|verl|tinker) return 0 ;;
        *) return 1 ;;
    esac
}

build() { # one peer's environment, unless it is there already
    peer="$1"
    at="build/peers/$lane$peer"
    log="build/peers/$lane$peer.log"
    packages="$(wants "$peer")"
    [ "$peer" != nemo_gym ] || build_nemo_gym >"build/peers/nemo_live.log" 2>&1
    [ "$(cat "$at/ready" 2>/dev/null)" != "$packages" ] || return 0
    [ -x "$at/bin/python" ] || "$python" -m venv "$at"
    pip="$at/bin/python -m pip install --quiet --disable-pip-version-check"
    : >"$log"
    if torch "$peer"; then
        $pip "torch==2.13.0+cpu" >>"$log" 2>&1 || $pip "torch>=2.6" >>"$log" 2>&1 || true
    fi
    # shellcheck disable=SC2086
    $pip ${lane:+--upgrade} $packages --editable . pytest pytest-asyncio pytest-timeout hypothesis >>"$log" 2>&1 || return 0
    # Its dependency tml-renderers, for models of its makers alone, is not to be had in the version it asks for.
    if [ "$peer" = tinker ]; then
        cookbook="tinker-cookbook==0.6.1"
        [ -z "$lane" ] || cookbook="tinker-cookbook"
        $pip --no-deps "$cookbook" >>"$log" 2>&1 || return 0
    fi
    # the last release of verl that has interactions; its wheel is read, not installed
    if [ "$peer" = verl ]; then
        "$at/bin/python" -m pip download --quiet --no-deps --dest build/peers/verlold verl==0.7.0 >>"$log" 2>&1 ||
            echo "the wheel of verl 0.7.0 cannot be had; one test skips"
    fi
    echo "$packages" >"$at/ready"
}

# NeMo Gym asks for Python 3.13.14 and runs on any 3.13; without such an interpreter its tests skip.
build_nemo_gym() {
    at_live="build/peers/nemo_live"
    live="nemo-gym==0.7.0"
    [ "$(cat "$at_live/ready" 2>/dev/null)" != "$live" ] || return 0
    newer=""
    by_uv="$(uv python find --no-project --offline 3.13 2>/dev/null || true)"
    for one in "${by_uv:-python3.13}" python3.13 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.13*/bin/python; do
        if "$one" -c "" 2>/dev/null; then newer="$one"; fi
    done
    [ -n "$newer" ] || { echo "there is no Python 3.13 for $live, on PATH, among pyenv's or by uv"; return 0; }
    [ -x "$at_live/bin/python" ] || "$newer" -m venv "$at_live"
    "$at_live/bin/python" -m pip install --quiet --disable-pip-version-check \
        --ignore-requires-python "$live" || { echo "$live cannot be installed here"; return 0; }
    echo "$live" >"$at_live/ready"
}

chosen="${*:-$all}"
for peer in $chosen; do wants "$peer" >/dev/null; done
mkdir -p build/peers
beside=""
for peer in $chosen; do # two at a time: they mostly wait for the index and for the disk
    build "$peer" &
    if [ -n "$beside" ]; then
        wait
        beside=""
    else
        beside=yes
    fi
done
wait

for peer in $chosen; do
    at="build/peers/$lane$peer"
    log="build/peers/$lane$peer.log"
    if [ ! -e "$at/ready" ]; then
        echo "SKIPPED $peer: $(wants "$peer") cannot be installed here ($log): $(grep -m 1 ERROR "$log" || tail -n 1 "$log")"
        continue
    fi
    echo "== $peer"
    [ -z "$lane" ] || "$at/bin/python" -m pip list --format freeze 2>/dev/null |
        grep -iE "^($(wants "$peer" | sed 's/[<>][^ ]*//g; s/ /|/g'))=="
    if [ "$peer" = nemo_gym ] && [ -e build/peers/nemo_live/ready ]; then
        LUDUS_NEMO_GYM_PYTHON="$PWD/build/peers/nemo_live/bin/python"
        export LUDUS_NEMO_GYM_PYTHON
    elif [ "$peer" = nemo_gym ]; then
        echo "SKIPPED its package: $(tail -n 1 build/peers/nemo_live.log)"
    fi
    # warnings of a peer's own packages are no errors of ours
    "$at/bin/python" -m pytest -q -o filterwarnings=default -p no:cacheprovider tests/peers/test_"$peer"*.py ||
        failed="$failed $peer"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
