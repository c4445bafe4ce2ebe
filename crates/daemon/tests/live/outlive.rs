//! Settings that a container's owner made at its device are kept after either process, or both,
//! were killed or replaced; devices are deleted with their port or with the host.

use std::fs;
use std::net::Ipv4Addr;

use crate::rig;
use crate::rig::pair::{Pair, devices};
use crate::rig::ping::{Pinger, Pings};
use crate::rig::{Netns, say, skip, wait_for};

const C1: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const C3: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 3);

/// Returns everything that its owner may have set at a device, as the kernel shows it.
fn state(netns: &Netns, device: &str) -> Vec<String> {
    let link = netns.ip(&format!("-o link show dev {device}"));
    let words: Vec<&str> = link.split_whitespace().collect();
    // Index, name, and the words after the flags, without those that follow from the carrier.
    let value = |key: &str| words.iter().skip_while(|word| **word != key).nth(1).copied();
    let mut state = vec![format!("{} {}", words[0], words[1])];
    for key in ["mtu", "qlen", "link/ether", "alias"] {
        state.push(format!("{key} {:?}", value(key)));
    }
    state.push(netns.ip(&format!("-o addr show dev {device}")));
    state.push(netns.ip("route show table all").replace(" linkdown", ""));
    state.push(netns.ip("neigh show nud permanent"));
    netns.inside(|| {
        for name in ["rp_filter", "proxy_arp", "arp_ignore"] {
            let path = format!("/proc/sys/net/ipv4/conf/{device}/{name}");
            state.push(format!("{name} {}", fs::read_to_string(path).unwrap()));
        }
    });
    state
}

/// Makes a pair whose first host has two containers, of which the first's owner changed everything.
fn furnished(word: &str) -> Pair {
    let case = Pair::new(word, 8);
    case.add(0, 0, C1);
    case.add(0, 2, C3);
    let c1 = &case.containers[0];
    c1.ip("addr add 10.42.1.1/24 dev eth0");
    c1.ip("link set eth0 mtu 1300");
    c1.ip("route add 10.99.0.0/16 via 10.42.0.3");
    c1.ip("neigh add 10.42.0.200 lladdr 02:42:00:00:02:00 dev eth0 nud permanent");
    c1.inside(|| {
        fs::write("/proc/sys/net/ipv4/conf/eth0/rp_filter", "2").unwrap();
        fs::write("/proc/sys/net/ipv4/conf/eth0/proxy_arp", "1").unwrap();
    });
    c1.ping(C3, 3);
    case
}

#[test]
#[ignore = "live: needs root"]
fn tap_unchanged_after_data_or_control_killed() {
    if skip("live::outlive", &[]) {
        return;
    }
    let mut case = furnished("same");
    let before = (state(&case.containers[0], "eth0"), state(&case.hosts[0], "t0"));
    for killed in ["data", "control", "both", "data", "both"] {
        let pings = Pings::start(&case.containers[0], C3);
        let pid = case.daemons[0].data_pid();
        match killed {
            "data" => _ = rig::run(&format!("kill -9 {pid}")),
            "control" => case.daemons[0].kill_control(),
            _ => case.daemons[0].kill_both(),
        }
        if killed != "data" {
            case.daemons[0].restart_control();
        }
        wait_for("data is there", || {
            let there = case.daemons[0].attempt(&["show", "ports"]).status.success();
            there && (killed == "control" || case.daemons[0].data_pid() != pid)
        });
        wait_for("a ping is answered", || Pinger::new(&case.containers[0], C3).ping(84));
        let (sent, answered) = pings.stop();
        say(&format!("{killed} killed: of {sent} pings {answered} were answered"));
        let after = (state(&case.containers[0], "eth0"), state(&case.hosts[0], "t0"));
        assert_eq!(after, before, "after {killed} was killed; log:\n{}", case.daemons[0].log());
    }
    // The device is deleted with its port, also after all this.
    let name = case.containers[0].name().to_owned();
    case.delete(0, &name);
    assert_eq!(devices(&case.containers[0]), ["lo"]);
}

#[test]
#[ignore = "live: needs root"]
fn data_process_replaced_on_upgrade_without_lost_ping() {
    if skip("live::outlive", &[]) {
        return;
    }
    let case = furnished("replaced");
    let before = state(&case.containers[0], "eth0");
    let pings = Pings::start(&case.containers[0], C3);
    for round in 1..=3 {
        let pid = case.daemons[0].data_pid();
        case.daemons[0].reconfigure(|text| {
            let old = if round == 1 { String::new() } else { format!("pace_us = {round}\n") };
            text.replacen(&old, "", 1).replacen(
                "[host]",
                &format!("[host]\npace_us = {}", round + 1),
                1,
            )
        });
        case.daemons[0].upgrade();
        wait_for("another data process answers", || {
            case.daemons[0].data_pid() != pid
                && case.daemons[0].attempt(&["show", "ports"]).status.success()
        });
        // An address that only control can resolve would wait for a control process that is
        // replaced as well.
        wait_for("a ping is answered", || Pinger::new(&case.containers[0], C3).ping(84));
    }
    let (sent, answered) = pings.stop();
    say(&format!("replaced three times: of {sent} pings {answered} were answered"));
    assert_eq!(sent, answered, "log:\n{}", case.daemons[0].log());
    assert_eq!(state(&case.containers[0], "eth0"), before);
    // A file that would be refused replaces nothing.
    let pid = case.daemons[0].data_pid();
    case.daemons[0].reconfigure(|text| text.replacen("pace_us", "paces_us", 1));
    case.daemons[0].upgrade();
    wait_for("it says so", || case.daemons[0].log().contains("no upgrade"));
    assert_eq!(case.daemons[0].data_pid(), pid);
}

#[test]
#[ignore = "live: needs root"]
fn removed_ports_devices_deleted_foreign_taps_kept() {
    if skip("live::outlive", &[]) {
        return;
    }
    let mut case = Pair::with("tidy", 8, |_, _| {
        "[[port]]\nname = \"others\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t1\"\n".to_owned()
    });
    // The device is made before the daemon looks for it again.
    case.daemons[0].kill_both();
    case.hosts[0].ip("link del t1");
    case.hosts[0].ip("tuntap add dev t1 mode tap");
    case.hosts[0].ip("tuntap add dev t2 mode tap");
    case.daemons[0].restart_control();
    case.add(0, 0, C1);
    assert_eq!(devices(&case.hosts[0]), ["lo", "up0", "t0", "t1", "t2"]);
    // While no process runs, a port is removed from the file.
    case.daemons[0].kill_both();
    assert_eq!(devices(&case.hosts[0]), ["lo", "up0", "t0", "t1", "t2"]);
    case.daemons[0].reconfigure(|text| {
        let port = text.find("[[port]]\nname = \"of-the-file\"").unwrap();
        let rest = text[port + 1..].find("[[").unwrap() + port + 1;
        format!("{}{}", &text[..port], &text[rest..])
    });
    case.daemons[0].restart_control();
    wait_for("the device of a port that is gone goes", || {
        devices(&case.hosts[0]) == ["lo", "up0", "t1", "t2"]
    });
    assert_eq!(devices(&case.containers[0]), ["lo", "eth0"]);
    // When the host is stopped, its own devices are deleted.
    case.daemons[0].stop();
    assert_eq!(devices(&case.hosts[0]), ["lo", "up0", "t1", "t2"]);
    assert_eq!(devices(&case.containers[0]), ["lo"]);
}

#[test]
#[ignore = "live: needs root"]
fn added_ports_restored_after_reboot() {
    if skip("live::outlive", &[]) {
        return;
    }
    let mut case = Pair::new("reboot", 8);
    case.add(0, 0, C1);
    case.add(0, 2, C3);
    let pid = std::process::id().to_string();
    let words = ["port", "add", "--pid", &pid, "--vnet", "blue", "--device", "sl-reboot"];
    case.daemons[0].ask(&words);
    // The state after a restart of the machine: the list, and nothing else.
    case.daemons[0].kill_both();
    rig::run("ip link del sl-reboot");
    let gone = case.containers[0].name().to_owned();
    rig::run(&format!("ip netns del {gone}"));
    case.containers[2].ip("link del eth0");
    case.daemons[0].rewrite("ports.json", |text| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(text.contains(boot.trim()), "{text}");
        text.replace(boot.trim(), "another")
    });
    case.daemons[0].restart_control();
    let log = case.daemons[0].log();
    assert!(log.contains(&format!("port {gone} waits for its namespace")), "{log}");
    assert!(log.contains(&format!("port pid-{pid} is forgotten")), "{log}");
    assert_eq!(devices(&case.containers[2]), ["lo", "eth0"]);
    rig::run(&format!("ip netns add {gone}"));
    wait_for("the port is there as its namespace is", || {
        devices(&case.containers[0]).contains(&"eth0".to_owned())
    });
    // The device is there a moment before it is up with its address.
    wait_for("its address is there", || {
        case.containers[0].ip("-o -4 addr show up").contains(&C1.to_string())
    });
    case.containers[0].ping(C3, 3);
    case.both_know(C1, true);
    case.delete(0, &gone);
    assert_eq!(devices(&case.containers[0]), ["lo"]);
}

/// A small file system that is unmounted when dropped.
struct Mount(std::path::PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        _ = std::process::Command::new("umount").arg(&self.0).output();
    }
}

#[test]
#[ignore = "live: needs root"]
fn a_full_disk_leaves_nothing_half_done() {
    if skip("live::outlive", &["mount", "umount"]) {
        return;
    }
    let mut case = Pair::new("full", 8);
    case.add(0, 2, C3);
    case.daemons[0].kill_both();
    let mount = Mount(case.file("state"));
    fs::create_dir_all(&mount.0).unwrap();
    rig::run(&format!("mount -t tmpfs -o size=64k tmpfs {}", mount.0.display()));
    let state = mount.0.display();
    case.daemons[0].rewrite("host.toml", |text| {
        text.replacen("[host]", &format!("[host]\nstate_dir = \"{state}\""), 1)
    });
    case.daemons[0].restart_control();
    case.add(0, 0, C1);
    case.add(0, 2, C3);
    let filler = mount.0.join("filler");
    assert!(fs::write(&filler, vec![0; 1 << 20]).is_err(), "the disk is full");
    let name = case.containers[0].name().to_owned();
    let before = fs::read_to_string(mount.0.join("ports.json")).unwrap();
    for line in [format!("port del {name}"), "port add --tap vm9 --vnet blue".to_owned()] {
        let output = case.attempt(0, &line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("make room"), "{line}: {said}");
        case.containers[0].ping(C3, 3);
        assert!(!devices(&case.hosts[0]).contains(&"vm9".to_owned()));
        assert_eq!(fs::read_to_string(mount.0.join("ports.json")).unwrap(), before);
    }
    case.both_know(C1, true);
    fs::remove_file(&filler).unwrap();
    case.delete(0, &name);
    // Deleted ports do not come back.
    case.daemons[0].kill_both();
    case.daemons[0].restart_control();
    assert_eq!(devices(&case.containers[0]), ["lo"]);
    assert_eq!(devices(&case.containers[2]), ["lo", "eth0"]);
}

#[test]
#[ignore = "live: needs root"]
fn hung_data_process_replaced_unless_disabled() {
    if skip("live::outlive", &[]) {
        return;
    }
    let mut case = Pair::new("hangs", 8);
    for limit in [1_000, 0] {
        case.daemons[0].rewrite("host.toml", |text| {
            let text = text.replacen("data_hung_ms = 1000\n", "", 1);
            text.replacen("[host]\n", &format!("[host]\ndata_hung_ms = {limit}\n"), 1)
        });
        case.daemons[0].kill_control();
        case.daemons[0].restart_control();
        if limit > 0 {
            case.add(0, 0, C1);
            case.add(0, 2, C3);
        }
        let pid = case.daemons[0].data_pid();
        case.daemons[0].hang_data(true);
        let output = case.daemons[0].attempt(&["show", "ports"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("the data process"), "{said}");
        if limit > 0 {
            wait_for("another data process answers", || {
                case.daemons[0].data_pid() != pid
                    && case.daemons[0].attempt(&["show", "ports"]).status.success()
            });
            assert!(case.daemons[0].log().contains("it hangs, and is killed"));
        } else {
            assert!(said.contains("does not answer"), "{said}");
            assert_eq!(case.daemons[0].data_pid(), pid);
            case.daemons[0].hang_data(false);
            wait_for("it answers", || case.daemons[0].attempt(&["show", "ports"]).status.success());
        }
        wait_for("a ping is answered", || Pinger::new(&case.containers[0], C3).ping(84));
    }
}
