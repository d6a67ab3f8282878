#!/bin/sh
# Make .venv in the checkout and install ludus with its trainer and development tools.
#
# torch: without an NVIDIA GPU the CPU build is tried first. pip finds it where an index or a folder of
# wheels offers one (PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS; PyTorch's own page names its CPU index).
# Where none is offered, the default build is installed: it runs on a CPU too, and is much larger.
# With a GPU the default build is installed, which is PyTorch's CUDA build on Linux.
# TORCH=... overrides the choice: make setup TORCH='torch==2.13.0'
#
# The other packages come in the versions that the tests last passed with (tested_versions.txt).
set -eu
python="${1:-python3.11}"
log=".venv/install.log"

command -v "$python" >/dev/null 2>&1 || {
    echo "ludus needs Python 3.11 or newer and found no '$python'; try: make PYTHON=python3" >&2
    exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "ludus needs Python 3.11 or newer; '$python' is $("$python" --version)" >&2
    exit 1
}
[ -x .venv/bin/python ] || "$python" -m venv .venv
echo "setting up .venv (a few minutes the first time; details in $log)"

run() { "$@" >>"$log" 2>&1 || { tail -n 15 "$log" >&2; echo "set-up failed; the whole story is in $log" >&2; exit 1; }; }
pip=".venv/bin/python -m pip install --quiet --disable-pip-version-check"
: >"$log"
run $pip --upgrade pip
if ! .venv/bin/python -c 'import torch' >/dev/null 2>&1; then
    if [ -n "${TORCH:-}" ]; then
        run $pip "$TORCH"
    elif command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1; then
        run $pip "torch>=2.6"
    else
        $pip "torch==2.13.0+cpu" >>"$log" 2>&1 || run $pip "torch>=2.6"
    fi
fi
extras='.[train,gguf,lora,search,docker,dev]'
# an index may have dropped a version: then the newest that the package allows
$pip --constraint scripts/tested_versions.txt --editable "$extras" >>"$log" 2>&1 || run $pip --editable "$extras"
