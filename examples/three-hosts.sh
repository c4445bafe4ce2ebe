#!/usr/bin/env bash
# What three machines have already, in network namespaces of this one: a switch that joins them, and
# two containers.
#
#   examples/three-hosts.sh up | wait | down
#
#   web ┐                             ┌ db
#       h1 10.0.0.1     10.0.0.2 h2   h3 10.0.0.3
#         └ eth0 ──── bridge ─── eth0 ┘
#
# `wait` ends when the daemons of all hosts answer. What earlier hosts of these names have kept in
# /var/lib/sluice is put aside by `up`, and put back by `down`. Needs root.
set -euo pipefail

# shellcheck source=examples/namespaces.sh
. "$(dirname "$0")/namespaces.sh"
hosts=(h1 h2 h3)
spaces=("${hosts[@]}" wire web db)
state=/var/lib/sluice
# While it is there, the folders of the three hosts are those of this script.
mark=$state/three-hosts

up() {
    local n
    require_no_spaces
    for n in "${hosts[@]}"; do
        if [ -e "/run/sluice/$n/control.pid" ] && ! flock -n "/run/sluice/$n/control.pid" true; then
            echo "a host $n runs on this machine; stop it first" >&2
            exit 1
        fi
    done
    require_programs
    if [ ! -e "$mark" ]; then
        mkdir -p "$state"
        touch "$mark"
        for n in "${hosts[@]}"; do
            [ ! -e "$state/$n" ] || mv "$state/$n" "$state/$n.before"
        done
    fi
    add_spaces
    ip -n wire link add br0 type bridge
    ip -n wire link set br0 up
    for n in 1 2 3; do
        ip -n "h$n" link add eth0 type veth peer name "h$n" netns wire
        ip -n "h$n" addr add "10.0.0.$n/24" dev eth0
        ip -n "h$n" link set eth0 up
        ip -n wire link set "h$n" master br0 up
    done
}

# A host that waits for a fabric says so.
answers() { said=$(sluice fabric status --on "$1" 2>&1) || [[ $said == *"in no fabric"* ]]; }

down() {
    local n
    delete_spaces
    if [ -e "$mark" ]; then
        for n in "${hosts[@]}"; do
            rm -rf "${state:?}/$n"
            [ ! -e "$state/$n.before" ] || mv "$state/$n.before" "$state/$n"
        done
        rm -f "$mark"
    fi
}

case "${1:-}" in
up | down) "$1" ;;
wait) wait_for_daemons "${hosts[@]}" ;;
*)
    sed -n '2,12p' "$0" >&2
    exit 2
    ;;
esac
