//! The package for Debian, as Debian's own tools handle it, on a copy of this machine that is
//! thrown away: `tests/package/try.sh`, and `tests/package/fleet.sh` on three.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rig::{program, say, skip};

/// Programs of Debian that the test needs.
const TOOLS: [&str; 6] =
    ["dpkg-deb", "dpkg-shlibdeps", "unshare", "ip", "ping", "systemd-sysusers"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds a package of the programs under test.
fn package(version: &str) -> String {
    let folder = program().parent().expect("a program is in a folder").to_owned();
    let mut build = Command::new("bash");
    build.arg(repository().join("scripts/deb.sh")).arg(version);
    build.env("PROGRAMS", &folder).env("PLUGINS", &folder);
    // Not to be handed on: it takes a minute to compress programs with all of their checks.
    build.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    let output = build.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a script of `tests/package` with two versions of the package, on copies of this machine.
fn try_packages(test: &str, script: &str, tools: &[&str]) {
    if skip(test, &[&TOOLS[..], tools].concat()) {
        return;
    }
    let has_overlay = std::fs::read_to_string("/proc/filesystems").unwrap().contains("\toverlay\n");
    if !has_overlay {
        say(&format!("SKIPPED {test}: the kernel has no overlayfs"));
        return;
    }
    let work = std::env::temp_dir().join(format!("sluice-{script}-{}", std::process::id()));
    std::fs::create_dir_all(&work).unwrap();
    let packages = [1, 2].map(|number| package(&format!("0.1.0~{script}{number}")));
    let mut run = Command::new("unshare");
    run.args(["--mount", "--net", "bash"]);
    run.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/package/{script}.sh")));
    run.args(&packages).arg(&work);
    let output = run.output().unwrap();
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    packages.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    // What was mounted there went with its namespace.
    _ = std::fs::remove_dir_all(&work);
    assert!(output.status.success(), "{said}\n{wrong}");
    say(said.trim());
}

#[test]
#[ignore = "live: needs root"]
fn package_upgrades_beneath_traffic_and_goes() {
    try_packages("package_upgrades_beneath_traffic_and_goes", "try", &[]);
}

#[test]
#[ignore = "live: needs root"]
fn package_upgrades_fabric_host_by_host() {
    let tools = ["nsenter", "curl", "python3", "hostname"];
    try_packages("package_upgrades_fabric_host_by_host", "fleet", &tools);
}
