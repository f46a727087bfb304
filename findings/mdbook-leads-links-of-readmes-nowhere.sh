#!/usr/bin/env bash
# mdBook 0.5.4, installed from its crate.
#
# One would guess: a link to another page's Markdown file, as it works where the sources are browsed, leads to that page in the built
# book. mdBook turns `.md` in links into `.html`, and `README.md` into `index.html`.
#
# What is so: it does both, and not together. A page `part/README.md` becomes `part/index.html`, and a link to `part/README.md` becomes
# one to `part/README.html`, which no file has. mdBook says nothing, and ends with 0. Only the table of contents leads there.
#
# Whom it hurts: books made of documentation that is also read as Markdown, whose folders each begin with a README.
#
# Prints the link and the pages, and fails if the link leads to a page.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo install --quiet --locked mdbook --version 0.5.4 --no-default-features --features search --root "$folder/tools"
mkdir -p "$folder/book/src/part"
printf '[book]\ntitle = "Shown"\n' > "$folder/book/book.toml"
printf '# Summary\n\n- [First](first.md)\n- [Part](part/README.md)\n' > "$folder/book/src/SUMMARY.md"
printf '# First\n\nSee [the part](part/README.md).\n' > "$folder/book/src/first.md"
printf '# Part\n' > "$folder/book/src/part/README.md"
"$folder/tools/bin/mdbook" build "$folder/book" > "$folder/said" 2>&1
cat "$folder/said"
link=$(grep -o 'href="part/[^"]*"' "$folder/book/book/first.html" | head -1)
pages=$(cd "$folder/book/book/part" && echo *.html)
printf 'the link: %s; pages of that folder: %s\n' "$link" "$pages"
[[ $link == 'href="part/README.html"' && $pages == index.html ]] && ! grep -qiE 'warn|error' "$folder/said"
