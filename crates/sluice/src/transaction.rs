//! Arguments of commands that change a fabric's configuration.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_api::fabric;
use sluice_api::fabric_config::{Operation, VnetSettings};
use sluice_api::transaction::{Away, How, Place, Question};
use sluice_daemon::client::transaction as client;

use crate::{Asked, ask};

/// Networks.
#[derive(Debug, Subcommand)]
pub(crate) enum VnetCommand {
    /// The networks of this host
    List {
        #[command(flatten)]
        asked: Asked,
    },
    /// Make a network, at all members
    Create {
        /// The name of the network
        name: String,
        /// Its VNI
        #[arg(long)]
        vni: u32,
        /// The MTU of its ports; default: what each host's underlay leaves
        #[arg(long)]
        mtu: Option<u16>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Delete a network, at all members; no port may be in it
    Delete {
        /// The name of the network
        name: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Change values of a network, at all members
    Set {
        /// The name of the network
        name: String,
        /// Each as KEY=VALUE, or KEY= for its default
        #[arg(required = true, value_name = "KEY=VALUE")]
        values: Vec<String>,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

/// The configuration that all members share.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// The configuration, in the form that `edit` and `load` take
    Show {
        /// An earlier revision
        #[arg(long, value_name = "REVISION")]
        at: Option<u64>,
        #[command(flatten)]
        asked: Asked,
    },
    /// Change settings at once, at all members
    Set {
        /// Each as KEY=VALUE, or KEY= for its default
        #[arg(required = true, value_name = "KEY=VALUE")]
        values: Vec<String>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Open the candidate in an editor ($VISUAL, $EDITOR); `commit` makes it the configuration
    Edit {
        #[command(flatten)]
        asked: Asked,
    },
    /// Make the candidate of a file; `-` is the standard input
    Load {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        asked: Asked,
    },
    /// The difference of the candidate from the configuration
    Diff {
        #[command(flatten)]
        asked: Asked,
    },
    /// Ask all members whether they would accept the candidate; nothing changes
    Check {
        #[command(flatten)]
        asked: Asked,
    },
    /// Make the candidate the configuration of all members
    Commit(ChangeArguments),
    /// Keep what was committed with `--confirmed`
    Confirm {
        #[command(flatten)]
        asked: Asked,
    },
    /// Forget the candidate
    Discard {
        #[command(flatten)]
        asked: Asked,
    },
    /// Undo every change of networks and settings after a revision, by a new transaction
    Rollback {
        /// The revision, as `config log` has it
        revision: u64,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// The transactions, the newest first
    Log {
        /// The number of them
        #[arg(long, default_value_t = 20)]
        last: u32,
        #[command(flatten)]
        asked: Asked,
    },
}

/// Way to make a change.
#[derive(Args, Debug)]
pub(crate) struct ChangeArguments {
    /// A remark for the log
    #[arg(long, default_value = "", hide_default_value = true)]
    comment: String,
    /// Ask all members for their votes, and change nothing
    #[arg(long)]
    check: bool,
    /// Undo it after this time unless `sluice config confirm` comes before, as 30s, 5m or 1h
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    confirmed: Option<u32>,
    /// Refuse it if any member is away
    #[arg(long, conflicts_with = "wait")]
    require_all: bool,
    /// Wait this long for members that are away, as 10s
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    wait: Option<u32>,
    #[command(flatten)]
    asked: Asked,
}

impl ChangeArguments {
    fn how(&self) -> How {
        let away = match (self.require_all, self.wait) {
            (true, _) => Away::RequireAll,
            (false, Some(seconds)) => Away::Wait(seconds.saturating_mul(1_000)),
            (false, None) => Away::Quorum,
        };
        let comment = self.comment.clone();
        How { comment, check: self.check, confirmed_s: self.confirmed, away }
    }

    /// Returns the host that is asked.
    pub(crate) const fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Returns true if nothing special was asked for.
    pub(crate) fn is_plain(&self) -> bool {
        self.how() == How::default()
    }

    pub(crate) fn run(&self, change: Vec<Operation>) -> anyhow::Result<ExitCode> {
        client::change(&self.asked.whom(), change, self.how(), self.asked.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Place of a host in a fabric.
#[derive(Args, Debug)]
pub(crate) struct PlaceArguments {
    /// The device of the underlay; default: the file's, or that of the route to the member
    #[arg(long, value_name = "DEV")]
    underlay: Option<String>,
    /// The address of the VTEP; default: the first one of that device
    #[arg(long, value_name = "IP")]
    vtep: Option<Ipv4Addr>,
    /// The rate of the underlay in Mbit/s; default: what the device says, if it says something
    #[arg(long, value_name = "MBPS", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    #[command(flatten)]
    asked: Asked,
}

impl PlaceArguments {
    fn place(&self) -> Place {
        Place { underlay: self.underlay.clone(), vtep: self.vtep, rate_mbps: self.rate }
    }
}

/// A host that joins.
#[derive(Args, Debug)]
pub(crate) struct JoinArguments {
    /// The address of a member
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// The token that `sluice fabric token` printed on a member; `-`: a line of the standard input
    #[arg(long)]
    token: String,
    #[command(flatten)]
    place: PlaceArguments,
}

/// A token for a host.
#[derive(Args, Debug)]
pub(crate) struct TokenArguments {
    /// The time for which it is valid, as 30m or 1h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds)]
    valid: u32,
    #[command(flatten)]
    asked: Asked,
}

/// A member to be taken out.
#[derive(Args, Debug)]
pub(crate) struct EvictArguments {
    /// The name of the member
    member: String,
    #[command(flatten)]
    asked: Asked,
}

/// Members that are lost for good.
#[derive(Args, Debug)]
pub(crate) struct RecoverArguments {
    /// The names of the members, separated by commas
    #[arg(long, required = true, value_name = "HOST", value_delimiter = ',')]
    without: Vec<String>,
    /// Do it: what only the lost members know is given up
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    asked: Asked,
}

/// Asks one question and prints the answer.
fn run(asked: &Asked, question: Question) -> anyhow::Result<ExitCode> {
    client::ask(&asked.whom(), question, asked.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn create(fabric: &str, place: &PlaceArguments) -> anyhow::Result<ExitCode> {
    let question = Question::Create { fabric: fabric.to_owned(), place: place.place() };
    run(&place.asked, question)
}

/// Returns a token, or the line of the standard input in place of `-`.
pub(crate) fn secret(token: &str) -> anyhow::Result<String> {
    let mut token = token.to_owned();
    if token == "-" {
        token.clear();
        std::io::stdin().read_line(&mut token)?;
    }
    Ok(token.trim().to_owned())
}

pub(crate) fn join(arguments: &JoinArguments) -> anyhow::Result<ExitCode> {
    let question = Question::Join {
        address: arguments.address.clone(),
        token: secret(&arguments.token)?,
        place: arguments.place.place(),
    };
    run(&arguments.place.asked, question)
}

pub(crate) fn token(arguments: &TokenArguments) -> anyhow::Result<ExitCode> {
    run(&arguments.asked, Question::Token { valid_s: arguments.valid })
}

pub(crate) fn rotate_key(asked: &Asked) -> anyhow::Result<ExitCode> {
    run(asked, Question::RotateKey)
}

pub(crate) fn rotate_ca(abandon: bool, asked: &Asked) -> anyhow::Result<ExitCode> {
    match abandon {
        true => client::abandon_ca(&asked.whom(), asked.json)?,
        false => client::rotate_ca(&asked.whom(), asked.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn leave(forget: bool, asked: &Asked) -> anyhow::Result<ExitCode> {
    run(asked, Question::Leave { forget })
}

pub(crate) fn evict(arguments: &EvictArguments) -> anyhow::Result<ExitCode> {
    run(&arguments.asked, Question::Evict { host: arguments.member.clone() })
}

pub(crate) fn recover(arguments: &RecoverArguments) -> anyhow::Result<ExitCode> {
    let hosts = arguments.without.join(", ");
    anyhow::ensure!(
        arguments.yes,
        "this gives up every change that only {hosts} know, and if they are alive somewhere, \
         their later changes too; make sure that they are gone, ask the member with the highest \
         revision (`sluice fabric status`), and add `--yes`"
    );
    run(&arguments.asked, Question::Recover { without: arguments.without.clone() })
}

pub(crate) fn vnet(command: VnetCommand) -> anyhow::Result<ExitCode> {
    match command {
        VnetCommand::List { asked } => ask(&asked, fabric::Question::Vnets),
        VnetCommand::Create { name, vni, mtu, change } => {
            let vnet = VnetSettings { mtu, ..VnetSettings::new(vni) };
            change.run(vec![Operation::CreateVnet { name, vnet }])
        }
        VnetCommand::Delete { name, change } => change.run(vec![Operation::DeleteVnet { name }]),
        VnetCommand::Set { name, values, change } => {
            let set = |(key, value)| Operation::SetVnet { name: name.clone(), key, value };
            change.run(pairs(&values)?.into_iter().map(set).collect())
        }
    }
}

pub(crate) fn config(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Show { at, asked } => client::show(&asked.whom(), at, asked.json)?,
        ConfigCommand::Set { values, change } => {
            let set = |(key, value)| Operation::Set { key, value };
            return change.run(pairs(&values)?.into_iter().map(set).collect());
        }
        ConfigCommand::Edit { asked } => client::edit(&asked.whom(), asked.json)?,
        ConfigCommand::Load { file, asked } => client::load(&asked.whom(), &file, asked.json)?,
        ConfigCommand::Diff { asked } => client::difference(&asked.whom(), asked.json)?,
        ConfigCommand::Check { asked } => {
            let how = How { check: true, ..How::default() };
            return run(&asked, Question::Commit { how });
        }
        ConfigCommand::Commit(change) => {
            return run(&change.asked, Question::Commit { how: change.how() });
        }
        ConfigCommand::Confirm { asked } => return run(&asked, Question::Confirm),
        ConfigCommand::Discard { asked } => return run(&asked, Question::Discard),
        ConfigCommand::Rollback { revision, change } => {
            let question = Question::Rollback { to: revision, how: change.how() };
            return run(&change.asked, question);
        }
        ConfigCommand::Log { last, asked } => return run(&asked, Question::Log { last }),
    }
    Ok(ExitCode::SUCCESS)
}

/// Splits arguments of the form KEY=VALUE. A value is a number, `true`, `false`, a list in
/// brackets, or a text.
fn pairs(values: &[String]) -> anyhow::Result<Vec<(String, Option<serde_json::Value>)>> {
    let pair = |text: &String| {
        let Some((key, value)) = text.split_once('=') else {
            anyhow::bail!("`{text}` is not KEY=VALUE");
        };
        let value = match value {
            "" => None,
            value => Some(serde_json::from_str(value).unwrap_or_else(|_| value.into())),
        };
        Ok((key.to_owned(), value))
    };
    values.iter().map(pair).collect()
}

/// Reads a time with its unit, in seconds.
fn seconds(text: &str) -> Result<u32, String> {
    let (number, factor) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => return Err("say a time with its unit, as 30s, 5m or 1h".to_owned()),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(factor));
    seconds.filter(|seconds| *seconds > 0).ok_or_else(|| format!("`{text}` is no time"))
}
