# A copy of this machine that is thrown away. To be sourced, within namespaces of its own of mounts
# and of the network.
#
# shellcheck shell=bash

# Makes a copy in FOLDER/root with the packages in /packages, and sets `inside`, the beginning of a
# command in it.
#
#   make_root FOLDER PACKAGES
make_root() {
    local folder=$1 packages=$2 root=$1/root
    mkdir -p "$folder/scratch" "$root"
    # The layers are in memory: the machine's file system may be one on which none can be.
    mount -t tmpfs tmpfs "$folder/scratch"
    mkdir "$folder/scratch/upper" "$folder/scratch/work"
    mount -t overlay overlay \
        -o "lowerdir=/,upperdir=$folder/scratch/upper,workdir=$folder/scratch/work" "$root"
    mount --rbind /proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    mkdir -p "$root/run/netns" "$root/run/lock" "$root/packages"
    mount --bind "$packages" "$root/packages"
    inside=(chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C)
}
