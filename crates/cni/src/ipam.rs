//! Delegation to an IPAM plugin (section 4, "Plugin delegation"): the same environment and the same
//! configuration, another program.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use serde_json::Value;
use sluice_api::port::Attachment;

use crate::config::NetConfig;
use crate::error::{Code, Error};
use crate::invocation::{Command, Invocation};
use crate::result::Addressing;

/// The longest output that is read.
const OUTPUT_SIZE_MAX: u64 = 1 << 20;

/// The IPAM plugin of a network.
#[derive(Debug)]
pub(crate) struct Ipam<'a> {
    kind: &'a str,
    program: PathBuf,
    config: &'a [u8],
}

impl<'a> Ipam<'a> {
    /// Finds the plugin that a configuration delegates to; `None` if it delegates to none.
    pub(crate) fn of(
        invocation: &Invocation,
        config: &'a NetConfig,
    ) -> Result<Option<Self>, Error> {
        let Some(kind) = config.ipam.as_deref() else { return Ok(None) };
        let is_program = |path: &PathBuf| path.is_file();
        let program = invocation.path.iter().map(|dir| dir.join(kind)).find(is_program);
        let program = program.ok_or_else(|| {
            let dirs: Vec<_> =
                invocation.path.iter().map(|dir| dir.display().to_string()).collect();
            let problem = format!("no program `{kind}` is in CNI_PATH ({})", dirs.join(":"));
            Error::key("ipam", &problem, "install that IPAM plugin there")
        })?;
        Ok(Some(Self { kind, program, config: &config.bytes }))
    }

    /// Assigns addresses.
    pub(crate) fn add(&self) -> Result<Addressing, Error> {
        let output = self.run(Command::Add)?;
        let result = serde_json::from_slice(&output).map_err(|error| {
            let msg = format!("the result of `{}` is no JSON: {error}", self.kind);
            Error::new(Code::Undecodable, msg, "install an IPAM plugin that fits this CNI version")
        })?;
        Addressing::of_ipam(&result)
    }

    /// Executes a command that has no result.
    pub(crate) fn tell(&self, command: Command) -> Result<(), Error> {
        self.run(command).map(drop)
    }

    /// Gives back the addresses of an attachment that is not the execution's own.
    pub(crate) fn free(&self, attachment: &Attachment) -> Result<(), Error> {
        let Attachment { container, interface, .. } = attachment;
        let variables = [
            ("CNI_CONTAINERID", container.as_str()),
            ("CNI_IFNAME", interface.as_str()),
            ("CNI_NETNS", ""),
        ];
        self.run_with(Command::Del, &variables).map(drop)
    }

    fn run(&self, command: Command) -> Result<Vec<u8>, Error> {
        self.run_with(command, &[])
    }

    fn run_with(&self, command: Command, variables: &[(&str, &str)]) -> Result<Vec<u8>, Error> {
        let failed = |error: &io::Error| {
            let msg = format!("`{}` cannot be executed: {error}", self.program.display());
            Error::new(Code::Io, msg, "install that IPAM plugin anew")
        };
        let mut process = Process::new(&self.program);
        process.env("CNI_COMMAND", command.text()).envs(variables.iter().copied());
        let (output, succeeded) = execute(process, self.config).map_err(|error| failed(&error))?;
        if output.len() as u64 > OUTPUT_SIZE_MAX {
            let msg = format!("`{}` wrote more than {OUTPUT_SIZE_MAX} bytes", self.kind);
            return Err(Error::new(Code::Undecodable, msg, "a result is shorter; see its log"));
        }
        if succeeded { Ok(output) } else { Err(self.refusal(command, &output)) }
    }

    /// Returns the plugin's own error.
    fn refusal(&self, command: Command, output: &[u8]) -> Error {
        let said: Value = serde_json::from_slice(output).unwrap_or_default();
        let word = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
        let code = said.get("code").and_then(Value::as_u64).and_then(|code| code.try_into().ok());
        let msg = match word("msg") {
            "" => format!("`{}` failed at {command} without a word", self.kind),
            msg => format!("`{}`: {msg}", self.kind),
        };
        let details = match word("details") {
            "" => format!("the key `ipam` is for the plugin `{}`; see its page", self.kind),
            details => details.to_owned(),
        };
        Error::new(code.map_or(Code::Io, Code::Delegate), msg, details)
    }
}

/// Returns a program's output and its success.
fn execute(mut program: Process, input: &[u8]) -> io::Result<(Vec<u8>, bool)> {
    let mut process = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = process.stdin.take();
    let written = std::thread::scope(|scope| {
        // A program that writes before it has read everything must not block both.
        let writer =
            scope.spawn(move || stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(input)));
        let mut output = Vec::new();
        let read = process
            .stdout
            .take()
            .map_or(Ok(0), |pipe| pipe.take(OUTPUT_SIZE_MAX + 1).read_to_end(&mut output));
        // One that fails early has not read its input; its exit says so.
        _ = writer.join();
        read.map(|_| output)
    });
    let status = process.wait()?;
    Ok((written?, status.success()))
}

#[cfg(test)]
mod tests;
