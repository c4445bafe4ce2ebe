//! `sluice capture` and `sluice extcap`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sluice_api::capture::{Question, SNAPLEN_MAX, SNAPLEN_MIN};
use sluice_daemon::client::capture::extcap::{Extcap, extcap};
use sluice_daemon::client::capture::{Style, capture};

use crate::Asked;

#[derive(Args, Debug)]
pub(crate) struct CaptureArguments {
    #[command(flatten)]
    wanted: Wanted,
    /// End after so many frames
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// The file; `-`, the default: the standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    asked: Asked,
}

/// The frames that are wanted.
#[derive(Args, Debug)]
struct Wanted {
    /// Frames of this port; may be given several times
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<String>,
    /// Frames of this network, also in tunnels; may be given several times
    #[arg(long = "vnet", value_name = "NAME")]
    vnets: Vec<String>,
    /// Frames in tunnels from and to this host; may be given several times
    #[arg(long = "peer", value_name = "HOST")]
    peers: Vec<String>,
    /// Frames from and to other hosts, with their outer headers
    #[arg(long)]
    underlay: bool,
    /// Dropped frames alone, of one reason if it is named
    #[arg(long, value_name = "REASON", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "without the option, without a value, with one")]
    drops: Option<Option<String>>,
    /// Dropped frames, too
    #[arg(long, conflicts_with = "drops")]
    with_drops: bool,
    /// The most bytes of a frame
    #[arg(long, value_name = "BYTES", default_value_t = 65_535,
          value_parser = clap::value_parser!(u32)
              .range(i64::from(SNAPLEN_MIN)..=i64::from(SNAPLEN_MAX)))]
    snaplen: u32,
}

impl Wanted {
    fn question(self) -> Question {
        // Wireshark gives an empty text for what is not filled in.
        let named = |names: Vec<String>| names.into_iter().filter(|name| !name.is_empty());
        Question {
            ports: named(self.ports).collect(),
            vnets: named(self.vnets).collect(),
            peers: named(self.peers).collect(),
            underlay: self.underlay,
            frames: self.drops.is_none(),
            drops: self.drops.is_some() || self.with_drops,
            reason: self.drops.flatten(),
            snaplen: self.snaplen,
        }
    }
}

pub(crate) fn run(arguments: CaptureArguments) -> anyhow::Result<ExitCode> {
    let CaptureArguments { wanted, count, seconds, out, asked } = arguments;
    let out = out.filter(|path| path.as_os_str() != "-");
    let style = Style { count, seconds, out, json: asked.json };
    capture(&asked.whom(), wanted.question(), &style)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Args, Debug)]
pub(crate) struct ExtcapArguments {
    /// The directory of the host, if it is not one of `/run/sluice`
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// List the devices
    #[arg(long)]
    extcap_interfaces: bool,
    /// Version of Wireshark
    #[arg(long, value_name = "VERSION", num_args = 0..=1)]
    extcap_version: Option<String>,
    /// The device
    #[arg(long, value_name = "DEVICE", default_value = "")]
    extcap_interface: String,
    /// Tell the kind of frames
    #[arg(long)]
    extcap_dlts: bool,
    /// Tell the options
    #[arg(long)]
    extcap_config: bool,
    /// A filter of Wireshark's, which is not used
    #[arg(long, value_name = "FILTER")]
    extcap_capture_filter: Option<String>,
    /// Capture
    #[arg(long, requires = "fifo")]
    capture: bool,
    /// The FIFO for the frames
    #[arg(long, value_name = "PATH")]
    fifo: Option<PathBuf>,
    #[command(flatten)]
    wanted: Wanted,
}

pub(crate) fn run_extcap(arguments: ExtcapArguments) -> anyhow::Result<ExitCode> {
    let interface = arguments.extcap_interface;
    let asked = match arguments.fifo.filter(|_| arguments.capture) {
        Some(fifo) => Extcap::Capture { interface, fifo, question: arguments.wanted.question() },
        None if arguments.extcap_config => Extcap::Config(interface),
        None if arguments.extcap_dlts => Extcap::Dlts(interface),
        None => Extcap::Interfaces,
    };
    extcap(asked, arguments.run_dir.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
