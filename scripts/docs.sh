#!/usr/bin/env bash
# Builds the pages as a book, into target/book. Without mdbook it says how to get it, and skips.
#
#   scripts/docs.sh [--can]
#
# --can only tells if it can: it prints the reason and fails if not.
#
# The book has the tree of the work tree, so that every link from page to page holds as it is
# written. Pages are those of docs/SUMMARY.md; files that a page links to are copied beside them.
# mdbook checks no links: `cargo xtask tidy` does in the pages themselves, and `cargo xtask book`
# in the book.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
stage=$target/book-src

# Where scripts/setup.sh puts it.
PATH=$PATH:$target/mdbook/bin
if ! mdbook --version >/dev/null 2>&1; then
    why="mdbook is not installed (scripts/setup.sh test, or: cargo install mdbook --locked)"
    if [ "${1:-}" = --can ]; then
        echo "$why"
        exit 1
    fi
    echo "SKIPPED docs: $why. The pages in docs/ are the same without it."
    exit 0
fi
[ "${1:-}" != --can ] || exit 0

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
