#!/usr/bin/env bash
# Builds a package for Debian of the built programs: target/deb/sluice_VERSION_ARCHITECTURE.deb, and
# prints its path. Two builds of one commit are the same bytes (`scripts/reproducible.sh` tries it).
#
#   scripts/deb.sh [VERSION]
#
# VERSION is that of the workspace with the date of the commit, unless it is said. PROGRAMS and
# PLUGINS are those of scripts/install.sh.
set -euo pipefail
# Of what is made here, whatever the user's is.
umask 022
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
number=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Of a tree without a history: that of its manifest.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat --format %Y Cargo.toml)}
export SOURCE_DATE_EPOCH
version=${1:-$number+$(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y%m%d.%H%M)}
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

scripts/install.sh "$root"
install -D -m 644 LICENSE "$root/usr/share/doc/sluice/copyright"
# The name under which Debian's tools look for it.
gzip --no-name --best --stdout CHANGELOG.md >"$root/usr/share/doc/sluice/changelog.gz"
rm "$root/usr/share/doc/sluice/CHANGELOG.md"

mkdir -p "$root/DEBIAN" "$work/debian"
for script in postinst prerm postrm; do
    install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"
done
touch "$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/sluice" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
size=$(du --summarize --apparent-size --block-size 1024 "$root/usr" | cut -f 1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" \
    -e "s/@DEPENDS@/${depends:-libc6}/" packaging/debian/control >"$root/DEBIAN/control"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

mkdir -p "$target/deb"
package=$target/deb/sluice_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
