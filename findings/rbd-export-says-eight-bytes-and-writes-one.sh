#!/usr/bin/env bash
# `rbd export --export-format 2` of Ceph 16.2.15 (Debian: ceph-common), with any cluster that CEPH_CONF names and a pool `rbd`.
#
# One would guess: a stream of version 2 has a length before the content of each record, so that a reader can pass over records that
# it doesn't know (Ceph's doc/dev/rbd-export.rst says so).
#
# What is so: the record `p`, whether a snapshot is protected, says that it has 8 bytes, and has 1. Whoever passes over it by its length
# swallows the next record, which is the image's size, and takes bytes of a number for the tag after that. `rbd import` notices nothing: it
# knows `p`, and reads one byte whatever the length says. Later sources of `rbd` write the length 1.
#
# Whom it hurts: tools that read these streams by the documentation, which may not have `p`; and whoever "corrects" a reader to believe
# the length, as streams of both kinds are kept as backups.
#
# Prints the record, and fails if it has as many bytes as it says.
set -euo pipefail
image=finding-$$ file=$(mktemp -u)
trap 'rm -f "$file"; rbd snap purge "$image" 2>/dev/null || true; rbd rm "$image" 2>/dev/null || true' EXIT
rbd create "$image" --size 1M
rbd snap create "$image@s" 2>/dev/null
rbd export --export-format 2 "$image" "$file" 2>/dev/null
python3 - "$file" <<'PYTHON'
import struct
import sys

stream = open(sys.argv[1], "rb").read()
at = stream.index(b"rbd diff v2\n") + 12
tag, length = stream[at:at + 1], struct.unpack_from("<Q", stream, at + 1)[0]
assert tag == b"t", tag
at += 9 + length
tag, length = stream[at:at + 1], struct.unpack_from("<Q", stream, at + 1)[0]
print(f"at {at}: {tag!r}, which says that it has {length} bytes; then {stream[at + 9:at + 19]!r}")
# The next record is the size: `s`, a length of 8, and 1 MiB.
follows = b"s" + struct.pack("<QQ", 8, 1 << 20)
assert tag == b"p" and length == 8 and stream[at + 10:].startswith(follows), "it isn't so any more"
PYTHON
