#!/usr/bin/env bash
# Installs what is missing for a purpose, and nothing else. It asks nothing, and says what it
# installs and why.
#
#   scripts/setup.sh [build | demo | test | bench | all]      (default: all)
#
# DRY_RUN=1 only says what it would do. Debian and its descendants only; elsewhere it says what is
# missing. Root comes from sudo where the caller is not root.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-all}
dry_run=${DRY_RUN:-}

# command, or a file | Debian package | purposes | why
packages='
ip      | iproute2 | demo test bench | makes the namespaces, veth pairs and addresses of a lab
ethtool | ethtool  | demo test bench | turns off offloads of lab devices, which would hide frame sizes
git     | git      | test            | lists the files of the work tree for the checks
cc      | gcc      | build demo test bench | links every Rust program
c++     | g++      | test bench      | builds the fuzzing engine, and the peer of the simulator
clang   | clang    | build demo test bench | compiles the BPF programs
/usr/include/bpf/bpf_helpers.h | libbpf-dev | build demo test bench | what those programs are written with
iperf3  | iperf3   | test bench      | TCP and UDP load of the live tests
tshark  | tshark   | test            | reads our VXLAN and PFC frames with the eyes of others
tcpdump | tcpdump  | test            | captures frames of the live tests
qemu-system-x86_64 | qemu-system-x86 | test | runs the virtual machines of the live tests
/bin/busybox | busybox-static | test   | the tools inside those machines
cpio    | cpio     | test            | packs their root file system
make    | make     | test            | builds the driver of the switch of QEMU for one of them
keepalived | keepalived | test      | a client of the parity suite: addresses that fail over
dnsmasq | dnsmasq-base | test        | a client of the parity suite: gives addresses, IPv4 and IPv6
udhcpc  | udhcpc   | test            | a client of the parity suite: asks for addresses, and probes them
dhclient| isc-dhcp-client | test     | a client of the parity suite: asks for addresses
radvd   | radvd    | test            | a client of the parity suite: an IPv6 router
nft     | nftables | test            | masquerades in the tests of ways out of a network
rdisc6  | ndisc6   | test            | a client of the parity suite: asks IPv6 neighbours and routers
arping  | arping   | test            | a client of the parity suite: asks and probes by ARP
nmap    | nmap     | test            | a client of the parity suite: scans
ping    | iputils-ping | test        | a client of the parity suite: large packets, and IPv6
promtool| prometheus | test         | reads the metrics: checks their text, tests the alert rules, scrapes a host
pip3    | python3-pip | test            | gets mdbook, which Debian does not have
/usr/lib/python3/dist-packages/jsonschema | python3-jsonschema | test | compares answers of the API with its document
curl    | curl     | test            | a client of the API over the network
mypy    | mypy     | test            | checks the types of the Python client
valgrind| valgrind | bench           | counts instructions per frame
/usr/lib/frr/bgpd | frr | test bench    | a neighbor of the EVPN speaker, and the control plane that ours is compared with
gobgpd  | gobgpd   | test            | a neighbor of the EVPN speaker
etcd    | etcd-server | bench           | the quorum log that commits are compared with
/usr/include/ns3 | libns3-dev | bench  | the simulator that ours is compared with
/usr/lib/openvswitch-switch-dpdk | openvswitch-switch-dpdk | bench | the virtual switch that ours is compared with
dpdk-testpmd | dpdk-dev | test bench    | a foreign driver of vhost-user ports, the raw speed of others, and what the tests of the guest run against
'
# cargo subcommand | version | purposes | why
tools='
deny | 0.20.2 | test | checks licenses, sources and banned crates
'
# program | Go package and version | purposes | why. They stay in a folder of their own, and nothing
# of Sluice is linked with them.
cni=github.com/containernetworking
go_tools="
cnitool    | $cni/cni/cnitool@v1.3.0                         | test | the runtime's side of CNI
host-local | $cni/plugins/plugins/ipam/host-local@v1.7.1     | test | assigns addresses to containers of the CNI tests
portmap    | $cni/plugins/plugins/meta/portmap@v1.7.1        | test | a plugin that runs behind that of Sluice
bandwidth  | $cni/plugins/plugins/meta/bandwidth@v1.7.1      | test | another one
loopback   | $cni/plugins/plugins/main/loopback@v1.7.1       | test | containerd calls it for each pod
"
# Compiling for it shows that the pure crates need no operating system.
bare_target=x86_64-unknown-none

wanted() { [[ $purpose == all || " $1 " == *" $purpose "* ]]; }

run() {
    if [ -n "$dry_run" ]; then
        echo "would run: $*"
    else
        "$@"
    fi
}

case $purpose in build | demo | test | bench | all) ;; *)
    echo "usage: scripts/setup.sh [build | demo | test | bench | all]" >&2
    exit 2
    ;;
esac

if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    echo "Sluice is built with Rust, and there is no cargo in PATH. Debian's own is too old: install" >&2
    echo "Rust 1.95 or newer by rustup, see https://rustup.rs" >&2
    exit 1
fi

version=$(rustc --version | cut -d ' ' -f 2)
if [ "$(printf '%s\n' 1.95 "$version" | sort -V | head -n 1)" != 1.95 ]; then
    echo "rustc $version is too old: install Rust 1.95 or newer by rustup, see https://rustup.rs" >&2
    exit 1
fi

# Debian keeps some of these out of a user's PATH.
PATH=$PATH:/usr/sbin:/sbin
missing=()
unavailable=()
while IFS='|' read -r command package purposes why; do
    read -r command <<<"$command"
    read -r package <<<"$package"
    read -r purposes <<<"$purposes"
    if [ -z "$command" ] || ! wanted "$purposes" || [ -e "$command" ] ||
        command -v "$command" >/dev/null; then
        continue
    fi
    echo "missing: $package,$why"
    missing+=("$package")
done <<<"$packages"

if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "This is no Debian: install the above by hand." >&2
        exit 1
    fi
    root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Installing needs root, and there is no sudo: run as root:" >&2
            echo "    apt-get install ${missing[*]}" >&2
            exit 1
        fi
        root=(sudo)
    fi
    quiet=("${root[@]}" env DEBIAN_FRONTEND=noninteractive)
    # Whether others than root may capture is tshark's only question.
    if [[ " ${missing[*]} " == *" tshark "* ]]; then
        answer='wireshark-common wireshark-common/install-setuid boolean false'
        run "${quiet[@]}" sh -c "echo '$answer' | debconf-set-selections"
    fi
    run "${quiet[@]}" apt-get update -qq
    run "${quiet[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}"
    # Benchmarks and tests start their daemons by hand; a service of the machine is nobody's wish.
    for service in frr gobgpd prometheus; do
        if [[ " ${missing[*]} " == *" $service "* ]] && [ -d /run/systemd/system ]; then
            run "${root[@]}" systemctl disable --now "$service"
        fi
    done
    if [[ " ${missing[*]} " == *" etcd-server "* ]] && [ -d /run/systemd/system ]; then
        run "${root[@]}" systemctl disable --now etcd
    fi
    if [[ " ${missing[*]} " == *" openvswitch-switch-dpdk "* ]] && [ -d /run/systemd/system ]; then
        run "${root[@]}" systemctl disable --now openvswitch-switch
    fi
fi

# It waits for its downloads for most of a minute: behind all that follows.
neutron=
if wanted test && ! [ -x "${CARGO_TARGET_DIR:-target}/neutron/bin/python" ]; then
    echo "missing: neutron, the genuine server for the test of its driver (about a minute)"
    run timeout 300 scripts/neutron.sh &
    neutron=$!
fi

while IFS='|' read -r tool version purposes why; do
    read -r tool <<<"$tool"
    read -r version <<<"$version"
    read -r purposes <<<"$purposes"
    if [ -z "$tool" ] || ! wanted "$purposes" || cargo "$tool" --version >/dev/null 2>&1; then
        continue
    fi
    echo "missing: cargo-$tool,$why (one to two minutes to build)"
    # Optimising it would cost more time than its few runs save. Its build is kept out of ours.
    run env -u CARGO_TARGET_DIR \
        cargo install --quiet --locked --debug --version "$version" "cargo-$tool" ||
        unavailable+=("cargo-$tool")
done <<<"$tools"

peers=$(realpath -m "${CARGO_TARGET_DIR:-target}")/cni-peers
while IFS='|' read -r tool package purposes why; do
    read -r tool <<<"$tool"
    read -r package <<<"$package"
    read -r purposes <<<"$purposes"
    if [ -z "$tool" ] || ! wanted "$purposes" || [ -x "$peers/$tool" ]; then
        continue
    fi
    echo "missing: $tool,$why (up to a minute to build)"
    if ! command -v go >/dev/null; then
        unavailable+=("$tool, which needs Go 1.21")
        continue
    fi
    # From another folder: this one is no Go module.
    run env -C / GOBIN="$peers" timeout 300 go install "$package" ||
        unavailable+=("$tool")
done <<<"$go_tools"

if wanted test && ! scripts/docs.sh --can >/dev/null; then
    echo "missing: mdbook, builds the pages as a book, whose links are checked"
    # A folder of its own: a machine's Python packages are not ours to change.
    run timeout 120 pip3 install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --target "${CARGO_TARGET_DIR:-target}/mdbook" --requirement docs/mdbook.txt ||
        unavailable+=("mdbook")
fi

schemathesis=${CARGO_TARGET_DIR:-target}/schemathesis
if wanted test && ! [ -x "$schemathesis/bin/st" ]; then
    echo "missing: schemathesis, fuzzes the management API by its document"
    run timeout 180 pip3 install --quiet --disable-pip-version-check \
        --target "$schemathesis" --requirement python/schemathesis.txt ||
        unavailable+=("schemathesis")
fi

otlp=${CARGO_TARGET_DIR:-target}/otlp
if wanted test && ! [ -d "$otlp/opentelemetry" ]; then
    echo "missing: opentelemetry-proto, reads what a host sends to a collector of traces"
    run timeout 120 pip3 install --quiet --disable-pip-version-check --no-deps \
        --target "$otlp" --requirement python/otlp.txt ||
        unavailable+=("opentelemetry-proto")
fi

if wanted test && ! run scripts/netavark.sh; then
    unavailable+=("netavark 1.14, Podman's network stack with plugins")
fi

if wanted test && ! run scripts/docker.sh; then
    unavailable+=("Docker and containerd, for the tests with them")
fi

if wanted test && ! run scripts/cri.sh; then
    unavailable+=("a client of the Container Runtime Interface, for the test with containerd")
fi

if wanted test && ! run scripts/libvirt.sh; then
    unavailable+=("libvirt, for the tests of its machines")
fi

if wanted test && ! run scripts/guest.sh; then
    unavailable+=("the kernel of the live tests' virtual machines")
fi

if wanted test && ! run scripts/guest.sh switchdev; then
    unavailable+=("a kernel with the driver of QEMU's switch, for the test of switchdev")
fi

if wanted test && ! [ -d "$(rustc --print sysroot)/lib/rustlib/$bare_target" ]; then
    echo "missing: target $bare_target, shows that the pure crates need no operating system"
    run timeout 120 rustup --quiet target add "$bare_target" ||
        unavailable+=("$bare_target")
fi
if [ -n "$neutron" ] && ! wait "$neutron"; then
    unavailable+=("neutron, for the test of its driver")
fi
if [ ${#unavailable[@]} -gt 0 ]; then
    echo "setup $purpose: NOT to be had here, what needs it is skipped: ${unavailable[*]}"
elif [ -n "$dry_run" ]; then
    echo "setup $purpose: nothing was changed (dry run)"
else
    echo "setup $purpose: everything is there"
fi
