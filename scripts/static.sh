#!/usr/bin/env bash
# Builds a program that runs where Sluice is not installed as one static file, for any Linux of this
# architecture.
#
#   scripts/static.sh guest [--debug]      target/guest/sluice-guest: the agent in a virtual machine
#   scripts/static.sh cni [--debug]        target/cni/sluice-cni, sluice-netavark, sluice-docker: the
#                                          plugins of container runtimes
#
# With the C library of musl where rustup has that target, else with glibc linked in, which these
# programs need for nothing that is only there dynamically (they resolve no names).
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
machine=$(uname -m)
profile=(--release) folder=release

case ${1:-} in
guest) name=guest programs=(sluice-guest) ;;
cni) name=cni programs=(sluice-cni sluice-netavark sluice-docker) ;;
*)
    echo "usage: scripts/static.sh guest|cni [--debug]" >&2
    exit 2
    ;;
esac
[ "${2:-}" != --debug ] || profile=() folder=debug

has() { rustup target list --installed 2>/dev/null | grep -qx "$1"; }
triple=$machine-unknown-linux-musl
has "$triple" || triple=$machine-unknown-linux-gnu
# With a target named, the flag is not for build scripts and macros, which cannot be static.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static -C strip=symbols" \
    cargo build "${profile[@]}" --package "sluice-$name" --target "$triple" --target-dir "$target/static"
mkdir -p "$target/$name"
for file in "${programs[@]}"; do
    program=$target/$name/$file
    cp "$target/static/$triple/$folder/$file" "$program"
    if ldd "$program" 2>/dev/null | grep -q '=>'; then
        echo "$program is linked dynamically: $triple cannot link it statically" >&2
        exit 1
    fi
    ls -l "$program"
done
