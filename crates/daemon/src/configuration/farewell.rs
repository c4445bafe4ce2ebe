//! The last words of a host that leaves its fabric: nobody who has asked is left without an answer.
//!
//! The other members close their connections to a host as soon as they know that it is none of
//! them, so that the result of its own request may never come. It knows then all the same that it
//! has left.

use sluice_api::fabric_config::Operation;
use sluice_api::transaction::Answer;
use sluice_control::commit::{Refused, RequestId};

use super::requests::Asked;
use super::thread::Thread;
use super::words;

impl Thread {
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
