#!/usr/bin/env bash
# ring 0.17.14, the newest of its series, built by cargo (seen with 1.95).
#
# One would guess: a build of what has been built builds nothing, whoever calls cargo, as long as sources, features, profile and flags are
# the same.
#
# What is so: ring's build script asks to be run again whenever CARGO_MANIFEST_DIR has another value in cargo's own environment. Cargo sets
# that variable for each program that it runs. So a cargo that is called by such a program, say a project's own `cargo run -p xtask`, or a
# test that builds something, compiles ring again, and every crate above it: rustls, hyper-rustls, quinn, and the project's own. The next
# cargo that is called from a shell does so once more.
#
# Whom it hurts: whoever builds by a program that cargo runs, and wonders where the minutes go. It helps to take CARGO_MANIFEST_DIR out of
# the environment of the inner cargo.
#
# Prints what cargo says of ring in three builds, and fails if the second one doesn't compile it again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat > "$folder/Cargo.toml" <<'TOML'
[package]
name = "shown"
version = "0.1.0"
edition = "2021"

[dependencies]
ring = "=0.17.14"
TOML
echo 'pub fn nothing() {}' > "$folder/src/lib.rs"
unset CARGO_TARGET_DIR CARGO_MANIFEST_DIR
build() { (cd "$folder" && "$@" cargo build -v 2>&1 | grep -E '^ +(Fresh|Dirty|Compiling) ring ' | tr -s ' '); }
first=$(build env)
inner=$(build env CARGO_MANIFEST_DIR=/anywhere)
same=$(build env CARGO_MANIFEST_DIR=/anywhere)
printf 'first:            %s\nunder cargo run:  %s\nthere once more:  %s\n' "$first" "${inner//$'\n'/;}" "$same"
[[ $first == *Compiling* && $inner == *"CARGO_MANIFEST_DIR changed"* && $inner == *Compiling* && $same == *Fresh* ]]
