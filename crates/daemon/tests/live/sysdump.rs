//! `sluice sysdump`: the archive of a fabric's host has what the host says, what the machine says
//! and nothing secret; a host that hangs or is dead costs time, and no archive.
//!
//! ```text
//!   c1 ─ tap ─┤ h1 ══ h2 ├─ tap ─ c2
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::bridge::{Bridge, ip};
use crate::rig::{self, Daemon, Net, say, skip, wait_for};

/// Longest time for a dump of a host that does not answer.
const SILENT_MAX: Duration = Duration::from_secs(120);
/// Shortest part of a key that is looked for.
const PART_SIZE: usize = 24;

/// Files of an archive by their path in it.
fn files(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(archive).unwrap()));
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().components().skip(1).collect::<PathBuf>();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(path.to_str().unwrap().to_owned(), bytes);
    }
    files
}

/// Makes an archive; returns its files, and the errors by file.
fn dump(daemon: &Daemon, file: &Path) -> (BTreeMap<String, Vec<u8>>, BTreeMap<String, String>) {
    let began = Instant::now();
    let summary = daemon.ask(&["sysdump", "--out", file.to_str().unwrap()]);
    let files = files(file);
    say(&format!(
        "{} files, {} bytes, {} errors in {} ms",
        summary["entries"],
        summary["size"],
        summary["errors"].as_array().unwrap().len(),
        began.elapsed().as_millis()
    ));
    let about = fs::metadata(file).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    assert_eq!(summary["size"], about.len());
    assert_eq!(summary["entries"], files.len());
    let word = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let errors = summary["errors"].as_array().unwrap().iter();
    let errors: BTreeMap<String, String> =
        errors.map(|row| (word(row, "entry"), word(row, "why"))).collect();
    let said = String::from_utf8_lossy(&files["errors.txt"]).into_owned();
    assert_eq!(said.lines().count(), errors.len(), "{said}");
    say(&said);
    (files, errors)
}

/// Returns the lines of all private keys below a folder.
fn keys(folder: &Path, lines: &mut Vec<String>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            keys(&path, lines);
        } else if let Ok(text) = fs::read_to_string(&path)
            && text.starts_with("-----BEGIN PRIVATE KEY-----")
        {
            let long = text.lines().filter(|line| line.len() >= PART_SIZE && !line.contains("--"));
            lines.extend(long.map(str::to_owned));
        }
    }
}

#[test]
#[ignore = "live: needs root"]
fn archive_of_fabric_has_no_secret() {
    if skip("archive_of_fabric_has_no_secret", &["nsenter", "ss"]) {
        return;
    }
    let bridge = Bridge::fabric("sysdump", 2);
    (0..2).for_each(|own| _ = bridge.add(own));
    bridge.containers[0].ping(ip(1), 3);
    let token = bridge.daemons[0].says(&["fabric", "token"]);
    let mut secrets = Vec::new();
    for host in ["h1", "h2"] {
        keys(&bridge.net.file(host), &mut secrets);
    }
    assert!(secrets.len() > 2, "hosts have keys");
    // A log should not have them; if it has, the archive does not.
    let log = File::options().append(true).open(bridge.net.file("h1").join("log"));
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}", secrets[0]);
    write!(log.unwrap(), "a note: {token}\n{pem}\n-----END PRIVATE KEY-----\nend\n").unwrap();
    secrets.push(token.trim().trim_start_matches("sluice1-").to_owned());

    let (files, errors) = dump(&bridge.daemons[0], &bridge.net.file("h1.tar.gz"));
    for (path, bytes) in &files {
        let text = String::from_utf8_lossy(bytes);
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "{path} has a secret in it");
        }
        assert!(!text.contains("PRIVATE KEY-----\nM"), "{path} has a key in it");
        let json = path.ends_with(".json");
        assert!(!json || serde_json::from_str::<Value>(&text).is_ok(), "{path}: {text}");
    }
    let text = |path: &str| String::from_utf8(files[path].clone()).unwrap();
    let own = |path: &&String| path.starts_with("show/") || path.starts_with("fabric/");
    let lacks: Vec<&String> = errors.keys().filter(own).collect();
    assert!(lacks.is_empty(), "{errors:?}");
    assert_eq!(files.keys().filter(own).count(), 10 + 11, "all questions");
    let all = ["status.json", "doctor.json", "ports.json", "metrics.txt", "version.txt"];
    all.iter().for_each(|path| assert!(files.contains_key(*path), "{path}: {errors:?}"));
    let netns = bridge.containers[0].name();
    assert!(text(&format!("namespace/{netns}/address.json")).contains("10.42.0.1"));
    assert!(text("namespace/host/address.json").contains("192.0.2.1"));
    assert!(text("log.txt").contains("a note: sluice1-(left out)"), "{}", text("log.txt"));
    assert!(text("README.txt").contains("show/drops.json"));
    assert!(text("show/audit.json").contains("\"host\": \"h1\""));
    assert!(text("config/host.toml").contains("[host]"));
}

#[test]
#[ignore = "live: needs root"]
fn silent_host_dumped_in_bounded_time() {
    if skip("silent_host_dumped_in_bounded_time", &["mount", "umount"]) {
        return;
    }
    let file = |_: &Net, _| "data_hung_ms = 60000\n".to_owned();
    let mut bridge = Bridge::waiting("silent", 1, file);
    bridge.become_fabric();
    bridge.add(0);
    let file = bridge.net.file("a.tar.gz");
    let within = |daemon: &Daemon| {
        let began = Instant::now();
        let dumped = dump(daemon, &file);
        assert!(began.elapsed() < SILENT_MAX, "{:?}", began.elapsed());
        dumped
    };
    let daemon = &bridge.daemons[0];
    daemon.hang_data(true);
    let (files, errors) = within(daemon);
    daemon.hang_data(false);
    assert!(errors["show/ports.json"].contains("does not answer"), "{errors:?}");
    assert!(files.contains_key("fabric/members.json") && files.contains_key("log.txt"));

    daemon.hang_control(true);
    let (files, errors) = within(daemon);
    daemon.hang_control(false);
    assert!(errors["status.json"].contains("does not answer"), "{errors:?}");
    assert!(files.contains_key("show/ports.json"), "data is asked directly: {errors:?}");
    full_disk(&bridge);

    let data = format!("/proc/{}", bridge.daemons[0].data_pid());
    bridge.daemons[0].kill_both();
    wait_for("data is gone", || !Path::new(&data).exists());
    let (files, errors) = within(&bridge.daemons[0]);
    assert!(errors["host"].contains("no process of it runs in"), "{errors:?}");
    let netns = bridge.containers[0].name();
    assert!(files.contains_key(&format!("namespace/{netns}/link.json")), "{errors:?}");
}

fn full_disk(bridge: &Bridge) {
    let folder = bridge.net.file("small");
    fs::create_dir_all(&folder).unwrap();
    rig::run(&format!("mount -t tmpfs -o size=8k tmpfs {}", folder.display()));
    let file = folder.join("a.tar.gz");
    let output =
        bridge.daemons[0].command(&["sysdump", "--out", file.to_str().unwrap()]).output().unwrap();
    let left = fs::read_dir(&folder).unwrap().count();
    rig::run(&format!("umount {}", folder.display()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("No space left on device"), "{said}");
    assert!(said.contains("name a place with room by `--out`"), "{said}");
    assert_eq!(left, 0, "nothing is left");
}
