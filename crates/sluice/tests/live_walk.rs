//! The scripted walk through learning, ARP, tunnels and flows on demand, with a check of all tables
//! of both switches after each step.

use std::process::Command;

#[test]
#[ignore = "live: needs root"]
fn netvisor_walk_tables_correct_after_every_step() {
    walk(&[]);
}

/// The same with the kernel as the chip of both switches, whose own tables are compared, too.
#[test]
#[ignore = "live: needs root"]
fn netvisor_walk_by_kernel_tables_correct() {
    walk(&["--chip", "kernel"]);
}

fn walk(more: &[&str]) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED live_walk: it makes network namespaces and needs root");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["lab", "run", "netvisor-walk"])
        .args(more)
        .output()
        .expect("it starts");
    let (printed, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{printed}");
    assert_eq!(printed.matches("as it should be").count(), 5, "{printed}");
}
