//! Arguments of `sluice vlan`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_api::fabric_config::{Operation, Vlan};
use sluice_daemon::client;

use crate::Asked;
use crate::transaction::ChangeArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum VlanCommand {
    /// VLANs of all trunks, and the networks behind them
    List {
        #[command(flatten)]
        asked: Asked,
    },
    /// Make a VLAN of a trunk a network, at all hosts that have the trunk
    Map {
        #[command(flatten)]
        vlan: Numbered,
        /// The network
        #[arg(long, value_name = "NAME")]
        vnet: String,
        /// The untagged frames of the trunk are of this VLAN too, and its own leave untagged
        #[arg(long)]
        native: bool,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Leave a VLAN of a trunk alone again
    Unmap {
        #[command(flatten)]
        vlan: Numbered,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

/// A VLAN of a trunk.
#[derive(Args, Debug)]
pub(crate) struct Numbered {
    /// The name of the trunk, as the files of its hosts have it (`[[trunk]]`)
    trunk: String,
    /// The VLAN, 1 to 4094
    number: u16,
}

pub(crate) fn run(command: VlanCommand) -> anyhow::Result<ExitCode> {
    match command {
        VlanCommand::List { asked } => {
            client::transaction::vlans(&asked.whom(), asked.json)?;
            Ok(ExitCode::SUCCESS)
        }
        VlanCommand::Map { vlan: Numbered { trunk, number }, vnet, native, change } => {
            let vlan = Some(Vlan { vnet, native });
            change.run(vec![Operation::SetVlan { trunk, number, vlan }])
        }
        VlanCommand::Unmap { vlan: Numbered { trunk, number }, change } => {
            change.run(vec![Operation::SetVlan { trunk, number, vlan: None }])
        }
    }
}
