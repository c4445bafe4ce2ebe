//! Arguments of `sluice fabric import`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sluice_daemon::import::{self, Import, Way};

/// Files that become a fabric. Without `--create` and `--join` they are compared, and nothing
/// changes.
#[derive(Args, Debug)]
pub(crate) struct ImportArguments {
    /// The files of the hosts; with `--create` and `--join` that of this host first
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The name of the fabric, if no file has one
    #[arg(long, value_name = "NAME")]
    fabric: Option<String>,
    /// Write the shared part and the short files into this folder, and replace none there
    #[arg(long, value_name = "DIR", conflicts_with_all = ["create", "join"])]
    out: Option<PathBuf>,
    /// Make the fabric, with the host of the first file as its first member
    #[arg(long, conflicts_with = "join")]
    create: bool,
    /// Make the host of the file a member, by the member at this address
    #[arg(long, value_name = "ADDRESS", requires = "token")]
    join: Option<String>,
    /// The token that `--create` printed for this host; `-`: a line of the standard input
    #[arg(long, requires = "join")]
    token: Option<String>,
}

pub(crate) fn import(arguments: &ImportArguments) -> anyhow::Result<ExitCode> {
    let import = Import { files: arguments.files.clone(), fabric: arguments.fabric.clone() };
    let way = match (&arguments.join, &arguments.token) {
        (Some(address), Some(token)) => {
            Some(Way::Join { address: address.clone(), token: crate::transaction::secret(token)? })
        }
        _ => arguments.create.then_some(Way::Create),
    };
    match way {
        Some(way) => import::convert(&import, &way)?,
        None => import::show(&import, arguments.out.as_deref())?,
    }
    Ok(ExitCode::SUCCESS)
}
