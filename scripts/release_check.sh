#!/bin/sh
# Build wheel and sdist twice and compare them; then install the wheel where the checkout is not, and
# use it. Nothing is uploaded.
set -eu
python="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
export SOURCE_DATE_EPOCH

for round in first second; do
    "$python" -m build --no-isolation --outdir "$work/$round" . >"$work/$round.log" 2>&1 || {
        tail -n 15 "$work/$round.log" >&2
        exit 1
    }
done
(cd "$work/first" && sha256sum ./*) >"$work/sums"
(cd "$work/second" && sha256sum --quiet --check ../sums) || {
    echo "two builds of one commit differ" >&2
    exit 1
}
cat "$work/sums"
"$python" scripts/check_wheel.py

"$python" -m venv "$work/venv"
started="$(date +%s)"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$work"/first/*.whl \
    2>"$work/install.log" || { tail -n 15 "$work/install.log" >&2; exit 1; }
echo "installed in $(($(date +%s) - started)) s"
packages="$("$work/venv/bin/python" -m pip list --format=freeze --exclude pip --exclude setuptools --exclude ludus-rl | wc -l)"
echo "with $packages packages"
[ "$packages" -le 32 ] || { echo "the base install has grown beyond 32 packages" >&2; exit 1; }

cd "$work" # the checkout is not on the path here
"$work/venv/bin/ludus" --version
"$work/venv/bin/ludus" doctor || true # without torch one of the jobs cannot be done
"$work/venv/bin/ludus" check ludus/arithmetic-v0 | tail -n 1
"$work/venv/bin/ludus" score maths --gold 1/2 --answer '\boxed{\frac{2}{4}}'
"$work/venv/bin/ludus" new env me/release-v0 >/dev/null
"$work/venv/bin/python" -m pip install --quiet ./me-release 2>"$work/install.log" || {
    tail -n 15 "$work/install.log" >&2
    exit 1
}
"$work/venv/bin/ludus" check me/release-v0 | tail -n 1
