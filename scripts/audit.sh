#!/usr/bin/env bash
# Looks for known weaknesses of what comes from outside (RustSec), and writes the bills of materials
# of the programs to target/sbom (CycloneDX).
#
# Fails if there is a weakness, and also if the database cannot be had: then nothing was looked at.
# One that was fetched before is used if the network is away, and its age is said.
set -euo pipefail
cd "$(dirname "$0")/.."
bills=${CARGO_TARGET_DIR:-target}/sbom

mkdir -p "$bills"
for package in sluice sluice-cni sluice-guest; do
    scripts/sbom.py $package >"$bills/$package.cdx.json"
    echo "bill of materials: $bills/$package.cdx.json"
done

if cargo deny fetch db 2>/dev/null; then
    exec cargo deny check advisories
fi
database=$(find "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" -maxdepth 2 -name .git 2>/dev/null | head -1 || true)
if [ -z "$database" ]; then
    echo "NOT CHECKED: the database of RustSec cannot be fetched, and no earlier copy is here" >&2
    exit 1
fi
when=$(git -C "${database%/.git}" log -1 --format=%cs)
echo "NOT UP TO DATE: the database of RustSec cannot be fetched; the copy of $when is used" >&2
exec cargo deny check --disable-fetch advisories
