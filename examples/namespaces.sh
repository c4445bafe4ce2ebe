# shellcheck shell=bash
# What the examples share: the network namespaces in `spaces`, and waiting for daemons. Sourced.

PATH=$PATH:/usr/sbin:/sbin

# Ends unless none of the namespaces is there yet.
require_no_spaces() {
    local n
    for n in "${spaces[@]}"; do
        if [ -e "/run/netns/$n" ]; then
            echo "there is a network namespace $n already; '$0 down' takes it away" >&2
            exit 1
        fi
    done
}

require_programs() {
    if ! command -v sluice >/dev/null; then
        echo "sluice is not in the PATH: 'make build', then PATH=\$PATH:\$PWD/target/release" >&2
        exit 1
    fi
    if ! command -v ping >/dev/null; then
        apt-get install -y iputils-ping >/dev/null
    fi
}

add_spaces() {
    local n
    for n in "${spaces[@]}"; do
        ip netns add "$n"
        ip -n "$n" link set lo up
    done
}

delete_spaces() {
    local n
    for n in "${spaces[@]}"; do
        # It may not be there.
        ip netns del "$n" 2>/dev/null || true
    done
}

# Waits until `answers HOST` succeeds for each host: a daemon answers on its socket a moment after
# its start. What `answers` leaves in `said` is the reason in the error.
wait_for_daemons() {
    local host said="" limit=$((SECONDS + 30))
    for host in "$@"; do
        until answers "$host"; do
            if [ "$SECONDS" -ge "$limit" ]; then
                echo "$host does not answer: is 'sluice daemon' running in it? $said" >&2
                exit 1
            fi
            sleep 0.1
        done
    done
}
