#!/usr/bin/env bash
# Builds the driver of QEMU's switch, `rocker`, for a kernel of Debian, whose packages do not have
# it:
#
#   scripts/rocker.sh KERNEL WORK    rocker.ko into KERNEL/lib/modules, beside the kernel's own
#
# KERNEL is where the packages of the kernel are unpacked. The source is that of Debian's package of
# the same version, in WORK, a folder that the caller removes: it is under the GPL, and nothing of it
# stays. Apt asks where the caller lets it (`APT_CONFIG`).
set -euo pipefail

kernel=$(realpath "$1")
work=$(realpath "$2")
release=$(basename "$kernel"/lib/modules/*)
headers=linux-headers-$release
common=${headers%-amd64}-common
kbuild=linux-kbuild-${release%-amd64}
source=linux-source-$(sed 's/^\([0-9]*\.[0-9]*\).*/\1/' <<<"$release")

mkdir -p "$work/rocker"
cd "$work/rocker"
apt-get -qq -o APT::Sandbox::User=root download "$headers" "$common" "$kbuild" "$source"
for package in ./*.deb; do
    dpkg -x "$package" .
done
# Its directories alone, of a tree of 80,000 files; the archive is sorted.
tar --extract --file usr/src/$source.tar.* --strip-components 5 --wildcards \
    '*/drivers/net/ethernet/rocker/*'

# What was to be installed looks for the other packages in /usr.
sed -i "s,/usr/src,$PWD/usr/src," "usr/src/$headers/Makefile"
# Without it nobody asks for a description of the module's types, which takes one more program.
rm -f "usr/src/$headers/vmlinux"
# The kernel's configuration leaves the driver out; its Makefile asks for it by this name.
make -s -C "usr/src/$headers" M="$PWD" CONFIG_ROCKER=m modules
strip --strip-debug rocker.ko
cp rocker.ko "$kernel/lib/modules/$release/"
