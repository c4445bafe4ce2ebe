//! A lab with a container and a virtual machine on two hosts: they reach each other, the workload
//! runs in both, no frame is lost, and nothing is left behind.

use std::path::PathBuf;
use std::process::Command;

const SCENARIO: &str = r#"
[lab]
name = "livevms"
hosts = 2
containers_per_host = 1
vms_per_host = 1
policy = "ZZ"

[settings]
link_mbps = 100
service_mbps = 25

[pa]
congestions = ["reno", "cubic"]
sizes = [4]
policies = ["ZZ"]
queries = 8
queries_min = 1
seconds_per_cell = 5.0

[[check]]
kind = "ping"
from = "h0v0"
to = "h1v0"
count = 3

[[check]]
kind = "transfer"
from = "h1v0"
to = "h0c0"
megabytes = 1
"#;

/// Returns the reason why no virtual machine can run here.
fn lacking() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("it makes network namespaces and needs root");
    }
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        return Some("qemu-system-x86_64 is not installed");
    }
    let program = PathBuf::from(env!("CARGO_BIN_EXE_sluice"));
    let image = program.ancestors().any(|folder| folder.join("guest/initrd.gz").is_file());
    (!image).then_some("there is nothing to boot: run scripts/guest.sh")
}

#[test]
#[ignore = "live: needs root"]
fn containers_and_virtual_machines_are_one_lab() {
    if let Some(why) = lacking() {
        eprintln!("SKIPPED containers_and_virtual_machines_are_one_lab: {why}");
        return;
    }
    let scenario =
        std::env::temp_dir().join(format!("sluice-live-vms-{}.toml", std::process::id()));
    std::fs::write(&scenario, SCENARIO).expect("a temporary file");
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["lab", "run"])
        .arg(&scenario)
        .output()
        .expect("it starts");
    _ = std::fs::remove_file(&scenario);
    let (printed, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{printed}");
    assert!(printed.contains("ping h0v0 to h1v0: 3 of 3 came back"), "{printed}");
    for row in ["ZZ reno", "ZZ cubic"] {
        let line = printed.lines().find(|line| line.contains(row)).expect("a row of each TCP");
        assert!(line.contains("closes"), "{line}");
    }
    let left = std::fs::read_dir("/proc").expect("/proc").flatten().filter(|folder| {
        let words = std::fs::read(folder.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("/run/sluice-lab/livevms/")
    });
    assert_eq!(left.count(), 0, "processes are left");
}
