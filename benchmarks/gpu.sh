#!/usr/bin/env bash
# Tokens/s, MFU and the roofline of the local engine and the learner on one GPU, in under nine
# minutes and without a network: models are made here, with random weights.
#
#   benchmarks/gpu.sh [--out FOLDER]          on a machine with a GPU
#   benchmarks/gpu.sh --cpu --tiny            the same code on a CPU with tiny sizes (seconds)
#
# PYTHON names the interpreter with ludus; TRL is measured too where that interpreter has it. A part
# that fails or takes too long is told, and the others go on.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-}
if [ -z "$python" ]; then
    if [ -x .venv/bin/python ]; then python=.venv/bin/python; else python=python3; fi
fi
out=${OUT:-/tmp/ludus-gpu}
options=()
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift 2 ;;
        --cpu | --tiny) options+=("$1"); shift ;;
        *) echo "gpu.sh: no option $1 (--out FOLDER, --cpu, --tiny)" >&2; exit 2 ;;
    esac
done
mkdir -p "$out"
rm -f "$out"/*.json
failed=0
part() { # seconds, then the part and its options
    local limit=$1
    shift
    timeout "$limit" "$python" benchmarks/gpu.py "$@" ${options[@]+"${options[@]}"} --out "$out"
    local code=$?
    if [ $code -ne 0 ]; then
        [ $code -eq 124 ] && echo "gpu.sh: $* took more than $limit s" || echo "gpu.sh: $* failed ($code)"
        failed=1
    fi
}
# 60 + 2 x (120 + 70) + 60 = 500 s at most, without the start of each process
part 60 machine
for size in 0.5B 1.5B; do
    part 120 learner --size $size
    part 70 engine --size $size
done
part 60 trl --size 0.5B
"$python" benchmarks/gpu.py table ${options[@]+"${options[@]}"} --out "$out"
exit $failed
