#!/usr/bin/env bash
# Builds the package for Debian of the present commit twice, in two folders and with two names of
# cargo's folder, and requires that both are the same bytes, name no path of this machine, and that
# the program is small enough. Takes two builds from cold; target/reproducible has the packages.
#
#   scripts/reproducible.sh
#
# BUILDS (default: a folder that goes afterwards) is where it builds.
set -euo pipefail
cd "$(dirname "$0")/.."
# Largest program, stripped (30 MB).
readonly PROGRAM_SIZE_MAX=30000000
repository=$PWD
# Of both builds, whatever is committed meanwhile.
commit=$(git rev-parse HEAD)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo_home=$(realpath -m "${CARGO_HOME:-$HOME/.cargo}")
builds=${BUILDS:-$(mktemp -d)}
work=$(mktemp -d)
[ -n "${BUILDS:-}" ] || trap 'rm -rf "$builds" "$work"' EXIT

git diff --quiet HEAD || echo "uncommitted changes are not in it" >&2
rm -rf "$target/reproducible"
mkdir -p "$target/reproducible" "$builds"

# NAME: builds in a folder of that name.
build() {
    local folder=$builds/$1 package
    git clone --quiet --shared --no-checkout "$repository" "$folder/tree"
    git -C "$folder/tree" checkout --quiet --detach "$commit"
    ln -sfn "$cargo_home" "$folder/cargo"
    package=$(cd "$folder/tree" && env -u CARGO_TARGET_DIR CARGO_HOME="$folder/cargo" \
        make --silent --no-print-directory deb | tail -n 1)
    cp "$package" "$target/reproducible/$1.deb"
    dpkg-deb --raw-extract "$package" "$work/$1"
}

build one
build another-with-a-longer-name

status=0
first=$work/one second=$work/another-with-a-longer-name
if cmp "$target"/reproducible/*.deb; then
    echo "both packages are the same bytes: $(sha256sum "$target/reproducible/one.deb" | cut -c 1-64)"
else
    diff --recursive --brief "$first" "$second" || true
    status=1
fi
named=$(grep --recursive --text --fixed-strings --files-with-matches \
    -e "$builds" -e "$cargo_home" -e "$(rustc --print sysroot)" -e "$repository" "$first" || true)
if [ -n "$named" ]; then
    echo "these name a path of this machine:" "${named//$first/}"
    status=1
fi
size=$(stat --format %s "$first/usr/bin/sluice")
echo "sluice, stripped: $size bytes, at most $PROGRAM_SIZE_MAX are wanted"
[ "$size" -le "$PROGRAM_SIZE_MAX" ] || status=1
exit "$status"
