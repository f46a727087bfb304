#!/usr/bin/python3
"""Makes the streams of this folder anew, by the `rbd` of a cluster that CEPH_CONF names (Debian: ceph-common, python3-rbd).

The image has the content that tests/transfers/rbd.rs expects; what `rbd export` says of each snapshot is compared with that here too.
"""
import os
import subprocess
import rados
import rbd

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
# Small objects make small streams.
ORDER = 16
NIGHTS = [
    ("mon", [("size", MIB + 1000), ("write", 0, 20000, 1), ("write", 300007, 100, 2), ("write", 700000, 5000, 3)]),
    ("tue", [("write", 196608, 8192, 4), ("discard", 0, 65536), ("zeros", 700000, 4096)]),
    ("wed", [("size", MIB + MIB // 2), ("write", 1400003, 7000, 5)]),
    ("thu", [("size", 400001)]),
    ("fri", [("size", MIB), ("write", 1000000, 4096, 6)]),
]
LAST = [("write", 0, 512, 7)]


def pattern(seed, length):
    return bytes((at * seed + at // 251 + 1) % 256 for at in range(length))


def change(image, content, what):
    kind, *how = what
    if kind == "size":
        image.resize(how[0])
        del content[how[0]:]
        content.extend(bytes(how[0] - len(content)))
        return
    at, length = how[0], how[1]
    data = pattern(how[2], length) if kind == "write" else bytes(length)
    if kind == "discard":
        image.discard(at, length)
    else:
        image.write(data, at)
    content[at:at + length] = data


def run(*words):
    subprocess.run(["rbd", *words], check=True, stderr=subprocess.DEVNULL)


def check(name, content):
    run("export", name, "/tmp/streams.raw")
    assert open("/tmp/streams.raw", "rb").read() == content, name
    os.remove("/tmp/streams.raw")


def main():
    cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
    cluster.connect()
    pool = cluster.open_ioctx("rbd")
    rbd.RBD().create(pool, "nights", 4096, ORDER)
    content, before = bytearray(4096), None
    for file in os.listdir(HERE):
        if file.endswith((".diff", ".image")):
            os.remove(os.path.join(HERE, file))
    with rbd.Image(pool, "nights") as image:
        for night, changes in NIGHTS:
            for what in changes:
                change(image, content, what)
            image.create_snap(night)
            if night == "tue":
                image.protect_snap(night)
            check("nights@" + night, content)
            since = ["--from-snap", before] if before else []
            run("export-diff", "nights@" + night, *since, os.path.join(HERE, night + ".diff"))
            before = night
        for what in LAST:
            change(image, content, what)
        check("nights", content)
    run("export", "--export-format", "2", "nights", os.path.join(HERE, "nights.image"))
    run("snap", "unprotect", "nights@tue")
    run("snap", "purge", "nights")
    run("rm", "nights")


main()
