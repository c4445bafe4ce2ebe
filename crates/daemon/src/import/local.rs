//! The short file of a member, made of the one that said everything.

use sluice_api::config::{Foreign, KEYS_OF_FABRIC, TABLES_OF_FILE};
use toml::{Table, Value};

use super::Source;

/// Returns the text of the short file: what all members have alike is taken out, and the hosts that
/// are no members yet are added.
pub(super) fn text(source: &Source, foreign: &[Foreign]) -> String {
    let mut table: Table = toml::from_str(&source.text).unwrap_or_default();
    for key in TABLES_OF_FILE.into_iter().chain(["vport_policy"]) {
        table.remove(key);
    }
    if let Some(Value::Table(host)) = table.get_mut("host") {
        for key in KEYS_OF_FABRIC {
            host.remove(key);
        }
    }
    if let Some(Value::Table(underlay)) = table.get_mut("underlay") {
        underlay.remove("address");
    }
    if let Some(Value::Array(vports)) = table.get_mut("vport") {
        vports.retain(|vport| vport.get("port").is_some());
        if vports.is_empty() {
            table.remove("vport");
        }
    }
    let rows: Vec<Value> = foreign.iter().filter_map(|other| Value::try_from(other).ok()).collect();
    let head = "# Made by `sluice fabric import`: what may differ between members, and nothing \
                else.\n";
    let mut text = head.to_owned() + &table.to_string();
    if !rows.is_empty() {
        let rows = Table::from_iter([("foreign".to_owned(), Value::Array(rows))]);
        text += "\n# Reached as hosts that do not speak the protocol until they are members; then \
                 these may go.\n";
        text += &rows.to_string();
    }
    text
}
