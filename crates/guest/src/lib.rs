//! `sluice guest`: what runs inside a virtual machine. It sets what losslessness needs there, says
//! each setting, and then tells the host's port which room UDP sockets have
//! ([`sluice_ports::guest`]).
//!
//! The same command is a program of its own, `sluice-guest`, which can be linked statically and
//! copied into any machine (`make guest`).
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sluice_api::envelope::Envelope;
use sluice_ports::guest::{self, Agent, Setting, Told};

/// Time without a word of the host until that is said.
const HOST_UNHEARD: Duration = Duration::from_secs(5);
/// Highest priority of an ordinary process: the host waits for its answers.
const NICE: i32 = -20;

/// Arguments of `sluice guest`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The machine's card
    #[arg(default_value = "eth0", value_name = "DEVICE")]
    device: String,
    /// Only apply the settings
    #[arg(long)]
    once: bool,
    /// Leave the settings as they are
    #[arg(long, conflicts_with = "once")]
    no_settings: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Keep the agent's own frames in a file, which the card counts beside the machine's: received,
    /// sent
    #[arg(long, value_name = "FILE")]
    count_file: Option<PathBuf>,
}

/// The host, as far as the agent knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Unheard,
    Asks,
    Idle,
}

impl Host {
    fn name(self) -> &'static str {
        match self {
            Self::Unheard => "unheard",
            Self::Asks => "asks",
            Self::Idle => "idle",
        }
    }

    fn text(self, device: &str) -> String {
        match self {
            Self::Asks => format!("{device}: the host asks, and holds datagrams for sockets here"),
            Self::Idle => format!(
                "{device}: the host holds nothing for sockets here: its network is lossy; make it \
                 lossless there (policy ZZ, ZL or CR)"
            ),
            Self::Unheard => format!(
                "{device}: no host asks: the card must be a vhost-user port of sluice with one \
                 queue pair; `sluice show ports` there says what it lacks"
            ),
        }
    }
}

/// Applies the settings, then runs the agent until a signal.
///
/// # Errors
/// Says what failed, with the remedy.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let device = arguments.device.as_str();
    let mut code = ExitCode::SUCCESS;
    if !arguments.no_settings {
        let settings = guest::apply(device)?;
        print_settings(&settings, arguments.json);
        if settings.iter().any(|setting| setting.error.is_some()) {
            code = ExitCode::FAILURE;
        }
    }
    if arguments.once {
        return Ok(code);
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let agent = Agent::open(device, arguments.count_file.as_deref())?;
    // It answers later without; the host waits longer then.
    _ = rustix::process::setpriority_process(None, NICE);
    answer(agent, &stop, arguments)?;
    Ok(code)
}

fn answer(mut agent: Agent, stop: &AtomicBool, arguments: &Arguments) -> anyhow::Result<()> {
    let mut host = Host::Unheard;
    let (mut heard, mut said) = (Instant::now(), false);
    while !stop.load(Ordering::Relaxed) {
        let now = match agent.turn()? {
            Told::Asked => Host::Asks,
            Told::Idle => Host::Idle,
            Told::Nothing if heard.elapsed() >= HOST_UNHEARD => Host::Unheard,
            Told::Nothing => continue,
        };
        if now != Host::Unheard {
            heard = Instant::now();
        }
        if now != host || !said {
            (host, said) = (now, true);
            print_host(host, arguments);
        }
    }
    agent.end()?;
    Ok(())
}

fn print_settings(settings: &[Setting], in_json: bool) {
    if in_json {
        let rows: Vec<Value> = settings.iter().map(in_object).collect();
        print_object(&json!({ "settings": rows }));
        return;
    }
    for setting in settings {
        println!("{}", line(setting));
    }
}

fn in_object(setting: &Setting) -> Value {
    let Setting { name, before, wanted, error } = setting;
    json!({ "name": name, "before": before, "value": wanted, "error": error })
}

/// A setting as a line of text.
fn line(setting: &Setting) -> String {
    let Setting { name, before, wanted, error } = setting;
    match (error, before) {
        (Some(error), _) => format!("{name}: not set to {wanted}: {error}"),
        (None, Some(before)) if before == wanted => format!("{name}: {wanted}, as it was"),
        (None, Some(before)) => format!("{name}: {wanted}, was {before}"),
        (None, None) => format!("{name}: {wanted}"),
    }
}

fn print_host(host: Host, arguments: &Arguments) {
    if arguments.json {
        print_object(&json!({ "device": arguments.device, "hears": host.name() }));
    } else {
        println!("{}", host.text(&arguments.device));
    }
}

fn print_object(object: &Value) {
    println!("{}", Envelope::now(None).around(&object.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_says_change_or_reason() {
        let setting = |before: Option<&str>, error: Option<&str>| Setting {
            name: "net.core.rmem_max".to_owned(),
            before: before.map(str::to_owned),
            wanted: "67108864".to_owned(),
            error: error.map(str::to_owned),
        };
        let table = [
            (Some("212992"), None, "net.core.rmem_max: 67108864, was 212992"),
            (Some("67108864"), None, "net.core.rmem_max: 67108864, as it was"),
            (None, None, "net.core.rmem_max: 67108864"),
            (None, Some("denied"), "net.core.rmem_max: not set to 67108864: denied"),
        ];
        for (before, error, text) in table {
            assert_eq!(line(&setting(before, error)), text);
        }
    }

    #[test]
    fn host_that_is_unheard_has_remedy() {
        assert!(Host::Unheard.text("eth1").starts_with("eth1: no host asks"));
        assert!(Host::Idle.text("eth1").contains("lossless"));
    }
}
