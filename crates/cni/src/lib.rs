//! `sluice-cni`: the plugin by which a container runtime puts containers into vnets (CNI
//! specification 1.1.0; the sections cited in this crate are its).
//!
//! ```text
//!   runtime ─ environment, stdin ─▶ sluice-cni ─ one line of JSON ─▶ the host's control process
//!           ◀─ result or error ──            │
//!                                            └ ADD, DEL, CHECK, GC, STATUS ─▶ the IPAM plugin
//! ```
//!
//! The plugin keeps nothing but claims (`claim.rs`) on what it is about to do. A port has a name
//! that follows from container and interface, and the host keeps its
//! [`Attachment`](sluice_api::port::Attachment) with it: DEL, CHECK and GC find by these what an
//! ADD made, also one that was killed. A port without an attachment, or with one of another
//! network, is never touched.
//!
//! It assigns no addresses itself: they are delegated to an IPAM plugin, or given by the
//! configuration or the runtime.
//!
//! `sluice-netavark` does the same for Podman, whose network stack has plugins of another form, and
//! `sluice-docker` ([`docker`]) for Docker, whose drivers are servers.
#![forbid(unsafe_code)]

mod attach;
mod check;
mod claim;
mod config;
pub mod docker;
mod error;
mod host;
mod invocation;
mod ipam;
mod name;
mod netavark;
mod options;
mod result;
mod upkeep;

use std::io::Read;

use serde_json::{Value, json};

use crate::config::{NetConfig, Version};
use crate::error::{Code, Error};
use crate::invocation::{Command, Invocation};

/// The longest configuration that is read; a runtime's has a few kilobytes.
const CONFIG_SIZE_MAX: usize = 1 << 20;

/// Output of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// JSON for standard output; empty if the command has no result.
    pub text: String,
    /// True if it is an error.
    pub is_error: bool,
}

/// Executes the command of the environment with the configuration of `input`.
pub fn run(variable: &dyn Fn(&str) -> Option<String>, input: &mut dyn Read) -> Answer {
    let mut version = Version::NEWEST;
    match execute(variable, input, &mut version) {
        Ok(Some(result)) => Answer { text: format!("{result}\n"), is_error: false },
        Ok(None) => Answer { text: String::new(), is_error: false },
        Err(error) => Answer { text: format!("{}\n", error.to_json(version)), is_error: true },
    }
}

/// Executes a subcommand of a plugin of netavark, Podman's network stack.
pub fn netavark(arguments: &[String], input: &mut dyn Read) -> Answer {
    netavark::run(arguments, input)
}

fn execute(
    variable: &dyn Fn(&str) -> Option<String>,
    input: &mut dyn Read,
    version: &mut Version,
) -> Result<Option<Value>, Error> {
    let command = Command::read(variable)?;
    let bytes = read_bounded(input)?;
    if command == Command::Version {
        return versions(&bytes).map(Some);
    }
    let config = NetConfig::parse(&bytes, version)?;
    let invocation = Invocation::read(command, variable)?;
    if command.needs_1_1() && config.version != Version::V1_1 {
        return Err(Error::new(
            Code::IncompatibleVersion,
            format!("{command} is a command of CNI 1.1.0, and cniVersion is {}", config.version),
            "set `\"cniVersion\": \"1.1.0\"` in the network configuration",
        ));
    }
    match command {
        Command::Add => attach::add(&invocation, &config).map(Some),
        Command::Del => attach::del(&invocation, &config).map(|()| None),
        Command::Check => check::check(&invocation, &config).map(|()| None),
        Command::Gc => upkeep::gc(&invocation, &config).map(|()| None),
        Command::Status => upkeep::status(&invocation, &config).map(|()| None),
        Command::Version => unreachable!("it is answered above"),
    }
}

/// Answers VERSION (section 2, "VERSION"), which a configuration of any version may ask.
fn versions(bytes: &[u8]) -> Result<Value, Error> {
    let asked: Value = match bytes.trim_ascii() {
        b"" => json!({}),
        bytes => serde_json::from_slice(bytes).map_err(|error| Error::undecodable(&error))?,
    };
    let asked = asked.get("cniVersion").and_then(Value::as_str);
    let version = asked.unwrap_or(Version::NEWEST.text());
    Ok(json!({ "cniVersion": version, "supportedVersions": Version::ALL.map(Version::text) }))
}

fn read_bounded(input: &mut dyn Read) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let limit = CONFIG_SIZE_MAX as u64 + 1;
    input.take(limit).read_to_end(&mut bytes).map_err(|error| {
        let msg = format!("standard input cannot be read: {error}");
        Error::new(Code::Io, msg, "give the network configuration on standard input")
    })?;
    if bytes.len() > CONFIG_SIZE_MAX {
        return Err(Error::new(
            Code::Undecodable,
            format!("the network configuration is longer than {CONFIG_SIZE_MAX} bytes"),
            "give a shorter one; `prevResult` and `args` are parts of it",
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
