//! The state of the configuration at this host.

use sluice_api::transaction::{Answer, Progress, Status};
use sluice_base::HostId;
use sluice_control::commit::Epoch;

use super::thread::Thread;
use super::words;

impl Thread {
    /// Returns the state of the configuration.
    pub(super) fn status(&self) -> Answer {
        let (why, members) = match self.commit.replica() {
            Some(_) => (self.why_not_writable(), self.progress()),
            None => (self.waits_for(), self.before_snapshot()),
        };
        let why = self.eviction_in_words().unwrap_or(why);
        let (shared, status) = (self.shared(), self.commit.status());
        Answer::Status(Box::new(Status {
            fabric: shared.fabric.clone(),
            host: self.own.place.name.clone(),
            revision: self.commit.revision(),
            writable: why.is_empty(),
            leader: status.leader.map(|leader| words::name(shared, leader)),
            why,
            members,
            unconfirmed: status.unconfirmed,
            aside: self.aside(),
            at_restart: self.in_force.at_restart.clone(),
            not_in_force: self.in_force.failed.clone(),
            evicted: self.standing.evicted().cloned(),
        }))
    }

    /// Returns the reason why no change can be committed; empty if one can.
    fn why_not_writable(&self) -> String {
        let (shared, status) = (self.shared(), self.commit.status());
        let is_reachable = |host: HostId| {
            status.members.iter().any(|(member, is_up, _)| member.host == host && *is_up)
        };
        let missing: Vec<HostId> =
            status.voters.iter().copied().filter(|voter| !is_reachable(*voter)).collect();
        let voters = status.voters.len();
        match (&status.disk, &status.halted, status.leader) {
            (Some(why), _, _) => format!("the disk of this host cannot be written: {why}"),
            (_, Some(what), _) => format!("this host does not understand {what}; upgrade it"),
            _ if 2 * missing.len() >= voters => format!(
                "{} of {voters} voters can be reached; missing: {}",
                voters - missing.len(),
                words::names(shared, &missing)
            ),
            (_, _, None) => "the voters are choosing who leads".to_owned(),
            _ => String::new(),
        }
    }

    /// Returns the members and their progress.
    fn progress(&self) -> Vec<Progress> {
        let (shared, status) = (self.shared(), self.commit.status());
        let transactions = status.progress.map_or(0, |own| own.transactions);
        let members = status.members.iter().filter_map(|(member, is_connected, progress)| {
            let (name, entry) = shared.member_of(member.host.0)?;
            let is_voter = status.voters.contains(&member.host);
            Some(Progress {
                name: name.to_owned(),
                id: entry.id,
                vtep: entry.vtep,
                part: if is_voter { "voter" } else { "learner" }.to_owned(),
                connected: *is_connected,
                revision: progress.map(|progress| progress.revision),
                lag: progress.map(|of| transactions.saturating_sub(of.transactions)),
            })
        });
        members.collect()
    }

    /// Returns the members that the join named, before the first snapshot has come.
    fn before_snapshot(&self) -> Vec<Progress> {
        let members = self.shared().members.iter().map(|(name, entry)| {
            let is_own = *name == self.own.place.name;
            Progress {
                name: name.clone(),
                id: entry.id,
                vtep: entry.vtep,
                part: if is_own { "joining" } else { "unknown" }.to_owned(),
                connected: is_own || self.connected.contains(&HostId(entry.id)),
                revision: None,
                lag: None,
            }
        });
        members.collect()
    }

    /// Returns what a host without a snapshot waits for, in words.
    pub(super) fn waits_for(&self) -> String {
        let others = self.shared().members.iter();
        let others = others.filter(|(name, _)| **name != self.own.place.name);
        let (connected, missing): (Vec<_>, Vec<_>) =
            others.partition(|(_, member)| self.connected.contains(&HostId(member.id)));
        waits_for(
            &connected.into_iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            &missing
                .into_iter()
                .map(|(name, member)| format!("{name} ({})", member.listen()))
                .collect::<Vec<_>>(),
        )
    }

    /// Returns what was kept aside, in words.
    fn aside(&self) -> Vec<String> {
        let line = |(epoch, entries): &(Epoch, Vec<_>)| {
            format!("{} entries of epoch {}", entries.len(), epoch.number)
        };
        self.commit.aside().iter().map(line).collect()
    }
}

/// Returns what a host without a snapshot waits for. It is connected to some members, and not to
/// others, which are given with their addresses.
fn waits_for(connected: &[&str], missing: &[String]) -> String {
    match connected.is_empty() {
        true => format!(
            "this host has joined, and waits for a connection to a member, which sends it the \
             configuration: {}; TCP and UDP 7474 have to be open between them",
            missing.join(", ")
        ),
        false => format!(
            "this host has joined, and waits for the configuration from {}; it needs a majority of \
             the voters, who may be busy",
            connected.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests;
