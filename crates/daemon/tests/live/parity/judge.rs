//! Differences of a case from the tables.

use std::collections::BTreeMap;

use super::table::Known;

/// Observations that differ, with the values on the bridge and on Sluice.
pub(crate) type Differing = BTreeMap<String, (String, String)>;

/// Returns a sentence for each difference that no table has, and for each row without a difference.
pub(crate) fn surprises(name: &str, differing: &Differing, known: &Known) -> Vec<String> {
    let row = |of: &str| known.get(&(name.to_owned(), of.to_owned()));
    let new = differing.iter().filter(|(of, _)| row(of).is_none());
    let new = new.map(|(of, (bridge, own))| {
        format!("{name}: {of}: {bridge} on a bridge, {own} on Sluice; no table has it")
    });
    let stale = known
        .iter()
        .filter(|((case, of), row)| case == name && !row.at_times && !differing.contains_key(of));
    let stale = stale.map(|((_, of), _)| {
        format!("{name}: {of}: no longer differs; delete its row in docs/bridge-parity.md")
    });
    new.chain(stale).collect()
}

#[test]
fn new_differences_and_stale_rows_surprise() {
    let known = super::table::rows(
        "| `arp/x` | answers | 2 | 1 | why |\n| `arp/x` | heals | 0 | never, at times | why |\n\
         | `arp/y` | answers | 2 | 1 | why |",
    );
    let differing = |of: &[&str]| -> Differing {
        of.iter().map(|of| ((*of).to_owned(), ("2".to_owned(), "1".to_owned()))).collect()
    };
    let found = |of: &[&str]| surprises("arp/x", &differing(of), &known);
    assert_eq!(found(&["answers"]), [""; 0]);
    assert_eq!(found(&["answers", "heals"]), [""; 0]);
    assert_eq!(
        found(&["answers", "reached"]),
        ["arp/x: reached: 2 on a bridge, 1 on Sluice; no table has it"]
    );
    assert_eq!(
        found(&["heals"]),
        ["arp/x: answers: no longer differs; delete its row in docs/bridge-parity.md"]
    );
    assert_eq!(surprises("arp/z", &differing(&["answers"]), &known).len(), 1);
}
