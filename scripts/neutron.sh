#!/usr/bin/env bash
# Gets OpenStack Neutron into a virtual environment of its own, target/neutron, for the live test of
# its driver. It does nothing if it is there.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/neutron
[ ! -x "$out/bin/python" ] || exit 0
# A folder that is not whole is never taken for one that is.
new=$out.new
rm -rf "$new"
# Debian's Python makes no environment with pip in it; the one outside installs into it.
python3 -m venv --without-pip "$new"
pip3 --python "$new/bin/python" install --quiet --disable-pip-version-check --no-compile --no-deps \
    --requirement python/neutron/neutron.txt
mv "$new" "$out"
