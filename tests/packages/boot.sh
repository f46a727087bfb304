# Starts the systemd of the root $1 as the first process of namespaces of its own. Its devices are this machine's.
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
    mkdir sys/fs/cgroup/systemd sys/fs/cgroup/devices
    mount -t cgroup -o none,name=systemd,xattr cgroup sys/fs/cgroup/systemd
    mount -t cgroup -o devices cgroup sys/fs/cgroup/devices
fi
mount --rbind /dev dev
pivot_root . mnt
umount -l mnt
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target --log-target=null
