use std::sync::Arc;

use sluice_api::placement::{HostOverride, PolicyVersion};
use sluice_base::HostId;

use super::super::Held;
use super::*;
use crate::fabric::tests::Folder;

fn member(name: &str) -> Member {
    Member { id: HostId(2), name: name.to_owned() }
}

fn controller(folder: &Folder) -> Controller {
    Controller { held: Arc::new(Held::open("h1", 1, folder)), fabric: None }
}

#[test]
fn who_may_answer_soon_is_asked_again() {
    use Failure::{Busy, NotConnected, Refused, TooBig, TooLate, TooOld, UnknownTopic};
    let is_final = |silence| unheard(&member("h2"), silence).is_final;
    for failure in [Busy, Refused, TooLate] {
        assert!(!is_final(Silence::Failure(failure)), "{failure:?}");
    }
    for failure in [NotConnected, TooBig, TooOld, UnknownTopic] {
        assert!(is_final(Silence::Failure(failure)), "{failure:?}");
    }
    assert!(is_final(Silence::Unread));
}

#[test]
fn who_cannot_be_asked_in_time_is_named() {
    let folder = Folder::new("rounds-late");
    let members: Vec<Member> = (0..100).map(|at| member(&format!("h{at}"))).collect();
    let (answer, is_done) = controller(&folder).show(Some(&members), Instant::now());
    let names: Vec<&str> = answer.hosts.iter().skip(1).map(|host| host.host.as_str()).collect();
    let expected: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, expected, "each in its place");
    for host in &answer.hosts[1..] {
        assert!(host.notes[0].contains("no time left") && !host.follows, "{host:?}");
    }
    assert!(!is_done);
}

#[test]
fn a_host_that_nobody_knows_is_named() {
    let folder = Folder::new("rounds-names");
    let controller = controller(&folder);
    let hosts = ["h1", "h2", "h02"].map(|name| (name.to_owned(), HostOverride::default()));
    let policy = Policy { hosts: hosts.into(), ..Policy::default() };
    controller.held.offer(PolicyVersion { version: 1, by: 2, at_ms: 0 }, policy).unwrap();
    let notes = |members: Option<&[Member]>| {
        let (answer, _) = controller.show(members, Instant::now());
        answer.hosts[0].notes.join("; ")
    };
    let text = notes(Some(&[member("h2")]));
    assert!(text.contains("`h02`") && !text.contains("`h1`") && !text.contains("`h2`"), "{text}");
    // Without a list of members there is nothing to compare with.
    let text = notes(None);
    assert!(text.contains("who its members are") && !text.contains("`h2`"), "{text}");
}
