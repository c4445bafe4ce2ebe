//! A daemon that answers questions and moves no frame.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;

use sluice_api::config::{HostConfig, Policy};
use sluice_api::fabric::{self, VportRow};
use sluice_api::show::{Answer, Audit, Body, PortRow, VERSION};

/// Number of reported endpoints: more than any lab of these tests has containers.
const VPORTS: usize = 64;

fn vport() -> VportRow {
    VportRow {
        vnet: "lab".to_owned(),
        mac: "02:00:00:00:00:01".to_owned(),
        ips: Vec::new(),
        shared: Vec::new(),
        host: "h0".to_owned(),
        port: "c0".to_owned(),
        state: "own".to_owned(),
        origin: "bound".to_owned(),
        moves: 0,
        there_ns: 0,
        unused_ns: 0,
        policy: None,
        usage: None,
    }
}

pub(crate) fn run(path: &Path) -> ExitCode {
    let config: HostConfig = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    if config.host.policy == Policy::LZ {
        eprintln!("no LZ today");
        return ExitCode::FAILURE;
    }
    // As the daemon does, refuses to run in a namespace that lacks the devices.
    for device in config.underlay.iter().map(|underlay| underlay.device.as_str()) {
        assert!(Path::new("/sys/class/net").join(device).exists(), "no device {device} here");
    }
    let folder = config.host.run_dir.clone().unwrap();
    let listener = UnixListener::bind(Path::new(&folder).join("show.sock")).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        if line.trim() == r#"{"fabric":{"vports":{"vnet":null}}}"# {
            let vports = fabric::Answer::Vports(vec![vport(); VPORTS]);
            let _ = writeln!(stream, "{}", serde_json::to_string(&vports).unwrap());
            continue;
        }
        let body = match line.trim() {
            r#"{"show":"ports"}"# => Body::Ports(ports(&config)),
            r#"{"show":"audit"}"# => Body::Audit(Audit { closed: true, rows: Vec::new() }),
            r#"{"show":"drops"}"# => Body::Drops(Vec::new()),
            r#"{"show":"pauses"}"# => Body::Pauses(Vec::new()),
            other => panic!("{other}"),
        };
        let (host, policy) = (config.host.name.clone(), config.host.policy);
        let answer = Answer {
            version: VERSION,
            host,
            policy,
            at_ns: 1,
            outside: Vec::new(),
            guard: Vec::new(),
            body,
        };
        let text = serde_json::to_string(&answer).unwrap() + "\n";
        let _ = stream.write_all(text.as_bytes());
    }
    ExitCode::SUCCESS
}

fn ports(config: &HostConfig) -> Vec<PortRow> {
    let names = config.ports.iter().map(|port| port.name.clone());
    let underlay = config.underlay.iter().map(|underlay| underlay.device.clone());
    names.chain(underlay).map(|port| PortRow { port, ..PortRow::default() }).collect()
}
