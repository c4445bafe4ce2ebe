#!/usr/bin/env bash
# Gets libvirt in the machine's own release of Debian, without installing it: target/libvirt/root has
# its files, to be laid over the machine's in a mount namespace.
#
# It does nothing if they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/libvirt
[ ! -x "$out/root/usr/sbin/libvirtd" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$work" && apt-get -qq download -o APT::Sandbox::User=root \
    libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients libvirt0 libssh-4 libyajl2)
for package in "$work"/*.deb; do
    dpkg-deb --extract "$package" "$work/root"
done
# What it is linked with beside these must be on the machine.
library=$work/root/usr/lib/$(uname -m)-linux-gnu
missing=$(LD_LIBRARY_PATH=$library ldd "$work/root/usr/sbin/libvirtd" "$work/root/usr/bin/virsh" \
    "$library/libvirt/connection-driver/libvirt_driver_qemu.so" | grep 'not found' | sort -u || true)
[ -z "$missing" ] || {
    echo "libraries that libvirt needs are not there: $missing" >&2
    exit 1
}
"$work/root/usr/sbin/libvirtd" --version 2>/dev/null || LD_LIBRARY_PATH=$library "$work/root/usr/sbin/libvirtd" --version
rm -rf "$out"
mkdir -p "$out"
mv "$work/root" "$out/root"
