#!/usr/bin/env bash
# Makes the modules of a client of the Container Runtime Interface for Python, from the interface
# file that Kubernetes publishes: target/cri.
#
# It does nothing if they are there. `crictl` would be a client, too; it takes minutes to build.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/cri
[ ! -f "$out/api_pb2_grpc.py" ] || exit 0
command -v go >/dev/null || {
    echo "the interface file comes as a module of Go: install Go 1.21 or newer" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rm -rf "$out"
timeout 120 python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
    --target "$out" --requirement python/cri.txt
dir=$(cd "$work" && timeout 60 go mod download -json k8s.io/cri-api@v0.34.0 |
    sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cp "${dir:?the module has no folder}/pkg/apis/runtime/v1/api.proto" "$work"
# shellcheck disable=SC2097,SC2098
PYTHONPATH=$out python3 -m grpc_tools.protoc --proto_path "$work" --python_out "$work" \
    --grpc_python_out "$work" "$work/api.proto"
cp "$work/api_pb2.py" "$work/api_pb2_grpc.py" "$out"
