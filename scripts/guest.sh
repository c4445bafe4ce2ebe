#!/usr/bin/env bash
# Makes what a virtual machine of the live tests boots: the kernel of Debian's package, and a root
# file system of busybox, iperf3 and the modules that a virtio card and its queues need.
#
#   scripts/guest.sh            target/guest/vmlinuz, target/guest/initrd.gz
#   scripts/guest.sh full       target/guest-full/…: the kernel for all machines, which has e1000
#   scripts/guest.sh backports  target/guest-backports/…: the newest kernel (7.3 or later), with TAPs
#   scripts/guest.sh switchdev  target/guest-switchdev/…: a kernel of 6.6 or later, with bridges,
#                               VXLAN and the driver of QEMU's switch (scripts/rocker.sh)
#
# `backports` and `switchdev` ask the machine's own archive for one suite more, with lists and
# settings of its own: the machine's package lists stay as they are.
#
# It does nothing if they are there and this script made them. The machine speaks at its serial
# port: a shell. A lab adds files of its own behind the archive, `/lab` among them, which is started.
#
# From the kernel's command line it takes `ip4=ADDRESS/PREFIX` and `mtu=BYTES` for its card, and
# `plain` if nothing is to be set for losslessness.
set -euo pipefail
cd "$(dirname "$0")/.."

# The newest kernel for machines in a cloud is small, and knows no card but virtio.
case ${1:-} in
'') folder=guest meta=linux-image-cloud-amd64 ;;
full) folder=guest-full meta=linux-image-amd64 ;;
backports) folder=guest-backports meta=linux-image-cloud-amd64 suite=trixie-backports ;;
switchdev)
    # Programs of the headers package run here: they are of the machine's own release.
    folder=guest-switchdev meta=linux-image-amd64
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME-backports")
    ;;
*)
    echo "usage: scripts/guest.sh [full | backports | switchdev]" >&2
    exit 2
    ;;
esac
out=${CARGO_TARGET_DIR:-target}/$folder
recipe=$(cat scripts/guest.sh scripts/guest-lossless.sh scripts/rocker.sh | sha256sum)
if [ -s "$out/vmlinuz" ] && [ -s "$out/initrd.gz" ] && [ "$recipe" = "$(cat "$out/recipe" 2>/dev/null)" ]; then
    exit 0
fi
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "${suite:-}" ]; then
    # shellcheck source=scripts/suite.sh
    . scripts/suite.sh
    use_suite "$suite" "$work/apt"
fi
# Newer packages have the kernel, and its modules, in packages of their own.
packages=$(apt-cache depends --recurse --important $meta 2>/dev/null |
    sed -n 's/^ *Depends: \(linux-\(image\|binary\|modules\)-[0-9][^ ]*\)$/\1/p' | sort -u)
if [ -z "$packages" ]; then
    echo "no package has the kernel of a virtual machine: is this a Debian with a package list?" >&2
    exit 1
fi
echo "missing:" $packages "for the live tests' virtual machines (unpacked, not installed)"
# shellcheck disable=SC2086
(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download $packages &&
    for package in ./*.deb; do dpkg -x "$package" kernel; done)
[ "${1:-}" != switchdev ] || scripts/rocker.sh "$work/kernel" "$work"

root=$work/root
mkdir -p "$root"/{bin,opt,lib/modules,proc,sys,dev,tmp,run,etc}
cp /bin/busybox "$root/bin/"
cp scripts/guest-lossless.sh "$root/opt/"
for program in iperf3 tc ip; do
    path=$(command -v "$program")
    cp "$path" "$root/opt/"
    # What it is linked with, at the same paths.
    ldd "$path" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Ln "$library" "$root$library"
    done
done
# In the order in which they need each other.
modules='virtio/virtio_ring virtio/virtio virtio/virtio_pci_legacy_dev
    virtio/virtio_pci_modern_dev virtio/virtio_pci failover net/net_failover net/virtio_net
    sched/sch_mqprio_lib sched/sch_mqprio char/virtio_console ipv4/tcp_vegas e1000/e1000 ipv4/inet_diag
    ipv4/udp_diag'
[ -z "${suite:-}" ] || modules+=' net/tun net/veth'
[ "${1:-}" != switchdev ] || modules+=' llc/llc 802/stp bridge/bridge ipv4/udp_tunnel
    ipv6/ip6_udp_tunnel vxlan/vxlan rocker/rocker'
for module in $modules; do
    name=${module##*/}
    find "$work/kernel" -name "$name.ko*" -exec cp {} "$root/lib/modules/" \;
    [ ! -e "$root/lib/modules/$name.ko.xz" ] || unxz "$root/lib/modules/$name.ko.xz"
    echo "$name" >>"$root/lib/modules/order"
done

cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/opt
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
    [ -e /lib/modules/$module.ko ] && insmod /lib/modules/$module.ko
done </lib/modules/order
for word in $(cat /proc/cmdline); do
    case $word in
    ip4=*) ip4=${word#ip4=} ;;
    mtu=*) mtu=${word#mtu=} ;;
    plain) plain=yes ;;
    esac
done
ip link set lo up
ip link set eth0 mtu "${mtu:-1450}"
[ -z "${ip4:-}" ] || ip addr add "$ip4" dev eth0
ip link set eth0 up
# By their paths: the shell has a `tc` and an `ip` of its own.
[ -n "${plain:-}" ] || TC=/opt/tc IP=/opt/ip /opt/guest-lossless.sh eth0
[ ! -x /lab ] || setsid /lab &
stty -echo
echo "READY"
# A shell at a terminal changes its mode around each line, and a line that comes meanwhile can look
# like the end of its input: another one takes it then, or the machine would end.
while :; do
    sh
done
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$out/initrd.gz"
find "$work/kernel" -name 'vmlinuz*' -exec cp {} "$out/vmlinuz" \;
echo "$recipe" >"$out/recipe"
