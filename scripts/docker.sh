#!/usr/bin/env bash
# Gets Docker in the machine's own release of Debian, without installing it, and an image of busybox:
# target/docker/bin and target/docker/image.tar.
#
# It does nothing if they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/docker
[ ! -f "$out/image.tar" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$work" && apt-get -qq download -o APT::Sandbox::User=root docker.io containerd runc)
for package in "$work"/*.deb; do
    dpkg-deb --extract "$package" "$work/root"
done
rm -rf "$out"
mkdir -p "$out/bin" "$work/image/bin"
for program in dockerd docker containerd containerd-shim-runc-v2 runc; do
    file=$(find "$work"/root/usr/bin "$work"/root/usr/sbin -name "$program" -type f | head -n 1)
    cp "${file:?no $program}" "$out/bin/"
done

cp "$(command -v busybox)" "$work/image/bin/busybox"
for name in sh sleep ip ping; do
    ln -s busybox "$work/image/bin/$name"
done
"$out/bin/dockerd" --version
tar --create --file "$out/image.new" --directory "$work/image" .
mv "$out/image.new" "$out/image.tar"
