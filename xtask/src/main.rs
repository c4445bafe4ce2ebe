//! Checks and chores of the workspace, run as `cargo xtask COMMAND`.
//!
//! Each command is one module. Only `planted --record` changes a file of the work tree: it writes
//! the record of verdicts.

mod book;
mod planted;
mod results;
mod rust_source;
mod tidy;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks and chores of the workspace")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check crate edges, sizes, no_std, unsafe, banned words and links
    Tidy,
    /// Check the links of the built book
    Book {
        /// The folder of the book, as `scripts/docs.sh` builds it
        folder: PathBuf,
    },
    /// Check result files against the results format
    Results {
        /// The result.json files to check
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Check the checkers: apply planted faults to a scratch copy and require that they are caught.
    /// Without options: the faults that a change touches, and a draw of the rest
    Planted {
        /// Only the faults whose name contains this
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
        /// Every fault, and write the record
        #[arg(long, conflicts_with = "only")]
        all: bool,
        /// Every fault without a verdict about this content, and write the record
        #[arg(long, conflicts_with_all = ["only", "all"])]
        record: bool,
        /// The faults that a change touches, and write the record
        #[arg(long, conflicts_with_all = ["only", "all", "record"])]
        touched: bool,
        /// List the faults and run nothing
        #[arg(long)]
        list: bool,
        /// Take it that the tests pass without a fault: they have just been run on this content
        #[arg(long, conflicts_with_all = ["all", "record", "touched"])]
        tested: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Tidy => tidy::run(),
        Command::Book { folder } => book::run(&folder),
        Command::Results { files } => results::run(&files),
        Command::Planted { only, all, record, touched, list, tested } => {
            planted::run(&planted::Request { only, all, record, touched, list, tested })
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
