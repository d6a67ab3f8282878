#!/usr/bin/env bash
# Run a command beside a Docker engine of its own, and remove the engine with all its data afterwards:
#
#     scripts/with_dockerd.sh pytest -m docker
#
# Needs root and `dockerd` (on Debian: apt-get install docker.io). The engine has no network and no
# images, and touches no other engine: data, state and socket are in a temporary folder. The command
# finds it by DOCKER_HOST. More arguments for dockerd: DOCKERD_ARGS.
set -euo pipefail

[ $# -gt 0 ] || { echo "usage: $0 COMMAND..." >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "$0: starting a Docker engine needs root" >&2; exit 2; }
command -v dockerd >/dev/null || { echo "$0: there is no dockerd (apt-get install docker.io)" >&2; exit 2; }

folder=$(mktemp -d /tmp/ludus-dockerd-XXXXXX)
chmod 711 "$folder"
groups="ludus-dockerd-$$"

clean_up() {
    trap - EXIT
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
    grep -o " $folder[^ ]*" /proc/mounts | sort -r | while read -r place; do umount -l "$place"; done || true
    rm -rf "$folder"
    find /sys/fs/cgroup -depth -type d -path "*/$groups*" -exec rmdir {} + 2>/dev/null || true
}

# shellcheck disable=SC2086  # several arguments on purpose
setsid dockerd --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs \
    --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/pid" \
    --cgroup-parent "/$groups" --host "unix://$folder/docker.sock" ${DOCKERD_ARGS:-} \
    >"$folder/log" 2>&1 </dev/null &
engine=$!
trap clean_up EXIT
trap 'exit 130' INT TERM

for _ in $(seq 300); do
    [ -S "$folder/docker.sock" ] && break
    kill -0 "$engine" 2>/dev/null || { cat "$folder/log" >&2; echo "$0: dockerd ended at once" >&2; exit 1; }
    sleep 0.1
done
[ -S "$folder/docker.sock" ] || { tail "$folder/log" >&2; echo "$0: no socket after 30 s" >&2; exit 1; }

export DOCKER_HOST="unix://$folder/docker.sock"
"$@"
