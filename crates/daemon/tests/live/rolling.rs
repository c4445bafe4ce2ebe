//! A fabric of an older program is upgraded host by host, with traffic: by hand-over of descriptors
//! nothing is lost; where the processes are killed in place of that, the frames are lost that data
//! held, and those that come to the host meanwhile.
//!
//! `$SLUICE_OLD` is the older program (`scripts/old-program.sh` builds it).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::rig;
use crate::rig::bridge::{Bridge, ip};
use crate::rig::counted::{Counted, Seen};
use crate::rig::ping::Pinger;
use crate::rig::{Daemon, say, skip, wait_for};

/// Port of the first flow.
const PORT: u16 = 7_100;
/// Datagrams: number at once, time between, size.
const FLOW: (u32, Duration, usize) = (4, Duration::from_millis(2), 500);
/// The same beside a data process that is killed: those of a second fit into the queue of a TAP.
const THIN_FLOW: (u32, Duration, usize) = (1, Duration::from_millis(4), 500);
/// Number of hosts.
const COUNT: usize = 3;
/// Most frames that a data process holds that is killed beside light traffic: it reads no more at
/// once.
const HELD_MAX: u64 = 64;

/// Returns the older program; `None` if the test cannot run here, after saying why.
fn older_program(test: &str) -> Option<PathBuf> {
    if skip(test, &[]) {
        return None;
    }
    let older = std::env::var_os("SLUICE_OLD").filter(|path| !path.is_empty()).map(PathBuf::from);
    if older.is_none() {
        say(&format!(
            "SKIPPED {test}: $SLUICE_OLD names no older program; build one by \
             `scripts/old-program.sh COMMIT`"
        ));
    }
    older
}

/// Puts a program in place of another one in one step, as a package manager does.
fn install(program: &Path, at: &Path) {
    let next = at.with_extension("new");
    fs::copy(program, &next).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(next, at).unwrap();
}

/// Makes a fabric of hosts of the older program that forward.
fn older_fabric(word: &str, older: &Path) -> Bridge {
    let bridge = Bridge::waiting(word, COUNT, |net, own| {
        let dir = net.file(&format!("h{}", own + 1));
        fs::create_dir_all(&dir).unwrap();
        install(older, &dir.join("sluice"));
        String::new()
    });
    bridge.become_fabric();
    (0..COUNT).for_each(|own| _ = bridge.add(own));
    (0..COUNT).for_each(|own| reaches(&bridge, own));
    bridge
}

/// Waits until the next container is reached from that of a host.
fn reaches(bridge: &Bridge, own: usize) {
    let patience = Duration::from_millis(200);
    let to = ip((own + 1) % COUNT);
    let mut pinger = Pinger::with_patience(&bridge.containers[own], to, patience);
    wait_for("a container is reached", || pinger.ping(84));
}

/// Starts a flow from each container to the next one.
fn flows(bridge: &Bridge, kind: (u32, Duration, usize)) -> Vec<Counted> {
    let flow = |own: usize| {
        let to = (own + 1) % COUNT;
        let [from, to] = [own, to].map(|own| (&bridge.containers[own], ip(own)));
        Counted::start(from, to, PORT + u16::try_from(own).unwrap(), kind)
    };
    (0..COUNT).map(flow).collect()
}

/// Returns true if a process runs the program that lies at its path now.
fn runs_present_program(pid: &str) -> bool {
    let path = fs::read_link(format!("/proc/{pid}/exe"));
    path.is_ok_and(|path| !path.to_string_lossy().ends_with("(deleted)"))
}

/// Waits until both processes of a host are the new program, and all members agree; then every host
/// changes the configuration, the upgraded and the older ones.
fn goes_on(bridge: &Bridge, own: usize) {
    let daemon = &bridge.daemons[own];
    wait_for("both processes are the new program", || {
        daemon.attempt(&["show", "ports"]).status.success()
            && runs_present_program(&daemon.data_pid())
            && runs_present_program(&daemon.control_pid())
    });
    bridge.all_have_caught_up();
    for (by, daemon) in bridge.daemons.iter().enumerate() {
        let name = format!("n{own}{by}");
        let vni = format!("{}", 1_000 + own * COUNT + by);
        daemon.says(&["vnet", "create", &name, "--vni", &vni]);
        bridge.all_have_caught_up();
    }
    let networks = |daemon: &Daemon| daemon.vnets();
    let first = networks(&bridge.daemons[0]);
    assert_eq!(first.len(), 1 + COUNT * (own + 1), "{first:?}");
    assert!(bridge.daemons.iter().all(|daemon| networks(daemon) == first));
}

fn new_program(bridge: &Bridge, own: usize) {
    install(&rig::program(), &bridge.net.file(&format!("h{}", own + 1)).join("sluice"));
}

#[test]
#[ignore = "live: needs root, and an older program"]
fn fabric_upgraded_by_hand_over_loses_nothing() {
    let Some(older) = older_program("fabric_upgraded_by_hand_over_loses_nothing") else { return };
    let bridge = older_fabric("roll", &older);
    let flows = flows(&bridge, FLOW);
    for own in 0..COUNT {
        new_program(&bridge, own);
        let done = bridge.daemons[own].ask(&["upgrade"]);
        let handed = &done["handed_over"];
        assert_eq!(handed["left"], 0, "{done}");
        say(&format!("h{}: nothing read for {} us", own + 1, handed["gap_us"]));
        goes_on(&bridge, own);
    }
    let seen: Vec<Seen> = flows.into_iter().map(Counted::stop).collect();
    say(&format!("handed over: {seen:?}"));
    for seen in seen {
        assert!(seen.sent > 1_000, "{seen:?}");
        assert_eq!((seen.received, seen.late), (seen.sent, 0), "{seen:?}");
    }
    bridge.daemons.iter().for_each(Daemon::assert_lossless);
}

#[test]
#[ignore = "live: needs root, and an older program"]
fn fabric_upgraded_by_kill_loses_what_was_held() {
    let Some(older) = older_program("fabric_upgraded_by_kill_loses_what_was_held") else { return };
    let mut bridge = older_fabric("rollkill", &older);
    for own in 0..COUNT {
        let flows = flows(&bridge, THIN_FLOW);
        new_program(&bridge, own);
        // The older control keeps the TAPs, and starts what lies at its path.
        let before = bridge.daemons[own].data_pid();
        bridge.daemons[own].kill_data();
        wait_for("another data process answers", || {
            let daemon = &bridge.daemons[own];
            daemon.data_pid() != before && daemon.attempt(&["show", "ports"]).status.success()
        });
        bridge.daemons[own].kill_control();
        bridge.daemons[own].restart_control();
        goes_on(&bridge, own);
        (0..COUNT).for_each(|own| reaches(&bridge, own));
        let seen: Vec<Seen> = flows.into_iter().map(Counted::stop).collect();
        let lost = |seen: &Seen| seen.sent - seen.received;
        let (from, to) = (&seen[own], &seen[(own + COUNT - 1) % COUNT]);
        let beside = &seen[(own + 1) % COUNT];
        say(&format!(
            "h{} killed: lost {} of {} from it, {} of {} to it, {} of {} beside it",
            own + 1,
            lost(from),
            from.sent,
            lost(to),
            to.sent,
            lost(beside),
            beside.sent
        ));
        assert!(seen.iter().all(|seen| seen.late == 0), "{seen:?}");
        assert_eq!(lost(beside), 0, "{seen:?}");
        // Frames that its container sends meanwhile wait in their TAP. Frames to it have nobody who
        // reads them, and nobody who could pause their senders.
        assert!(lost(from) <= HELD_MAX, "{seen:?}");
    }
}
