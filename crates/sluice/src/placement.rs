//! Arguments of `sluice placement`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_api::placement::{Mode, Policy, Question};
use sluice_daemon::client;

use crate::Asked;
use crate::transaction::ChangeArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum PlacementCommand {
    /// The policy that holds, and its state on each host
    Show {
        #[command(flatten)]
        asked: Asked,
    },
    /// Set the policy of all hosts: that of a file, or of these options
    Set(SetArguments),
    /// Let each host's own configuration hold again
    Clear {
        #[command(flatten)]
        change: ChangeArguments,
    },
}

/// Options that replace a file.
const SET_FLAGS: [&str; 3] = ["mode", "exclude_cpus", "high"];

#[derive(Args, Debug)]
pub(crate) struct SetArguments {
    /// A file: mode, excluded_cpus, high, [hosts.NAME]
    #[arg(conflicts_with_all = SET_FLAGS, required_unless_present_any = SET_FLAGS)]
    file: Option<PathBuf>,
    /// The rule: rss, rss++, predetermined, on-the-fly or adaptive
    #[arg(long)]
    mode: Option<Mode>,
    /// CPUs that get no tunnel work, as 0-1,8
    #[arg(long, value_name = "LIST")]
    exclude_cpus: Option<String>,
    /// Flows of high priority, as vnet=blue or vni=5000,ip=10.0.0.0/24,proto=tcp,port=443; may be
    /// given more than once
    #[arg(long, value_name = "MATCH")]
    high: Vec<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) fn run(command: PlacementCommand) -> anyhow::Result<ExitCode> {
    match command {
        PlacementCommand::Show { asked } => {
            client::placement::ask(&asked.whom(), Question::Show, asked.json)?;
            Ok(ExitCode::SUCCESS)
        }
        PlacementCommand::Clear { change } => set(&change, Policy::default()),
        PlacementCommand::Set(SetArguments { file, mode, exclude_cpus, high, change }) => {
            let whom = change.asked().whom();
            let policy = match &file {
                Some(file) => client::placement::read(&whom, file)?,
                None => client::placement::policy(&whom, mode, exclude_cpus.as_deref(), &high)?,
            };
            set(&change, policy)
        }
    }
}

/// Sets a policy in the way of the host. Options of a change are for one whose fabric was made by
/// command.
fn set(change: &ChangeArguments, policy: Policy) -> anyhow::Result<ExitCode> {
    if !change.is_plain() {
        return change.run(vec![client::placement::operation(policy)?]);
    }
    let asked = change.asked();
    client::placement::ask(&asked.whom(), Question::Set(Box::new(policy)), asked.json)?;
    Ok(ExitCode::SUCCESS)
}
