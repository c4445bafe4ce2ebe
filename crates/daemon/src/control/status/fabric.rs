//! Rows about the fabric: members, certificates, bindings and the configuration.

use sluice_api::doctor::Row;
use sluice_api::fabric::{Certificates, Evpn, EvpnNeighborRow, MemberRow, RivalRow};
use sluice_api::trace::Grade;
use sluice_api::transaction::Status;

use super::{counted, few};
use crate::metrics::{FabricAnswers, Sample, Stage};

pub(super) fn rows(sample: &Sample) -> Vec<Row> {
    let mut rows = match &sample.fabric {
        // It is not known yet, which the row before has said.
        None if sample.stage != Stage::Works => Vec::new(),
        None => vec![Row::pass("fabric", "members", "this host is in no fabric")],
        Some(Err(why)) => vec![
            Row::pass("fabric", "members", why).but(Grade::Unknown, "See the log of the host."),
        ],
        Some(Ok(answers)) => of_answers(answers),
    };
    match &sample.configuration {
        None => {}
        Some(Err(why)) => {
            let row = Row::pass("fabric", "configuration", why);
            rows.push(row.but(Grade::Unknown, "Try again; else see the log of the host."));
        }
        Some(Ok(status)) => rows.extend(of_configuration(status)),
    }
    rows
}

fn of_answers(answers: &FabricAnswers) -> Vec<Row> {
    let mut rows = of_members(&answers.members);
    rows.extend(of_certificates(&answers.certificates));
    rows.extend(of_rivals(&answers.rivals));
    rows.extend(answers.evpn.as_ref().map(of_evpn));
    rows
}

fn of_members(members: &[MemberRow]) -> Vec<Row> {
    let speaks = |row: &&MemberRow| row.kind != "foreign";
    let is_well = |row: &MemberRow| row.health == "alive" && (row.connected || row.kind == "own");
    let all = members.iter().filter(speaks).count();
    let unwell: Vec<String> = members
        .iter()
        .filter(|row| speaks(row) && !is_well(row))
        .map(|row| match row.health.as_str() {
            "alive" => format!("{} is alive without a connection", row.host),
            "unknown" => format!("{} was never heard", row.host),
            "suspected" => format!("{} is suspected to be down", row.host),
            health => format!("{} is {health}", row.host),
        })
        .collect();
    let row = Row::pass("fabric", "members", format!("{} of {all} well", all - unwell.len()));
    let mut rows = vec![if unwell.is_empty() {
        row
    } else {
        let seen = format!("{}: {}", row.seen, few(&unwell, ", "));
        let remedy = "Look at those hosts and at the cables to them; `sluice fabric evict NAME` \
                      takes out one that is gone for good.";
        Row { seen, ..row }.but(Grade::Warn, remedy)
    }];
    if let Some(why) = members.iter().find_map(|row| row.evicted.as_ref()) {
        let remedy = "Until it joins again it reaches nobody through the fabric.";
        rows.push(Row::pass("fabric", "membership", why).but(Grade::Stop, remedy));
    }
    let differs: Vec<String> = members
        .iter()
        .flat_map(|row| row.differs.iter().map(|what| format!("{}: {what}", row.host)))
        .collect();
    if !differs.is_empty() {
        let remedy = "Make both say the same; frames between them may be lost until then.";
        let row = Row::pass("fabric", "settings", few(&differs, "; "));
        rows.push(row.but(Grade::Warn, remedy));
    }
    rows
}

fn of_certificates(certificates: &Certificates) -> Vec<Row> {
    let mut rows: Vec<Row> = certificates
        .rows
        .iter()
        .filter_map(|row| {
            let remedy = row.remedy.as_ref()?;
            let warned = Row::pass("fabric", "certificates", row.to_string());
            Some(warned.but(Grade::Warn, remedy))
        })
        .collect();
    if let Some(why) = &certificates.refused {
        let row = Row::pass("fabric", "certificates", format!("new files are refused: {why}"));
        rows.push(row.but(Grade::Warn, "The old ones stay; put right ones in their place."));
    }
    if rows.is_empty()
        && let Some(days) = certificates.rows.iter().map(|row| row.days_left).min()
    {
        rows.push(Row::pass("fabric", "certificates", format!("valid for {days} days")));
    }
    rows
}

fn of_rivals(rivals: &[RivalRow]) -> Option<Row> {
    let names: Vec<String> = rivals
        .iter()
        .map(|row| format!("{} of {} at {} and {}", row.what, row.vnet, row.first, row.second))
        .collect();
    if names.is_empty() {
        return None;
    }
    let remedy = "Take one of the bindings away; until then the first one is followed.";
    Some(Row::pass("fabric", "bound twice", few(&names, "; ")).but(Grade::Warn, remedy))
}

fn of_evpn(evpn: &Evpn) -> Row {
    let row = |seen: String| Row::pass("fabric", "EVPN", seen);
    if let Some(why) = &evpn.failure {
        return row(why.clone()).but(Grade::Warn, "It is tried again every few seconds.");
    }
    let is_up = |row: &&EvpnNeighborRow| row.state == "established";
    let (up, down): (Vec<_>, Vec<_>) = evpn.neighbors.iter().partition(is_up);
    let routes: u64 = up.iter().map(|row| row.routes).sum();
    let seen = format!("{} of {} neighbors up, {routes} routes", up.len(), evpn.neighbors.len());
    if down.is_empty() {
        return row(seen);
    }
    let names: Vec<String> = down
        .iter()
        .map(|row| {
            let why = row.last_ending.as_deref().unwrap_or("no connection yet");
            format!("{}: {why}", row.address)
        })
        .collect();
    let remedy = "Look at the neighbor, and at its configuration of this host; `sluice fabric \
                  evpn` has more.";
    row(format!("{seen}; {}", few(&names, "; "))).but(Grade::Warn, remedy)
}

/// Remedy if no change can be committed.
const UNWRITABLE: &str = "What is configured stays in force. Give its disk room, or bring the \
                          missing voters back; `sluice fabric recover` goes on without those that \
                          are lost for good.";

fn of_configuration(status: &Status) -> Vec<Row> {
    let row = |seen: String| Row::pass("fabric", "configuration", seen);
    let mut rows = vec![match (&status.leader, status.writable) {
        (Some(leader), true) => {
            let members = counted(status.members.len() as u64, "member");
            row(format!("revision {}, {members}, {leader} leads", status.revision))
        }
        _ => {
            row(format!("no change can be committed: {}", status.why)).but(Grade::Warn, UNWRITABLE)
        }
    }];
    let behind: Vec<String> = status
        .members
        .iter()
        .filter(|member| !member.connected || member.lag != Some(0))
        .map(|member| match (member.connected, member.lag) {
            (false, _) => format!("{} is away", member.name),
            (true, Some(lag)) => format!("{} lacks {}", member.name, counted(lag, "change")),
            (true, None) => format!("{} has not said what it has", member.name),
        })
        .collect();
    if !behind.is_empty() {
        let remedy =
            "It gets what it lacks when it is there again; `sluice fabric status` shows how far.";
        rows.push(row(few(&behind, ", ")).but(Grade::Warn, remedy));
    }
    if let Some(why) = &status.not_in_force {
        let seen = format!("not in force at this host: {why}");
        rows.push(row(seen).but(Grade::Warn, "It is tried again until it is."));
    }
    if let Some(revision) = status.unconfirmed {
        let seen = format!("revision {revision} waits for its confirmation");
        let remedy = "`sluice config confirm`, or it is taken back.";
        rows.push(row(seen).but(Grade::Warn, remedy));
    }
    if !status.at_restart.is_empty() {
        let seen = format!("not in force yet: {}", few(&status.at_restart, "; "));
        rows.push(row(seen).but(Grade::Warn, "`sluice upgrade` on this host, without a loss."));
    }
    if !status.aside.is_empty() {
        let seen = format!("kept aside: {}", few(&status.aside, "; "));
        let remedy = "Another history holds; say again what is still wanted of these.";
        rows.push(row(seen).but(Grade::Warn, remedy));
    }
    rows
}
