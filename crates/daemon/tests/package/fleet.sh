#!/usr/bin/env bash
# Installs a package on three copies of this machine that are thrown away, each a host of one fabric,
# and upgrades one after the other beneath traffic between them: each echo comes back, and the
# management API is there at two hosts or more. Called within namespaces of its own, of mounts and of
# the network; nothing of the machine changes.
#
#   fleet.sh OLD.deb NEW.deb FOLDER
set -euo pipefail
. "$(dirname "$0")/root.sh"
work=$3
hosts=(1 2 3)
mkdir -p "$work/packages"
cp "$1" "$work/packages/old.deb"
cp "$2" "$work/packages/new.deb"
# Names of this script's namespaces, for it alone.
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns

pids=()
finish() {
    touch "$work/over"
    [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait
}
trap finish EXIT
fail() {
    echo "$*" >&2
    tail -n 40 "$work"/h?/daemon.log >&2 2>/dev/null || true
    tail -n 5 "$work"/ping? "$work/looks" >&2 2>/dev/null || true
    exit 1
}

# HOST: sets `at`, the beginning of a command on a host. All of it is one process, so that it can be
# stopped.
at_host() {
    # shellcheck disable=SC2154 # `inside` is that of make_root.
    at=(nsenter --net="/run/netns/h$1" unshare --uts sh -c 'hostname "$0" && exec "$@"' "h$1"
        chroot "$work/h$1/root" "${inside[@]:2}")
}
# HOST COMMAND…: runs a command on a host.
on() {
    at_host "$1"
    "${at[@]}" "${@:2}"
}
# HOST COMMAND…: runs a command in the container of a host.
in_container() { on "$1" ip netns exec c "${@:2}"; }
# HOST: prints the number of its data process.
data_of() { cat "$work/h$1/root/run/sluice/h$1/data.pid"; }
# HOST: asks its management API.
asks() {
    curl --silent --fail --max-time 2 --output /dev/null \
        --unix-socket "$work/h$1/root/run/sluice/h$1/http.sock" http://localhost/v1/ports
}
# TEXT COMMAND…: waits until a command succeeds.
wait_for() {
    for _ in $(seq 300); do
        ! "${@:2}" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    fail "$1 does not come"
}
all_are_connected() {
    on "$1" sluice fabric members --json | python3 -c '
import json, sys
members = json.load(sys.stdin)["members"]
sys.exit(len(members) != 3 or not all(one["connected"] for one in members))'
}

ip link set lo up
ip link add bridge type bridge
ip link set bridge up
for host in "${hosts[@]}"; do
    make_root "$work/h$host" "$work/packages"
    ip netns add "h$host"
    ip link add "up$host" type veth peer name up0 netns "h$host"
    ip link set "up$host" master bridge up
    ip -n "h$host" link set lo up
    ip -n "h$host" link set up0 up
    ip -n "h$host" address add "192.0.2.$host/24" dev up0
    on "$host" dpkg --install /packages/old.deb >"$work/h$host/install" 2>&1 ||
        fail "$(cat "$work/h$host/install")"
    at_host "$host"
    "${at[@]}" sluice daemon --config /etc/sluice/host.toml >"$work/h$host/daemon.log" 2>&1 &
    pids+=($!)
    wait_for "the host h$host" test -S "$work/h$host/root/run/sluice/h$host/show.sock"
done
on 1 sluice fabric create prod --underlay up0 >/dev/null
for host in 2 3; do
    token=$(on 1 sluice fabric token)
    on "$host" sluice fabric join 192.0.2.1 --token "$token" >/dev/null
done
for host in "${hosts[@]}"; do
    wait_for "the connections of h$host" all_are_connected "$host"
done
on 1 sluice vnet create blue --vni 100 >/dev/null
for host in "${hosts[@]}"; do
    on "$host" ip netns add c
    on "$host" sluice port add --netns c --vnet blue --ip "10.42.0.$host/24" >/dev/null
done
for host in "${hosts[@]}"; do
    next=$((host % 3 + 1))
    wait_for "10.42.0.$next at h$host" in_container "$host" ping -q -c 1 -W 1 "10.42.0.$next"
done

# Sixty echoes a second from each container to the next one, until they are told to stop.
for host in "${hosts[@]}"; do
    at_host "$host"
    "${at[@]}" ip netns exec c ping -n -i 0.016 "10.42.0.$((host % 3 + 1))" \
        >"$work/ping$host" 2>&1 &
    pids+=($!)
done
# Looks at the management API of every host: how many have it.
(
    while [ ! -e "$work/over" ]; do
        there=0
        for host in "${hosts[@]}"; do
            ! asks "$host" || there=$((there + 1))
        done
        echo "$there"
        sleep 0.02
    done >"$work/looks"
) &
looking=$!
sleep 1
for host in "${hosts[@]}"; do
    before=$(data_of "$host")
    on "$host" dpkg --install /packages/new.deb >"$work/h$host/upgrade" 2>&1 ||
        fail "$(cat "$work/h$host/upgrade")"
    ! grep -qi "goes on with the program before" "$work/h$host/upgrade" ||
        fail "$(cat "$work/h$host/upgrade")"
    [ "$before" != "$(data_of "$host")" ] || fail "no data process of h$host took over"
    for member in "${hosts[@]}"; do
        wait_for "the connections of h$member" all_are_connected "$member"
    done
    on "$host" sluice vnet create "after$host" --vni "20$host" >/dev/null
done
sleep 1
touch "$work/over"
wait "$looking"
for host in "${hosts[@]}"; do
    # It prints its sums when it is interrupted.
    kill -INT "${pids[$((2 + host))]}"
    wait "${pids[$((2 + host))]}" || fail "the echoes of h$host do not come back"
    # The last one is on its way when its sender is told to stop.
    counted=$(awk -F 'icmp_seq=' '/icmp_seq=/ { seen[$2 + 0]++ } / packets transmitted/ { sent = $1 + 0 }
        END { for (at = 1; at < sent; at++) wrong += seen[at] != 1; print wrong + 0, sent - 1 }' \
        "$work/ping$host")
    [ "${counted% *}" = 0 ] || fail "${counted% *} of ${counted#* } echoes of h$host were lost or doubled"
    echo "h$host to the next: ${counted#* } echoes, each came back once"
done
[ "$(sort -n "$work/looks" | head -n 1)" -ge 1 ] || fail "the API was away at all hosts"
echo "API at all three hosts in $(grep -c 3 "$work/looks") of $(wc -l <"$work/looks") looks," \
    "at $(sort -n "$work/looks" | head -n 1) at least"
