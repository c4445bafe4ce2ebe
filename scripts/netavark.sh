#!/usr/bin/env bash
# Gets netavark, Podman's network stack, in the release that has plugins (1.14), with the C library
# that it was linked with: target/netavark/netavark, a script that starts it.
#
# Debian 12 has an older one. It does nothing if the program is there.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/netavark
[ ! -x "$out/netavark" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/root"
# shellcheck source=scripts/suite.sh
. scripts/suite.sh
use_suite trixie "$work/apt"
(cd "$work" && apt-get -qq download netavark libc6 libgcc-s1)
for package in "$work"/*.deb; do
    dpkg-deb --extract "$package" "$work/root"
done
loader=$(cd "$work/root" && find . -name 'ld-linux*.so.*' | head -n 1)
libraries=$(dirname "$(cd "$work/root" && find . -name libc.so.6 | head -n 1)")
rm -rf "$out"
mkdir -p "$out"
cp -a "$work/root" "$out/root"
cat >"$out/netavark" <<START
#!/bin/sh
here=\$(dirname "\$0")/root
exec "\$here/$loader" --library-path "\$here/$libraries:\$here/usr/lib/\$(uname -m)-linux-gnu" \\
    "\$here/usr/lib/podman/netavark" "\$@"
START
chmod +x "$out/netavark"
"$out/netavark" --version
