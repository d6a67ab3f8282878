#!/bin/sh
# deploy/Dockerfile for real: built on a base that debootstrap makes, then run as its head says.
#
#   sh scripts/image.sh                               root, debootstrap and a Docker daemon
#   scripts/with_dockerd.sh sh scripts/image.sh       starts the daemon, too; its vfs takes minutes
#
# The packages come from the index that pip uses here, as files in the base, so that the build itself
# needs no network.
set -eu
cd "$(dirname "$0")/.."
SUITE=${SUITE:-bookworm}
work=$(mktemp -d)
trap 'docker rm -f ludus-image >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$SUITE" "$work/base" >"$work/log" ||
    { tail -n 5 "$work/log" >&2; exit 1; }
.venv/bin/python -m pip download --quiet -d "$work/base/wheels" '.[otel]' \
    $(.venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
printf '[global]\nno-index = true\nfind-links = /wheels\n' >"$work/base/etc/pip.conf"
tar c -C "$work/base" . | docker import - ludus-base >/dev/null
rm -rf "$work/base"
docker build --quiet --network none --build-arg BASE=ludus-base -f deploy/Dockerfile -t ludus .

docker run -d --name ludus-image --read-only --tmpfs /tmp --cap-drop ALL --network host \
    -e LUDUS_TOKEN=a-token-for-this-check ludus >/dev/null
health=starting
for _ in $(seq 60); do
    health=$(docker inspect -f '{{.State.Health.Status}}' ludus-image)
    [ "$health" = healthy ] && break
    sleep 1
done
[ "$health" = healthy ] || { docker logs ludus-image >&2; exit 1; }
[ "$(docker exec ludus-image id -u)" = 10001 ] || { echo "image.sh: it runs as root" >&2; exit 1; }
# As root, who may write there unless the file system is read-only.
if docker exec -u 0 ludus-image sh -c 'touch /usr/x' 2>/dev/null; then
    echo "image.sh: it can write beside /tmp" >&2
    exit 1
fi
docker stop -t 60 ludus-image >/dev/null
[ "$(docker inspect -f '{{.State.ExitCode}}' ludus-image)" = 0 ] || { docker logs ludus-image >&2; exit 1; }
echo "built, healthy, not root, read-only, and ended by SIGTERM"
