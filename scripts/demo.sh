#!/usr/bin/env bash
# Runs the demo lab with the release build, as root.
set -euo pipefail
cd "$(dirname "$0")/.."

sluice=${CARGO_TARGET_DIR:-target}/release/sluice
out=${OUT:-out/demo}

cat <<TEXT
The demo builds a small data centre out of network namespaces on this machine, sends the same load
through it under each flow-control policy, and takes it down again. At the end it sends it through
hosts with a Linux bridge and VXLAN, with TCP as it is today, and through Sluice. It takes about four
minutes.

It needs root, because only root may make namespaces and devices. It makes
  - network namespaces, shown by \`ip netns list\` while it runs, with veth and TAP devices in them
  - /run/sluice-lab, where it notes what it made, so that \`make clean-lab\` can remove it
  - $out, with the results and a report to open in a browser
It changes no address, route or device of this machine's own network.

TEXT
root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "There is no sudo: run \`make demo\` as root." >&2
        exit 1
    fi
    root=(sudo)
fi
mkdir -p "$out"
status=0
"${root[@]}" "$sluice" lab run demo --out "$out" || status=$?
if [ ${#root[@]} -gt 0 ]; then
    sudo chown -R "$(id -u):$(id -g)" "$out"
fi
exit "$status"
