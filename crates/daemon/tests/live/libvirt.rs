//! Machines of libvirt as others wrote it, under QEMU, at a host: with vhost-user cards, and with a
//! TAP that the hook of `packaging/libvirt` attaches.
//!
//! ```text
//!   vm5 ─ vhost-user ─┤                        ┌─ c2
//!   vm7 ─ bridge, TAP ┤ h1 up0 ═════ up0 h2 ───┘
//! ```

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::rig::libvirt::{Libvirt, skip_without_libvirt};
use crate::rig::pair::{Pair, devices};
use crate::rig::{Net, say, wait_for};
use sluice_testkit::bound::is_soak;

const C2: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Longest boot of an interpreted machine on a busy one.
const BOOT_MAX: Duration = Duration::from_secs(120);

/// Card of a machine whose port listens (`mode='client'` of libvirt), or connects.
fn vhost_user(net: &str, number: u8, mode: &str) -> String {
    format!(
        "<interface type='vhostuser'><mac address='52:54:00:00:00:0{number}'/>\
         <source type='unix' path='{net}' mode='{mode}'>{}</source>\
         <model type='virtio'/><alias name='ua-card'/></interface>",
        if mode == "client" { "<reconnect enabled='yes' timeout='1'/>" } else { "" }
    )
}

fn bridged(number: u8) -> String {
    format!(
        "<interface type='bridge'><mac address='52:54:00:00:00:0{number}'/>\
         <source bridge='slb-vm{number}'/><model type='virtio'/><mtu size='1450'/>\
         <alias name='ua-card'/></interface>"
    )
}

/// Returns the description of a machine with a card, as docs/integrations/libvirt.md has it.
fn domain(number: u8, card: &str, metadata: &str) -> String {
    format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\
         <name>vm{number}</name><metadata>{metadata}</metadata>\
         <memory unit='MiB'>128</memory>\
         <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>\
         <vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type>\
         <kernel>/opt/vmlinuz</kernel><initrd>/opt/initrd.gz</initrd>\
         <cmdline>console=ttyS0 quiet no_timer_check cryptomgr.notests ip4=10.0.0.{number}/24\
         </cmdline></os><features><acpi/></features>\
         <devices>{card}<serial type='pty'/><memballoon model='none'/></devices>\
         <qemu:override><qemu:device alias='ua-card'><qemu:frontend>\
         <qemu:property name='vectors' type='unsigned' value='0'/>\
         </qemu:frontend></qemu:device></qemu:override></domain>"
    )
}

/// Returns the metadata of a machine for the hook.
fn metadata(number: u8, vnet: &str) -> String {
    format!(
        "<sluice:ports xmlns:sluice='urn:sluice:libvirt:1'>\
         <sluice:port vnet='{vnet}' bridge='slb-vm{number}'/></sluice:ports>"
    )
}

/// Returns the ports of machines with vhost-user cards at the first host.
fn ports(net: &Net, own: usize) -> String {
    let port = |number: u8, key: &str| {
        let socket = net.file(&format!("vm{number}.sock"));
        format!(
            "[[port]]\nname = \"vm{number}\"\nkind = \"vhost-user\"\nvnet = \"blue\"\n{key}\
             socket = \"{}\"\nmac = \"52:54:00:00:00:0{number}\"\n",
            socket.display()
        )
    };
    if own == 0 { format!("{}{}", port(5, ""), port(6, "client = true\n")) } else { String::new() }
}

/// Waits until a machine answers each of several pings. One that boots answers some of them late.
fn reached(case: &Pair, number: u8) {
    let (from, to) = (&case.containers[1], Ipv4Addr::new(10, 0, 0, number));
    let begin = Instant::now();
    loop {
        let output = from.attempt(&format!("ping -c 5 -i 0.2 -W 2 {to}"));
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains(" 0% packet loss") {
            break say(&format!("vm{number} answers after {:?}", begin.elapsed()));
        }
        assert!(begin.elapsed() < BOOT_MAX, "{to} is not reached from another host: {said}");
    }
}

/// Returns the names of the ports that the hook has added.
fn added(case: &Pair) -> Vec<String> {
    let rows = case.daemons[0].ask(&["port", "list"])["ports"].take();
    let names = rows.as_array().unwrap().iter().map(|row| row["port"]["name"].as_str().unwrap());
    names.filter(|name| name.starts_with("slb-")).map(str::to_owned).collect()
}

fn nothing_is_left(case: &Pair) {
    assert_eq!(added(case), [""; 0]);
    let all = devices(&case.hosts[0]);
    assert!(!all.iter().any(|name| name.starts_with("slb-")), "{all:?}");
}

#[test]
#[ignore = "live: needs root"]
fn libvirt_runs_machines_that_reach_other_host() {
    const TEST: &str = "live::libvirt";
    if skip_without_libvirt(TEST) {
        return;
    }
    let mut case = Pair::with("libvirt", 8, ports);
    case.add(1, 1, C2);
    let mut libvirt = Libvirt::new(&case, 0);

    // A network that is not there: the machine does not start, libvirt says why, nothing is left.
    libvirt.virsh(&["define", &libvirt.write(&domain(7, &bridged(7), &metadata(7, "red")))]);
    let output = libvirt.attempt(&["start", "vm7"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("red"), "{said}");
    say(&said);
    nothing_is_left(&case);
    libvirt.virsh(&["undefine", "vm7"]);

    let socket = |number: u8| case.file(&format!("vm{number}.sock")).display().to_string();
    let mut machines = vec![
        (5, domain(5, &vhost_user(&socket(5), 5, "client"), "")),
        (7, domain(7, &bridged(7), &metadata(7, "blue"))),
    ];
    if is_soak() {
        machines.push((6, domain(6, &vhost_user(&socket(6), 6, "server"), "")));
    } else {
        say(&format!("SKIPPED {TEST}: a card in server mode; SLUICE_SOAK=1 has it"));
    }
    for (number, text) in &machines {
        libvirt.virsh(&["define", &libvirt.write(text)]);
        libvirt.virsh(&["start", &format!("vm{number}")]);
    }
    assert_eq!(added(&case), ["slb-vm7"]);
    machines.iter().for_each(|(number, _)| reached(&case, *number));

    // libvirt is killed, and meanwhile the host (whose TAP is another one then), or a port goes.
    // Once libvirt is back, the port is there and in its bridge.
    libvirt.kill();
    reached(&case, 5);
    case.daemons[0].stop();
    case.daemons[0].restart_control();
    reached(&case, 5);
    libvirt.start();
    reached(&case, 7);
    libvirt.kill();
    case.delete(0, "slb-vm7");
    libvirt.start();
    reached(&case, 7);

    // libvirt dies between the hook and the machine: people sweep, and only what is left goes.
    let late = domain(8, &bridged(8), &metadata(8, "blue"));
    for _ in 0..2 {
        let output = libvirt.hook(&["vm8", "prepare", "begin", "-"], &late);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(added(&case), ["slb-vm7", "slb-vm8"]);
    let output = libvirt.hook(&["--sweep"], "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "slb-vm8: deleted\n", "{output:?}");
    assert_eq!(added(&case), ["slb-vm7"]);

    for (number, _) in &machines {
        let name = format!("vm{number}");
        libvirt.virsh(&["destroy", &name]);
        libvirt.virsh(&["undefine", &name]);
    }
    nothing_is_left(&case);
    assert_eq!(case.daemons[0].show("audit")["closed"], true);
}

/// Returns the port of a machine that is learned, at each host.
fn learned(net: &Net, own: usize) -> String {
    let socket = net.file(&format!("vm9-h{}.sock", own + 1));
    format!(
        "[[port]]\nname = \"vm9\"\nkind = \"vhost-user\"\nvnet = \"blue\"\nsocket = \"{}\"\n",
        socket.display()
    )
}

/// Returns the host that has the machine, in the view of both.
fn host_of_machine(case: &Pair) -> [String; 2] {
    [0, 1].map(|own: usize| {
        let vport = case.daemons[own].ask(&["vport", "show", "52:54:00:00:00:09"])["vport"].take();
        vport["host"].as_str().unwrap_or_default().to_owned()
    })
}

#[test]
#[ignore = "live: needs root"]
fn virsh_migrates_machine_to_other_host() {
    const TEST: &str = "live::libvirt virsh_migrates_machine_to_other_host";
    if skip_without_libvirt(TEST) {
        return;
    }
    if !is_soak() {
        say(&format!("SKIPPED {TEST}: two libvirts; SLUICE_SOAK=1 runs it"));
        return;
    }
    let case = Pair::with("virshmove", 8, learned);
    case.add(1, 1, C2);
    let libvirts = [0, 1].map(|own| Libvirt::new(&case, own));
    // The socket has one path in the machine's description, at both hosts.
    for (own, libvirt) in libvirts.iter().enumerate() {
        libvirt.link(&case.file(&format!("vm9-h{}.sock", own + 1)), "/run/vm9.sock");
    }
    libvirts[0].sees(&libvirts[1]);
    let text = domain(9, &vhost_user("/run/vm9.sock", 9, "client"), "");
    libvirts[0].virsh(&["define", &libvirts[0].write(&text)]);
    libvirts[0].virsh(&["start", "vm9"]);
    reached(&case, 9);
    wait_for("both know the machine at h1", || host_of_machine(&case) == ["h1", "h1"]);
    let to = "qemu+unix:///system?socket=/run/other/libvirt-sock";
    let by = "tcp://192.0.2.2:49152";
    libvirts[0].virsh(&["migrate", "--live", "vm9", to, "--migrateuri", by]);
    assert_eq!(libvirts[0].virsh(&["list", "--name"]), "");
    assert_eq!(libvirts[1].virsh(&["list", "--name"]), "vm9");
    wait_for("both know the machine at h2", || host_of_machine(&case) == ["h2", "h2"]);
    reached(&case, 9);
    libvirts[1].virsh(&["destroy", "vm9"]);
    for daemon in &case.daemons {
        assert_eq!(daemon.show("audit")["closed"], true);
    }
}
