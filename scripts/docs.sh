#!/usr/bin/env bash
# Builds the pages as a book, into target/book. Without mdbook it says how to get it, and skips.
#
# The book has the tree of the work tree, so that every link from page to page holds as it is
# written. Pages are those of docs/SUMMARY.md; files that a page links to are copied beside them.
# mdbook checks no links: `cargo xtask tidy` does, in the pages themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
stage=$target/book-src

if ! command -v mdbook >/dev/null; then
    echo "SKIPPED docs: mdbook is not installed. The pages in docs/ are the same without it."
    echo "To install it: cargo install mdbook --locked"
    exit 0
fi

rm -rf "$stage" "$target/book"
mkdir -p "$stage"
copy() { cp --parents "$@" "$stage"; }

# Pages, as git knows them or would take them.
mapfile -t pages < <(git ls-files --cached --others --exclude-standard '*.md' |
    while read -r page; do [ ! -f "$page" ] || echo "$page"; done)
copy "${pages[@]}"
# What pages link to and is no page: sources, scripts, configurations.
for page in "${pages[@]}"; do
    { grep -oE '\]\([^):#]+' "$page" || true; } | sed 's/^](//' | while read -r link; do
        file=$(realpath --relative-to=. --canonicalize-missing "$(dirname "$page")/$link")
        case $file in *.md | ../*) ;; *) [ ! -f "$file" ] || copy "$file" ;; esac
    done
done

# Its links are written for docs/; here they are those of the root.
sed -E 's#\]\(\.\./#](/#; s#\]\(([^/])#](docs/\1#; s#\]\(/#](#' docs/SUMMARY.md >"$stage/SUMMARY.md"
rm "$stage/docs/SUMMARY.md"
cp docs/book.toml "$stage/book.toml"
mdbook build --dest-dir "$target/book" "$stage"
echo "$target/book/index.html"
