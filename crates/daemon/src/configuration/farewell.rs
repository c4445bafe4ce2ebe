//! The last words of a host that leaves its fabric, and those of the others to it: nobody who has
//! asked is left without an answer, and a host that is connected hears that it is taken out.
//!
//! ```text
//!   eviction applied ──> log goes on without the host ──> "you are no member" ──> in force:
//!                        (it still votes on that)          to the host            connection ends
//! ```
//!
//! The other members close their connections to a host when a configuration without it is in force.
//! Until the log itself goes on without the host, that waits: else it might not hear of its
//! eviction, and a log that counts on its vote would stand still. A host that does not answer is
//! not waited for longer than [`PARTING_MAX`]. So the result of its own request may still never
//! come. It knows then all the same that it has left.

use sluice_api::fabric_config::Operation;
use sluice_api::transaction::Answer;
use sluice_base::{HostId, Nanos};
use sluice_control::commit::{Refused, RequestId};

use super::requests::Asked;
use super::thread::Thread;
use super::words;

/// Longest wait for the log to go on without a host that was taken out.
const PARTING_MAX: Nanos = Nanos::from_millis(2_000);

impl Thread {
    /// Begins to put a changed configuration in force.
    pub(super) fn begin_to_part(&mut self, now: Nanos) {
        self.parting.get_or_insert(now.after(PARTING_MAX));
    }

    /// Puts a changed configuration in force once the log counts on no host that it has taken out.
    pub(super) fn part(&mut self, now: Nanos) {
        let Some(until) = self.parting else { return };
        let own = HostId(self.own.place.id);
        let is_here = |host: &HostId| *host == own || self.connected.contains(host);
        if now >= until || !self.commit.departing().iter().any(is_here) {
            self.parting = None;
            self.put_in_force();
        }
    }

    /// Returns the change that takes this host out.
    pub(super) fn departure(&self) -> Vec<Operation> {
        vec![Operation::RemoveMember { name: self.own.place.name.clone() }]
    }

    /// Keeps the request of this host to leave while its fate is in doubt: the other members are
    /// asked. Returns any other request.
    pub(super) fn wait_to_depart(
        &mut self,
        request: RequestId,
        asked: Asked,
        refused: Option<&Refused>,
    ) -> Option<Asked> {
        let departure = words::operations(&self.departure());
        let departs = matches!(&asked, Asked::Change { changes, .. } if *changes == departure);
        match refused {
            Some(Refused::InDoubt(_)) if departs => {
                self.asked.insert(request, asked);
                return None;
            }
            Some(_) if departs => self.standing.departs(false),
            _ => {}
        }
        Some(asked)
    }

    /// Answers everybody, and tells control, if this host has left.
    pub(super) fn bid_farewell(&mut self) {
        let Some(why) = self.farewell.take() else { return };
        let departure = words::operations(&self.departure());
        for asked in std::mem::take(&mut self.asked).into_values() {
            answer_last(asked, &departure, &why);
        }
        self.force.left(&why);
    }
}

/// Answers a request whose result does not come any more.
fn answer_last(asked: Asked, departure: &[String], why: &str) {
    match asked {
        Asked::Change { reply, changes, .. } if changes == departure => {
            _ = reply.send(Ok(Answer::Done { said: changes.join("\n") }));
        }
        asked => asked.refuse(format!(
            "this host is in no fabric any more: {why}; `sluice config log` at a member says what \
             became of the change"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn departure_is_done_and_others_are_refused() {
        let departure = ["h2 is no member any more".to_owned()];
        let mut answers = Vec::new();
        for changes in [departure.to_vec(), vec!["network blue is deleted".to_owned()]] {
            let (reply, answer) = sync_channel(1);
            let asked =
                Asked::Change { reply, changes, confirm_within_s: None, is_candidate: false };
            answer_last(asked, &departure, "the fabric has removed this host");
            answers.push(answer.recv().unwrap());
        }
        assert_eq!(answers[0], Ok(Answer::Done { said: departure[0].clone() }));
        let why = answers[1].as_ref().unwrap_err();
        let parts = ["the fabric has removed this host", "`sluice config log`"];
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    }
}
