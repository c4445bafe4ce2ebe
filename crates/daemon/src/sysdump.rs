//! `sluice sysdump`: one archive for a bug report. It asks a host everything that is known to
//! nobody else, and looks at the machine beside it.
//!
//! ```text
//!   plan ── items ──▶ collect: four threads, each item has a time limit ──▶ secrets ──▶ archive
//!     host (pids, namespaces)      ask, run, read                          left out    0600, whole
//! ```
//!
//! A thing that cannot be had stands in `errors.txt`, and stops nothing: the host may hang. A
//! control process that is silent is asked once more whether it is there; then data is asked
//! directly what it knows. Nothing is changed, and nothing is kept in the host.
//!
//! Limits: an item has [`plan::LIMIT`] and [`collect::SIZE_MAX`] bytes; longer output is cut and
//! said so. All of it is in memory until it is written.

mod archive;
mod collect;
mod host;
mod plan;
mod secrets;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use sluice_api::client::HostSelector;
use sluice_api::envelope::{Envelope, HostIdentity, rfc3339};
use sluice_api::sysdump::{Missing, Summary};

use self::archive::Target;
use self::host::Found;

/// Makes the archive. Without `out` it is a file of this directory with the host's name and the
/// time; `-` is the standard output.
///
/// # Errors
/// If it cannot be written, or several hosts run here and none is named.
pub fn sysdump(whom: &HostSelector, out: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let is_piped = out == Some(Path::new("-"));
    if is_piped && json {
        bail!("the archive is the standard output; leave `--json` out, or name a file");
    }
    if is_piped && std::io::stdout().is_terminal() {
        bail!("the standard output is a terminal; name a file with `--out FILE`");
    }
    let found = Found::find(whom)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let folder = format!("sluice-{}-{}", found.name, compact(&rfc3339(now.as_millis())));
    let file = out.map_or_else(|| PathBuf::from(format!("{folder}.tar.gz")), Path::to_owned);
    let who = found.run_dir.is_some().then(|| found.name.clone());
    let (entries, errors) = contents(found);
    let target = if is_piped { Target::Out } else { Target::File(file.clone()) };
    let size = archive::write(&target, &folder, now.as_secs(), &entries)?;
    let file = file.display().to_string();
    let summary = Summary { file, size, entries: entries.len(), errors };
    report(&summary, is_piped, json.then_some(who))
}

/// Collects everything; the manifest is the first of the files.
fn contents(found: Found) -> (Vec<(String, Vec<u8>)>, Vec<Missing>) {
    let known = secrets::Known::of(&found);
    let items = plan::items(&found);
    let manifest = plan::manifest(&found, &items);
    let mut errors: Vec<Missing> = Vec::new();
    let mut missing = |entry: &str, why: String| {
        errors.push(Missing { entry: entry.to_owned(), why });
    };
    if let Some(why) = &found.silent {
        missing("host", why.clone());
    }
    let mut entries = vec![("README.txt".to_owned(), manifest.into_bytes())];
    let mut is_shown = progress(items.len());
    for (item, got) in collect::all(found, items, &mut is_shown) {
        if let Some(why) = got.error {
            missing(&item.path, why);
        }
        let Some(bytes) = got.bytes else { continue };
        match known.clean(item.form, bytes) {
            Ok(bytes) => entries.push((item.path, bytes)),
            Err(why) => missing(&item.path, why.to_owned()),
        }
    }
    let lines = errors.iter().map(|error| format!("{}: {}\n", error.entry, error.why));
    let text: String = lines.collect();
    let text = known.clean(secrets::Form::Text, text.into_bytes()).unwrap_or_default();
    entries.push(("errors.txt".to_owned(), text));
    (entries, errors)
}

/// Shows on a terminal how far it is.
fn progress(count: usize) -> impl FnMut(usize, &str) {
    let is_terminal = std::io::stderr().is_terminal();
    move |done, path| {
        if is_terminal {
            let end = if done == count { "\n" } else { "" };
            // Nobody may look.
            _ = write!(std::io::stderr(), "\r\x1b[K{done} of {count}: {path}{end}");
        }
    }
}

fn report(summary: &Summary, is_piped: bool, json: Option<Option<String>>) -> anyhow::Result<()> {
    if let Some(host) = json {
        let who =
            host.map(|host| HostIdentity { host, program: env!("CARGO_PKG_VERSION").to_owned() });
        let text = Envelope::now(who).around(&serde_json::to_string(summary)?);
        writeln!(std::io::stdout(), "{text}")?;
        return Ok(());
    }
    let text = words(summary);
    // The reader may be gone; the archive is written.
    _ = match is_piped {
        true => std::io::stderr().write_all(text.as_bytes()),
        false => std::io::stdout().write_all(text.as_bytes()),
    };
    Ok(())
}

fn words(summary: &Summary) -> String {
    let Summary { file, size, entries, errors } = summary;
    let mut text = format!("{file}: {entries} files, {} kB\n", size.div_ceil(1_000));
    if !errors.is_empty() {
        text += &format!("{} things could not be had; errors.txt in it names them\n", errors.len());
    }
    text + "keys, tokens and other secrets are left out; names, addresses and logs are in it\n"
}

/// Returns a time as it may stand in the name of a file: `20260301T120000Z`.
fn compact(time: &str) -> String {
    let seconds = time.split('.').next().unwrap_or(time);
    seconds.chars().filter(|letter| !"-:".contains(*letter)).collect::<String>() + "Z"
}

#[cfg(test)]
mod tests;
