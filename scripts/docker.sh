#!/usr/bin/env bash
# Gets Docker and containerd in the machine's own release of Debian, without installing them, and an
# image of busybox in two forms: target/docker/bin, target/docker/image.tar (a root file system, for
# `docker import`) and target/docker/oci.tar (an OCI image, for `ctr images import`).
#
# It does nothing if they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/docker
[ ! -f "$out/oci.tar" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$work" && apt-get -qq download -o APT::Sandbox::User=root docker.io containerd runc)
for package in "$work"/*.deb; do
    dpkg-deb --extract "$package" "$work/root"
done
rm -rf "$out"
mkdir -p "$out/bin" "$work/image/bin" "$work/image/run" "$work/image/var"
for program in dockerd docker containerd containerd-shim-runc-v2 ctr runc; do
    file=$(find "$work"/root/usr/bin "$work"/root/usr/sbin -name "$program" -type f | head -n 1)
    cp "${file:?no $program}" "$out/bin/"
done

cp "$(command -v busybox)" "$work/image/bin/busybox"
for name in sh sleep ip ping; do
    ln -s busybox "$work/image/bin/$name"
done
# As in images of distributions.
ln -s /run "$work/image/var/run"
"$out/bin/dockerd" --version
"$out/bin/containerd" --version
tar --create --file "$out/image.tar" --directory "$work/image" .

# The image specification: a blob has the name of its digest.
layout=$work/layout
mkdir -p "$layout/blobs/sha256"
# FILE: keeps it as a blob; prints its digest and size as keys of JSON.
blob() {
    local digest
    digest=$(sha256sum <"$1" | cut -d ' ' -f 1)
    cp "$1" "$layout/blobs/sha256/$digest"
    echo "\"digest\": \"sha256:$digest\", \"size\": $(stat --format %s "$1")"
}
type=application/vnd.oci.image
layer=$(blob "$out/image.tar")
digest=$(sha256sum <"$out/image.tar" | cut -d ' ' -f 1)
cat >"$work/config" <<JSON
{"architecture": "$(dpkg --print-architecture)", "os": "linux",
 "config": {"Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$digest"]}}
JSON
config=$(blob "$work/config")
cat >"$work/manifest" <<JSON
{"schemaVersion": 2, "mediaType": "$type.manifest.v1+json",
 "config": {"mediaType": "$type.config.v1+json", $config},
 "layers": [{"mediaType": "$type.layer.v1.tar", $layer}]}
JSON
manifest=$(blob "$work/manifest")
cat >"$layout/index.json" <<JSON
{"schemaVersion": 2, "manifests": [{"mediaType": "$type.manifest.v1+json", $manifest,
 "annotations": {"io.containerd.image.name": "sluice.test/box:1", "org.opencontainers.image.ref.name": "1"}}]}
JSON
echo '{"imageLayoutVersion": "1.0.0"}' >"$layout/oci-layout"
tar --create --file "$out/oci.new" --directory "$layout" .
mv "$out/oci.new" "$out/oci.tar"
