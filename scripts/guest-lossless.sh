#!/bin/sh
# Sets what losslessness needs inside a virtual machine, where no switch can look: a queueing
# discipline that holds frames back instead of dropping them, and buffers that take what a held
# sender or a late receiver has. Run it in the guest, as root, once its card is there:
#
#   guest-lossless.sh [DEVICE]          (default: eth0)
#
# It lasts until the guest boots again. TC and IP name the programs where the shell has others.
set -eu
device=${1:-eth0}

# fq_codel, the default of many distributions, drops what waits too long, and a card that is held
# makes everything wait. pfifo drops when it is full: so it must be longer than all socket buffers
# together, which is where a sender is then held.
"${IP:-ip}" link set dev "$device" txqueuelen 10000
"${TC:-tc}" qdisc replace dev "$device" root pfifo limit 10000

put() { [ ! -e "/proc/sys/$1" ] || echo "$2" >"/proc/sys/$1"; }
# A device that comes later has the same.
put net/core/default_qdisc pfifo
# A socket of UDP drops what it has no room for. Room of its own for a burst, and more for a
# program that asks.
put net/core/rmem_default 4194304
put net/core/rmem_max 67108864
# A sender's buffer stays small: 10000 frames of the queue above must hold those of all sockets.
put net/core/wmem_default 212992
put net/core/wmem_max 4194304
# Between the card and the stack.
put net/core/netdev_max_backlog 10000
