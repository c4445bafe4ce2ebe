#!/usr/bin/env bash
# Installs a package on a copy of this machine that is thrown away, upgrades it beneath a running host
# with two containers that speak, removes it, and purges it. Called within namespaces of its own, of
# mounts and of the network; nothing of the machine changes.
#
#   try.sh OLD.deb NEW.deb FOLDER
set -euo pipefail
. "$(dirname "$0")/root.sh"
work=$3
root=$work/root
mkdir -p "$work/packages"
cp "$1" "$work/packages/old.deb"
cp "$2" "$work/packages/new.deb"
make_root "$work" "$work/packages"
within() { "${inside[@]}" "$@"; }
fail() {
    echo "$*" >&2
    cat "$work/daemon.log" "$work/ping" >&2 2>/dev/null || true
    exit 1
}
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; [ -z "$pid" ] || wait "$pid" 2>/dev/null || true' EXIT

within dpkg --install /packages/old.deb >"$work/install" 2>&1 || fail "$(cat "$work/install")"
within getent passwd sluice >/dev/null || fail "there is no user sluice"
name=$(uname -n)
grep -q "name = \"${name%%.*}\"" "$root/etc/sluice/host.toml" || fail "no configuration was written"
within sluice --version >/dev/null
[ -e "$root/usr/share/man/man1/sluice.1.gz" ] || fail "there is no manual"
within systemd-analyze verify sluice.service >"$work/verify" 2>&1 || fail "$(cat "$work/verify")"

ip link set lo up
# Not by the function, whose process would be another one than the daemon's.
"${inside[@]}" sluice daemon --config /etc/sluice/host.toml >"$work/daemon.log" 2>&1 &
pid=$!
host=${name%%.*}
for _ in $(seq 100); do
    [ ! -S "$root/run/sluice/$host/show.sock" ] || break
    sleep 0.1
done
ip link add up0 type veth peer name up1
ip link set up0 up
ip link set up1 up
ip address add 192.0.2.1/24 dev up0
within sluice fabric create prod --underlay up0 >/dev/null
within sluice vnet create blue --vni 100 >/dev/null
for one in 1 2; do
    within ip netns add "c$one"
    within sluice port add --netns "c$one" --vnet blue --ip "10.42.0.$one/24" >/dev/null
done
# Sixty echoes a second, for as long as the upgrade takes and longer.
within ip netns exec c1 ping -q -i 0.016 -w 8 10.42.0.2 >"$work/ping" 2>&1 &
ping=$!
sleep 1
echo "# mine" >>"$root/etc/sluice/host.toml"
before=$(within sluice show worker --json >/dev/null && cat "$root/run/sluice/$host/data.pid")
within dpkg --install /packages/new.deb >"$work/upgrade" 2>&1 || fail "$(cat "$work/upgrade")"
grep -qi "goes on with the program before" "$work/upgrade" && fail "$(cat "$work/upgrade")"
after=$(cat "$root/run/sluice/$host/data.pid")
[ "$before" != "$after" ] || fail "no data process took over"
grep -q "# mine" "$root/etc/sluice/host.toml" || fail "the configuration was replaced"
wait "$ping" || fail "the containers do not reach each other"
grep -q " 0% packet loss" "$work/ping" || fail "frames were lost in the upgrade"
kill "$pid"
wait "$pid" || fail "the host does not end well"
data=$(cat "$root/run/sluice/$host/data.pid")
[ ! -d "/proc/$data" ] || fail "its data process goes on"
pid=

within dpkg --remove sluice >"$work/remove" 2>&1 || fail "$(cat "$work/remove")"
[ ! -e "$root/usr/bin/sluice" ] || fail "the program stays"
[ -e "$root/etc/sluice/host.toml" ] && [ -d "$root/var/lib/sluice" ] || fail "the state is gone"
within dpkg --purge sluice >"$work/purge" 2>&1 || fail "$(cat "$work/purge")"
[ ! -e "$root/etc/sluice" ] && [ ! -e "$root/var/lib/sluice" ] || fail "something is left"
sed -n 's/^\(.*packet loss\).*/\1/p' "$work/ping"
