#!/usr/bin/env bash
# Gets netavark, Podman's network stack, in the release that has plugins (1.14), with the C library
# that it was linked with: target/netavark/netavark, a script that starts it.
#
# Debian 12 has an older one. The machine's own archive is asked for the next release, with lists and
# settings of their own: the machine's packages and its lists stay as they are. It does nothing if
# the program is there.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/netavark
suite=trixie
[ ! -x "$out/netavark" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' |
    head -n 1)
mkdir -p "$work"/lists/partial "$work"/cache/archives/partial "$work"/root
signed=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$signed] ${archive:?no archive of Debian} $suite main" >"$work/sources"
# No package counts as installed: all that it needs is got.
: >"$work/status"
cat >"$work/conf" <<CONF
Dir::Etc::sourcelist "$work/sources";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
APT::Sandbox::User "root";
CONF
export APT_CONFIG=$work/conf
apt-get -qq update
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
