//! Arguments of `sluice api`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_api::access::{NewToken, Role};
use sluice_daemon::client::access as client;

use crate::Asked;

/// Tokens of the management API.
#[derive(Debug, Subcommand)]
pub(crate) enum ApiCommand {
    /// Make a token for somebody who asks over the network, and print it: it is shown this once
    Token(TokenArguments),
    /// The tokens, without their texts
    Tokens {
        #[command(flatten)]
        asked: Asked,
    },
    /// End a token
    Revoke {
        /// The name of the token
        name: String,
        #[command(flatten)]
        asked: Asked,
    },
}

#[derive(Args, Debug)]
pub(crate) struct TokenArguments {
    /// The name of its holder, for the log
    name: String,
    /// The rights of the holder: tenant (its own networks), viewer (see all), operator (also ports)
    /// or admin (everything)
    #[arg(long)]
    role: Role,
    /// A network of a tenant; may be given more than once
    #[arg(long = "vnet", value_name = "NAME")]
    vnets: Vec<String>,
    /// A namespace in which a tenant may have ports, or the beginning of their names (`shop-*`);
    /// may be given more than once. Without, a tenant adds no ports
    #[arg(long = "netns", value_name = "NAME")]
    netns: Vec<String>,
    /// The days for which it is valid; without, until it is revoked
    #[arg(long)]
    days: Option<u32>,
    #[command(flatten)]
    asked: Asked,
}

pub(crate) fn run(command: ApiCommand) -> anyhow::Result<ExitCode> {
    match command {
        ApiCommand::Token(TokenArguments { name, role, vnets, netns, days, asked }) => {
            let new = NewToken { name, role, vnets, netns, days };
            client::make(&asked.whom(), new, asked.json)?;
        }
        ApiCommand::Tokens { asked } => client::list(&asked.whom(), asked.json)?,
        ApiCommand::Revoke { name, asked } => client::revoke(&asked.whom(), &name, asked.json)?,
    }
    Ok(ExitCode::SUCCESS)
}
