//! Files that follow from the commands: completions of shells, and manual pages.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;

/// Prints the completion for a shell.
pub(crate) fn completions(mut command: Command, shell: Shell) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "sluice", &mut text);
    // The reader may be gone.
    _ = std::io::stdout().write_all(&text);
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for each command into a folder.
pub(crate) fn manual(command: Command, out: &Path) -> anyhow::Result<ExitCode> {
    let failed = || format!("cannot write manual pages into {}", out.display());
    std::fs::create_dir_all(out).with_context(failed)?;
    clap_mangen::generate_to(command, out).with_context(failed)?;
    Ok(ExitCode::SUCCESS)
}
