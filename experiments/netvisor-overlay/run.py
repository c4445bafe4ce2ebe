#!/usr/bin/env python3
"""Where the work of an overlay is done, and what it costs the servers (Netvisor, section 6).

    experiments/netvisor-overlay/run.py                 as root, from the root of the repository
    experiments/netvisor-overlay/run.py --rounds 30     as many pairs as the page has

Two servers behind two switches, a router between:

    s1 e0 ─ p1 [w1] up0 ─ r1 [rt] r2 ─ up0 [w2] p1 ─ e0 s2

    none             the switches are bridges; the router routes between the servers
    server/linux     the same, and each server encapsulates (the kernel's VXLAN)
    server/ovs       the same, by Open vSwitch's userspace data path
    switch/software  the switches are hosts of Sluice that encapsulate, by the data process
    switch/kernel    the same, by the kernel as their chip

Ten TCP connections with a window of 32 KB write 64, 512 and 1,450 bytes at a time. All of them are
there from the start, and take turns in each round; each of them begins a round in turn.

Servers' work and switches' work are told apart by CPUs: programs of the servers are pinned to CPU
0, and what their cards receive is delivered there (RPS); what the cards of switches and router
receive is delivered on CPU 1, where the data processes are pinned, too. So the time of CPU 0 that
is not idle is the servers', softirqs included, both ends together; that of CPU 1 is the network's.
Each row says which of the two was busier, and so what limited it.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

import nets
import ovs
import page


def main():
    arguments = parse()
    program = check(arguments.program)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        all_nets = [
            nets.Net(folder),
            nets.LinuxServers(folder),
            ovs.OvsServers(folder),
            nets.SluiceSwitches("software", program, folder),
            nets.SluiceSwitches("kernel", program, folder),
        ]
        samples = {(net.name, write): [] for net in all_nets for write in page.WRITES}
        try:
            for net in all_nets:
                net.build()
            for nth in range(arguments.rounds):
                turn = nth % len(all_nets)
                for write in page.WRITES:
                    for net in all_nets[turn:] + all_nets[:turn]:
                        seen = page.Sample(*net.measure(write, arguments.seconds))
                        samples[(net.name, write)].append(seen)
                print(f"round {nth + 1} of {arguments.rounds}", file=sys.stderr)
        finally:
            for net in all_nets:
                net.close()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip() or "unknown"
    result = {"name": "netvisor-overlay", "commit": commit,
              "machine": f"{os.cpu_count()} processors, Linux {platform.release()}",
              "rows": list(page.rows(all_nets, samples))}
    (arguments.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    (arguments.out / "overlay.svg").write_text(page.throughput(samples))
    (arguments.out / "cpu.svg").write_text(page.cpu(samples))
    table = page.table(all_nets, samples)
    (arguments.out / "table.md").write_text(table)
    print(json.dumps(result) if arguments.json else table)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/netvisor-overlay"))
    parser.add_argument("--program", default="target/release/sluice")
    parser.add_argument("--json", action="store_true", help="print result.json, not the table")
    return parser.parse_args()


def check(program):
    """Returns the program's path, when all that is needed is here."""
    if os.geteuid() != 0:
        raise SystemExit("it makes network namespaces: run it as root")
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("it needs two CPUs: one for the servers, one for the network")
    for tool in ("ip", "iperf3", "taskset", "ss", "ethtool", *ovs.TOOLS):
        if shutil.which(tool) is None:
            raise SystemExit(f"`{tool}` is not installed: `scripts/setup.sh bench` installs it")
    path = pathlib.Path(program)
    if not path.exists():
        raise SystemExit(f"{path}: build it with `cargo build --release`, or name another one "
                         "with `--program`")
    return str(path.resolve())


if __name__ == "__main__":
    main()
