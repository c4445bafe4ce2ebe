//! The simulator from the command line: its output and its failures. The test needs no root.

use std::path::PathBuf;
use std::process::{Command, Output};

fn sluice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice")).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder that is deleted when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-sim-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn incast_prints_its_comparison_and_writes_its_report() {
    let folder = Folder::new("incast");
    let out = folder.path("out");
    let few = ["--queries", "3", "--sizes", "16", "--out", &out];
    let output = sluice(&[&["sim", "run", "incast"], &few[..]].concat());
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    for word in ["LL", "LZ", "ZL", "ZZ", "gain over LL", "time-outs", "report.html"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let results = std::fs::read_to_string(format!("{out}/result.json")).expect("results");
    let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
    assert!(results["rows"].as_array().is_some_and(|rows| rows.len() > 20));
    let page = std::fs::read_to_string(format!("{out}/report.html")).expect("a report");
    assert!(page.contains("This is a simulation."));
}

#[test]
fn the_same_seed_prints_the_same_rows() {
    let rows = |seed: &str| {
        let few = ["--queries", "3", "--sizes", "16", "--policies", "LL", "--json"];
        let output = sluice(&[&["sim", "run", "incast", "--seed", seed], &few[..]].concat());
        let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        results["rows"].to_string()
    };
    assert_eq!(rows("5"), rows("5"));
    assert_ne!(rows("5"), rows("6"));
}

#[test]
fn sim_scenario_error_names_key_and_remedy() {
    let folder = Folder::new("wrong");
    let file = folder.path("wrong.toml");
    let good = "[sim]\nname = \"x\"\n[topology]\nkind = \"star\"\nhosts = 3\nlink_mbps = 1000\n\
                [overlay]\n[workload]\nkind = \"incast\"\nsenders = 9\nsizes = [4]\nqueries = 2\n";
    std::fs::write(&file, good).expect("a file");
    let output = sluice(&["sim", "run", &file]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("workload.senders: 1 to 2"), "{said}");
    std::fs::write(&file, good.replace("link_mbps", "link_gbps")).expect("a file");
    let said = text(&sluice(&["sim", "run", &file]).stderr);
    assert!(said.contains("link_gbps") && said.contains("link_mbps"), "{said}");
    let said = text(&sluice(&["sim", "run", "pa-vms"]).stderr);
    assert!(said.contains("lab.vms_per_host"), "{said}");
}

#[test]
fn a_sweep_goes_on_where_it_stopped() {
    let folder = Folder::new("sweep");
    let file = folder.path("sweep.toml");
    let sweep = "base = \"incast\"\n[grid]\n\"workload.queries\" = [2]\n\
                 \"workload.sizes\" = [[8]]\n\"sim.policies\" = [[\"LL\"], [\"ZZ\"]]\n";
    std::fs::write(&file, sweep).expect("a file");
    let out = folder.path("out");
    let run = || sluice(&["sim", "sweep", &file, "--out", &out, "--threads", "2"]);
    let first = run();
    assert!(first.status.success(), "{}", text(&first.stderr));
    let lines = || std::fs::read_to_string(format!("{out}/sweep.jsonl")).expect("lines");
    let whole = lines();
    assert_eq!(whole.lines().count(), 2);
    // The second line is torn, as left by a killed process.
    std::fs::write(format!("{out}/sweep.jsonl"), &whole[..whole.len() - 40]).expect("a file");
    assert!(run().status.success());
    assert_eq!(lines(), whole);
}
