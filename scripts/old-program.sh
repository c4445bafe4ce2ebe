#!/usr/bin/env bash
# Builds an older program, and prints its path: that of the last tag, or of a commit that is named.
# The test of a rolling upgrade has it in $SLUICE_OLD.
set -euo pipefail
cd "$(dirname "$0")/.."

commit=${1:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
if [ -z "$commit" ]; then
    echo "There is no tag: name the commit of the older program, as \`$0 COMMIT\`." >&2
    exit 1
fi
commit=$(git rev-parse --verify --quiet "$commit^{commit}") || {
    echo "The repository has no commit \`$1\`." >&2
    exit 1
}
# Builds of all commits share what they are linked with.
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/old
sources=$folder/source
rm -rf "$sources"
mkdir -p "$sources"
git archive "$commit" | tar -x -C "$sources"
(cd "$sources" && CARGO_TARGET_DIR=$folder/target cargo build --locked --package sluice >&2)
program=$folder/sluice-${commit:0:12}
cp "$folder/target/debug/sluice" "$program"
rm -rf "$sources"
echo "$program"
