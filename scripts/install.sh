#!/usr/bin/env bash
# Installs the built programs with what belongs to them: units of systemd, manual pages, completions
# of shells, plugins of container runtimes, rules for Prometheus, a dashboard.
#
#   scripts/install.sh [DIR]
#
# DIR stands for / (default: /). PROGRAMS is the folder of `sluice` (default: target/dist), PLUGINS
# that of the plugins (default: target/cni, as `make cni` builds them; those that are not there are
# left out).
set -euo pipefail
cd "$(dirname "$0")/.."
root=${1:-/}
target=${CARGO_TARGET_DIR:-target}
programs=${PROGRAMS:-$target/dist}
plugins=${PLUGINS:-$target/cni}
library=/usr/lib
libexec=$library/sluice

[ -x "$programs/sluice" ] || {
    echo "$programs/sluice is not there; build it (make dist)" >&2
    exit 1
}

# FOLDER FILE [NAME]
put() { install -D -m 644 "$2" "$root$1/${3:-$(basename "$2")}"; }
# FOLDER FILE [NAME]: a program, without symbols.
put_program() { install -D -m 755 --strip "$2" "$root$1/${3:-$(basename "$2")}"; }

put_program /usr/bin "$programs/sluice"
if [ -x "$plugins/sluice-docker" ]; then
    put_program /usr/bin "$plugins/sluice-docker"
    put $library/systemd/system packaging/sluice-docker.service
fi
# CNI calls a plugin by the name of its type, and netavark by that of its driver.
[ ! -x "$plugins/sluice-cni" ] || put_program $library/cni "$plugins/sluice-cni" sluice
[ ! -x "$plugins/sluice-netavark" ] || put_program $libexec/netavark "$plugins/sluice-netavark" sluice
install -D -m 755 packaging/wireshark/sluice-extcap "$root$libexec/sluice-extcap"

put $library/systemd/system packaging/sluice.service
put $library/sysusers.d packaging/sluice.sysusers sluice.conf
put /usr/share/doc/sluice README.md
put /usr/share/doc/sluice CHANGELOG.md
put /usr/share/doc/sluice/examples docs/host.toml
put /usr/share/sluice packaging/prometheus/alerts.yml
put /usr/share/sluice packaging/grafana/sluice.json

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$programs/sluice" man "$made/man"
for page in "$made"/man/*.1; do
    gzip --no-name --best "$page"
    put /usr/share/man/man1 "$page.gz"
done
# Packages that are in each program.
if python3 -c 'import tomllib' 2>/dev/null; then
    for package in sluice sluice-cni; do
        scripts/sbom.py $package >"$made/$package.cdx.json"
        put /usr/share/doc/sluice "$made/$package.cdx.json"
    done
else
    echo "no bill of materials is installed: it takes Python 3.11" >&2
fi
for shell in bash zsh fish; do
    "$programs/sluice" completions $shell >"$made/$shell"
done
put /usr/share/bash-completion/completions "$made/bash" sluice
put /usr/share/zsh/vendor-completions "$made/zsh" _sluice
put /usr/share/fish/vendor_completions.d "$made/fish" sluice.fish
