#!/usr/bin/env bash
# What two machines have already, in network namespaces of this one: a cable, a certificate each,
# and two containers.
#
#   examples/two-hosts.sh up | wait | down
#
#   web ┐                                   ┌ db
#       h1 eth0 10.0.0.1 ═══ 10.0.0.2 eth0 h2
#
# `wait` ends when the daemons of both hosts answer. Needs root. The certificates lie in tls/ beside
# it, where the files of the two hosts look.
set -euo pipefail

PATH=$PATH:/usr/sbin:/sbin
spaces=(h1 h2 web db)
tls=$(dirname "$0")/tls

up() {
    local n
    for n in "${spaces[@]}"; do
        if [ -e "/run/netns/$n" ]; then
            echo "there is a network namespace $n already; '$0 down' takes it away" >&2
            exit 1
        fi
    done
    if ! command -v sluice >/dev/null; then
        echo "sluice is not in the PATH: 'make build', then PATH=\$PATH:\$PWD/target/release" >&2
        exit 1
    fi
    if ! command -v ping >/dev/null; then
        apt-get install -y iputils-ping >/dev/null
    fi
    for n in "${spaces[@]}"; do
        ip netns add "$n"
        ip -n "$n" link set lo up
    done
    ip -n h1 link add eth0 type veth peer name eth0 netns h2
    for n in 1 2; do
        ip -n "h$n" addr add "10.0.0.$n/24" dev eth0
        ip -n "h$n" link set eth0 up
    done
    if [ ! -d "$tls/h1" ] || [ ! -d "$tls/h2" ]; then
        sluice fabric cert --out "$tls" h1 h2
    fi
}

# A daemon answers on its socket a moment after its start.
wait_for_daemons() {
    local host limit=$((SECONDS + 30))
    for host in h1 h2; do
        until sluice show ports --on "$host" >/dev/null 2>&1; do
            if [ "$SECONDS" -ge "$limit" ]; then
                echo "$host does not answer: is 'sluice daemon' running in it?" >&2
                exit 1
            fi
            sleep 0.1
        done
    done
}

down() {
    local n
    for n in "${spaces[@]}"; do
        # It may not be there.
        ip netns del "$n" 2>/dev/null || true
    done
}

case "${1:-}" in
up | down) "$1" ;;
wait) wait_for_daemons ;;
*)
    sed -n '2,11p' "$0" >&2
    exit 2
    ;;
esac
