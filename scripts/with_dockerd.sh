#!/usr/bin/env bash
# Run a command beside a Docker engine of its own, and remove the engine with all its data afterwards:
#
#     scripts/with_dockerd.sh pytest -m docker
#
# Needs root and `dockerd` (on Debian: apt-get install docker.io). The engine has no network and no
# images, and touches no other engine: data, state and socket are in a temporary folder. The command
# finds it by DOCKER_HOST. Where gVisor is installed, the engine has it as the runtime `runsc`, told to
# let containers connect to the socket their driver shows them.
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
    # what a killed engine, or a container that does not end, leaves behind names the folder
    processes=(/proc/[0-9]*/cmdline)
    grep -lsa "$folder" "${processes[@]}" | cut -d/ -f3 | xargs -r kill -9 2>/dev/null || true
    grep -o " $folder[^ ]*" /proc/mounts | sort -r | while read -r place; do umount -l "$place"; done || true
    rm -rf "$folder"
    find /sys/fs/cgroup -depth -type d -path "*/$groups*" -exec rmdir {} + 2>/dev/null || true
}

runtimes=()
if command -v runsc >/dev/null; then
    case "$(runsc flags 2>&1)" in
        *" -host-uds"*) uds=--host-uds=open ;;
        *) uds=--fsgofer-host-uds ;;  # releases before 2022-12
    esac
    printf '#!/bin/sh\nexec runsc %s --network=none "$@"\n' "$uds" >"$folder/runsc"
    chmod +x "$folder/runsc"
    runtimes=(--add-runtime "runsc=$folder/runsc")
fi

setsid dockerd --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs \
    --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/pid" \
    --cgroup-parent "/$groups" --host "unix://$folder/docker.sock" "${runtimes[@]}" \
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
