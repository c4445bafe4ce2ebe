//! The `sluice` binary: argument parsing only.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use sluice_api::envelope::{Envelope, Failed};
use sluice_api::fabric;
use sluice_api::show;
use sluice_api::span::Span;
use sluice_api::trace::{LIMIT_MS, LIMIT_MS_MAX, Question};
use sluice_daemon::client;
use sluice_daemon::client::show::{HostSelector, Style};
use sluice_daemon::data::Begin;
use sluice_daemon::fabric::certificates::{self, CertificateRequest};
use sluice_lab::cli::LabCommand;
use sluice_lab::sim::cli::SimCommand;

use access::ApiCommand;
use import::ImportArguments;
use port::PortCommand;
use transaction::{ConfigCommand, EvictArguments, JoinArguments, PlaceArguments, RecoverArguments};
use transaction::{TokenArguments, VnetCommand};
use vlan::VlanCommand;
use vport::VportCommand;

mod access;
mod capture;
mod generate;
mod import;
mod placement;
mod port;
mod transaction;
mod vlan;
mod vport;

/// A lossless overlay network for virtual machines and containers
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a host: a virtual switch with its ports
    Daemon(DaemonArguments),
    /// Look at what this machine can do for a host, and what to change; ends with 0 if all is as it
    /// should be, with 3 for `warn`, 4 for `stop`, and 5 for `unknown`
    Doctor {
        /// The configuration of a host, whose needs are looked at too
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Tell whether a running host is well, and its fabric, and what to do if not; ends with 0 if
    /// all is as it should be, with 3 for `warn`, 4 for `stop`, 5 for `unknown`, and with 1 if no
    /// host answers
    Status {
        #[command(flatten)]
        asked: Asked,
    },
    /// Make one archive for a bug report: what the host says, and the machine, without secrets
    Sysdump {
        /// The archive; `-`: the standard output. Default: a file here, with host and time
        #[arg(long, value_name = "FILE.tar.gz")]
        out: Option<PathBuf>,
        #[command(flatten)]
        asked: Asked,
    },
    /// Capture frames as pcapng: as they enter and leave ports, and those that are dropped
    Capture(capture::CaptureArguments),
    /// Answer Wireshark, which runs this as a program of its `extcap` folder
    Extcap(capture::ExtcapArguments),
    /// Ask a running host
    Show(ShowArguments),
    /// Show what a host does now: the time of its data workers, the rates of its ports
    Top(TopArguments),
    /// Have a new data process take over from the one that runs, without a frame lost
    Upgrade {
        #[command(flatten)]
        asked: Asked,
    },
    /// Have a running host apply its changed configuration file, without a frame lost of what stays
    Reload {
        #[command(flatten)]
        asked: Asked,
    },
    /// Add and delete ports of a running host
    #[command(subcommand)]
    Port(PortCommand),
    /// Endpoints: who is where
    #[command(subcommand)]
    Vport(VportCommand),
    /// Networks
    #[command(subcommand)]
    Vnet(VnetCommand),
    /// VLANs of physical networks, and the networks that they are
    #[command(subcommand)]
    Vlan(VlanCommand),
    /// The configuration that all members of a fabric share: settings and networks
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Tokens of those who use the management API over the network
    #[command(subcommand)]
    Api(ApiCommand),
    /// The hosts that work together
    #[command(subcommand)]
    Fabric(FabricCommand),
    /// Trace a frame and tell its fate and why, hop by hop; ends with 0 if it passes, with 3 for
    /// `warn`, 4 for `stop`, 5 for `unknown`, and with 1 or 2 if no host could be asked
    Trace(TraceArguments),
    /// Choose the cores that do tunnel work, once for all hosts of a fabric
    #[command(subcommand)]
    Placement(placement::PlacementCommand),
    /// Choose the cores that do the kernel's tunnel work for a device
    Steer(sluice_steer::Arguments),
    /// Inside a virtual machine: set what losslessness needs there, and tell the host the room of
    /// UDP sockets, so that it holds their senders
    Guest(sluice_guest::Arguments),
    /// Build networks of namespaces on this machine, and measure in them
    #[command(subcommand)]
    Lab(LabCommand),
    /// Simulate data centres, and measure in them
    #[command(subcommand)]
    Sim(SimCommand),
    /// Print the completion of these commands for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands
    #[command(hide = true)]
    Man {
        /// The folder for them
        #[arg(value_name = "DIR")]
        out: PathBuf,
    },
}

#[derive(Args, Debug)]
struct DaemonArguments {
    /// The configuration of the host; a host without one, or whose file has no networks and peers,
    /// is a member of a fabric that was made by command, or waits to become one
    #[arg(long, value_name = "FILE", required_if_eq_any([("check", "true"), ("role", "data")]))]
    config: Option<PathBuf>,
    /// The name of the host, if its file does not say it; default: the machine's
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Check the configuration and do nothing
    #[arg(long)]
    check: bool,
    /// The one of the two processes to be
    #[arg(long, value_enum, hide = true, default_value = "control")]
    role: Role,
    /// Take the descriptors of an earlier data process from standard input
    #[arg(long, hide = true)]
    takes_over: bool,
    /// Take everything of the running data process from standard input, once this one is ready
    #[arg(long, hide = true, conflicts_with = "takes_over")]
    succeeds: bool,
    /// The directory that relative paths of the configuration are relative to, if not its own
    #[arg(long, hide = true, value_name = "DIR")]
    beside: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Control,
    Data,
}

#[derive(Args, Debug)]
struct ShowArguments {
    /// The rows to show
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    asked: Asked,
    /// Ask again every second
    #[arg(long)]
    watch: bool,
}

/// The host to ask, and the form of its answer.
#[derive(Args, Debug)]
struct Asked {
    /// The socket of the host
    #[arg(long, value_name = "PATH", conflicts_with_all = ["run_dir", "host"])]
    socket: Option<PathBuf>,
    /// The directory of the host
    #[arg(long, value_name = "DIR", conflicts_with = "host")]
    run_dir: Option<PathBuf>,
    /// The name of the host
    #[arg(long, visible_alias = "on", value_name = "NAME")]
    host: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Asked {
    fn whom(&self) -> HostSelector {
        match (&self.socket, &self.run_dir, &self.host) {
            (Some(path), _, _) => HostSelector::Socket(path.clone()),
            (None, Some(dir), _) => HostSelector::RunDir(dir.clone()),
            (None, None, Some(name)) => HostSelector::Host(name.clone()),
            (None, None, None) => HostSelector::TheOnlyOne,
        }
    }
}

#[derive(Args, Debug)]
struct TopArguments {
    /// The span of a picture, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    every_ms: u64,
    /// The number of pictures; default: until interrupted
    #[arg(long, value_name = "N")]
    count: Option<u32>,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
struct TraceArguments {
    /// The network that the frame is in
    #[arg(long, value_name = "NAME")]
    vnet: String,
    /// The sender: a MAC, an IP address, or a port (PORT or HOST/PORT)
    #[arg(long, value_name = "MAC|IP|PORT")]
    from: String,
    /// The receiver, named the same ways
    #[arg(long, value_name = "MAC|IP|PORT")]
    to: String,
    /// The ingress port of the frame, at the host that is asked
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// The time limit of the answer, in ms; hosts that do not answer by then are named
    #[arg(long, value_name = "MS", default_value_t = LIMIT_MS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MS_MAX)))]
    limit_ms: u32,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, Subcommand)]
enum FabricCommand {
    /// Make a fabric of a host that waits for one
    Create {
        /// The name of the fabric
        name: String,
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Make a token with which one host may join
    Token(TokenArguments),
    /// Make a host that waits for it a member of a fabric
    Join(JoinArguments),
    /// Make a fabric of hosts whose files say everything, while they forward
    Import(ImportArguments),
    /// Leave the fabric
    Leave {
        /// Ask no member, and only forget the fabric here: for a host that was evicted
        #[arg(long)]
        forget: bool,
        #[command(flatten)]
        asked: Asked,
    },
    /// Take a member out that is gone, or that is not believed any more
    Evict(EvictArguments),
    /// Continue without members that are lost for good, when the others are too few to decide
    Recover(RecoverArguments),
    /// Give this host another key, and a certificate for it
    RotateKey {
        #[command(flatten)]
        asked: Asked,
    },
    /// Replace the fabric's authority while it runs; continues a replacement that has stopped
    RotateCa {
        /// Give the new authority up instead, after the first step: it does not sign yet
        #[arg(long)]
        abandon: bool,
        #[command(flatten)]
        asked: Asked,
    },
    /// The hosts, and whether they are alive
    Members {
        #[command(flatten)]
        asked: Asked,
    },
    /// Tunnels and flows that are in use
    Flows {
        #[command(flatten)]
        asked: Asked,
    },
    /// The hosts, the members' progress with the configuration, and the receivers that do not take
    /// frames; ends with 3 if a member is away or behind, with 4 if the configuration cannot be
    /// changed, with 5 if this host was evicted
    Status {
        #[command(flatten)]
        asked: Asked,
    },
    /// Receivers that do not take frames, here and at other hosts
    Holds {
        #[command(flatten)]
        asked: Asked,
    },
    /// The host as a BGP speaker: its neighbors, their routes and the VTEPs that they name
    Evpn {
        #[command(flatten)]
        asked: Asked,
    },
    /// Listen for the hosts on this network, those of a fabric and those that wait for one
    Discover {
        /// The time to listen
        #[arg(long = "for", value_name = "SPAN", default_value = "3s")]
        span: Span,
        /// The device to listen on; default: all that may lead to other hosts
        #[arg(long, value_name = "DEV")]
        device: Option<String>,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Make certificates for hosts
    Cert {
        /// The folder for the authority and the hosts' folders
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// The number of days that they are valid
        #[arg(long, default_value_t = 825, allow_negative_numbers = true)]
        days: i32,
        /// Make new ones for hosts that have one
        #[arg(long)]
        replace: bool,
        /// Print JSON instead of lines
        #[arg(long)]
        json: bool,
        /// The names of the hosts
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// The ports, with the kernel's counters
    Ports,
    /// The queues that hold frames
    Queues,
    /// Drops by port, priority and reason
    Drops,
    /// The balance of all frames
    Audit,
    /// Pauses sent and received
    Pauses,
    /// The tunnels to other hosts
    Tunnels,
    /// The MAC table
    Mac,
    /// The times of the data workers
    Worker,
    /// The data worker of each port, and the reason
    Placement,
    /// The chip: what forwards frames of known addresses
    Chip,
}

impl From<What> for show::Question {
    fn from(what: What) -> Self {
        match what {
            What::Ports => Self::Ports,
            What::Queues => Self::Queues,
            What::Drops => Self::Drops,
            What::Audit => Self::Audit,
            What::Pauses => Self::Pauses,
            What::Tunnels => Self::Tunnels,
            What::Mac => Self::Mac,
            What::Worker => Self::Worker,
            What::Placement => Self::Placement,
            What::Chip => Self::Chip,
        }
    }
}

fn main() -> ExitCode {
    // Arguments that cannot be parsed have no flags.
    let json = std::env::args_os().any(|argument| argument == "--json");
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) if json && error.use_stderr() => {
            let text = error.render().to_string();
            let (what, usage) = text.trim().split_once('\n').unwrap_or((&text, ""));
            let remedy = usage.trim().to_owned();
            print_failed(&Failed { error: what.to_owned(), remedy });
            return ExitCode::from(USAGE);
        }
        Err(error) => error.exit(),
    };
    let done = match command {
        Command::Daemon(arguments) => daemon(&arguments),
        Command::Sysdump { out, asked } => {
            sluice_daemon::sysdump(&asked.whom(), out.as_deref(), asked.json)
                .map(|()| ExitCode::SUCCESS)
        }
        Command::Capture(arguments) => capture::run(arguments),
        Command::Extcap(arguments) => capture::run_extcap(arguments),
        Command::Doctor { config, json } => sluice_daemon::doctor(config.as_deref(), json)
            .map(|grade| ExitCode::from(grade.exit_code())),
        Command::Status { asked } => client::status::status(&asked.whom(), asked.json)
            .map(|grade| ExitCode::from(grade.exit_code())),
        Command::Show(arguments) => show(&arguments),
        Command::Top(arguments) => top(&arguments),
        Command::Upgrade { asked } => upgrade(&asked),
        Command::Reload { asked } => reload(&asked),
        Command::Port(command) => port::run(command),
        Command::Vport(command) => vport::run(command),
        Command::Vlan(command) => vlan::run(command),
        Command::Vnet(command) => transaction::vnet(command),
        Command::Config(command) => transaction::config(command),
        Command::Api(command) => access::run(command),
        Command::Fabric(command) => fabric_command(&command),
        Command::Trace(arguments) => trace(arguments),
        Command::Placement(command) => placement::run(command),
        Command::Steer(arguments) => sluice_steer::steer(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Guest(arguments) => sluice_guest::run(&arguments),
        Command::Lab(command) => sluice_lab::cli::run(command),
        Command::Sim(command) => sluice_lab::sim::cli::run(command),
        Command::Completions { shell } => generate::completions(Arguments::command(), shell),
        Command::Man { out } => generate::manual(Arguments::command(), &out),
    };
    done.unwrap_or_else(|error| {
        let whole = format!("{error:#}");
        if json {
            print_failed(&Failed::new(&error.to_string(), whole.clone()));
        }
        eprintln!("sluice: {whole}");
        ExitCode::FAILURE
    })
}

/// Exit code for wrong arguments, which is clap's.
const USAGE: u8 = 2;

/// Prints an error in the place of an answer.
fn print_failed(failed: &Failed) {
    use std::io::Write as _;
    let object = serde_json::to_string(failed).expect("two texts");
    // The reader may be gone.
    _ = writeln!(std::io::stdout(), "{}", Envelope::now(None).around(&object));
}

fn daemon(arguments: &DaemonArguments) -> anyhow::Result<ExitCode> {
    let file = || arguments.config.as_deref().context("name a file with `--config`");
    match (arguments.check, arguments.role) {
        (true, _) => sluice_daemon::check(file()?),
        (false, Role::Control) => {
            sluice_daemon::control::run(arguments.config.as_deref(), arguments.name.as_deref())
        }
        (false, Role::Data) => {
            let begin = match (arguments.takes_over, arguments.succeeds) {
                (_, true) => Begin::Succeeds,
                (true, false) => Begin::TakesOver,
                (false, false) => Begin::Alone,
            };
            sluice_daemon::data::run(file()?, arguments.beside.as_deref(), begin)
        }
    }
}

fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let style = Style { json: arguments.asked.json, watch: arguments.watch };
    client::show::show(&arguments.asked.whom(), arguments.what.into(), style)?;
    Ok(ExitCode::SUCCESS)
}

fn reload(asked: &Asked) -> anyhow::Result<ExitCode> {
    client::reload::reload(&asked.whom(), asked.json)?;
    Ok(ExitCode::SUCCESS)
}

fn upgrade(asked: &Asked) -> anyhow::Result<ExitCode> {
    client::upgrade::upgrade(&asked.whom(), asked.json)?;
    Ok(ExitCode::SUCCESS)
}

fn top(arguments: &TopArguments) -> anyhow::Result<ExitCode> {
    let style = client::top::Style {
        json: arguments.asked.json,
        every: std::time::Duration::from_millis(arguments.every_ms.max(1)),
        count: arguments.count,
    };
    client::top::top(&arguments.asked.whom(), style)?;
    Ok(ExitCode::SUCCESS)
}

fn ask(asked: &Asked, question: fabric::Question) -> anyhow::Result<ExitCode> {
    client::fabric::show(&asked.whom(), question, asked.json)?;
    Ok(ExitCode::SUCCESS)
}

fn trace(arguments: TraceArguments) -> anyhow::Result<ExitCode> {
    let TraceArguments { vnet, from, to, port, limit_ms, asked } = arguments;
    let question = Question { vnet, from, to, port, limit_ms };
    let grade = client::fabric::trace(&asked.whom(), question, asked.json)?;
    Ok(ExitCode::from(grade.exit_code()))
}

fn fabric_command(command: &FabricCommand) -> anyhow::Result<ExitCode> {
    match command {
        FabricCommand::Create { name, place } => transaction::create(name, place),
        FabricCommand::Token(arguments) => transaction::token(arguments),
        FabricCommand::Join(arguments) => transaction::join(arguments),
        FabricCommand::Import(arguments) => import::import(arguments),
        FabricCommand::Leave { forget, asked } => transaction::leave(*forget, asked),
        FabricCommand::Evict(arguments) => transaction::evict(arguments),
        FabricCommand::Recover(arguments) => transaction::recover(arguments),
        FabricCommand::RotateKey { asked } => transaction::rotate_key(asked),
        FabricCommand::RotateCa { abandon, asked } => transaction::rotate_ca(*abandon, asked),
        FabricCommand::Members { asked } => ask(asked, fabric::Question::Members),
        FabricCommand::Flows { asked } => ask(asked, fabric::Question::Flows),
        FabricCommand::Status { asked } => {
            client::fabric::status(&asked.whom(), asked.json).map(ExitCode::from)
        }
        FabricCommand::Holds { asked } => ask(asked, fabric::Question::Holds),
        FabricCommand::Evpn { asked } => ask(asked, fabric::Question::Evpn),
        FabricCommand::Discover { span, device, json } => {
            client::discover::discover(device.clone(), span.duration(), *json)?;
            Ok(ExitCode::SUCCESS)
        }
        FabricCommand::Cert { out, days, replace, json, hosts } => {
            let wanted = CertificateRequest { folder: out, hosts, days: *days, replace: *replace };
            let folders = certificates::make(&wanted)?;
            if *json {
                let object = serde_json::json!({ "folders": folders }).to_string();
                println!("{}", Envelope::now(None).around(&object));
            } else {
                for folder in folders {
                    println!("{}: for that host alone", folder.display());
                }
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn arguments_contradict_each_other_nowhere() {
        super::Arguments::command().debug_assert();
    }
}
