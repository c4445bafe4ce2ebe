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

# shellcheck source=examples/namespaces.sh
. "$(dirname "$0")/namespaces.sh"
spaces=(h1 h2 web db)
tls=$(dirname "$0")/tls

up() {
    local n
    require_no_spaces
    require_programs
    add_spaces
    ip -n h1 link add eth0 type veth peer name eth0 netns h2
    for n in 1 2; do
        ip -n "h$n" addr add "10.0.0.$n/24" dev eth0
        ip -n "h$n" link set eth0 up
    done
    if [ ! -d "$tls/h1" ] || [ ! -d "$tls/h2" ]; then
        sluice fabric cert --out "$tls" h1 h2
    fi
}

answers() { said=$(sluice show ports --on "$1" 2>&1 >/dev/null); }

case "${1:-}" in
up) up ;;
down) delete_spaces ;;
wait) wait_for_daemons h1 h2 ;;
*)
    sed -n '2,11p' "$0" >&2
    exit 2
    ;;
esac
