//! Tests of hosts that join.

use sluice_api::fabric_config::VnetSettings;

use super::*;
use crate::enroll::{Authority, JoinKey, RefusedKind, SigningRequest, Token};

const NOW_MS: u64 = 1_000_000;

struct Case {
    config: FabricConfig,
    token: Token,
    key: JoinKey,
}

impl Case {
    fn new() -> Self {
        let authority = Authority::create(1_000).unwrap();
        let (token, record) = Token::new(authority.fingerprint(), NOW_MS, 60_000).unwrap();
        let (id, entry) = entry(&record);
        let mut config = FabricConfig::new("prod").unwrap();
        let member =
            Member { id: 1, seat: 1, vtep: [10, 0, 0, 1].into(), address: None, role: Role::Auto };
        let vnet = VnetSettings::new(100);
        let change = [
            Operation::AddMember { name: "h1".to_owned(), member },
            Operation::CreateVnet { name: "blue".to_owned(), vnet },
            Operation::AddToken { id, token: entry },
        ];
        config.apply(&change).unwrap();
        Self { config, token, key: JoinKey::generate().unwrap() }
    }

    fn joiner(&self, name: &str, last: u8) -> Joiner {
        let address = std::net::Ipv4Addr::new(10, 0, 0, last);
        Joiner {
            program: "0.1.0".to_owned(),
            name: name.to_owned(),
            vtep: address.into(),
            address: (address, 7474).into(),
            token: self.token.secret().clone(),
            request: SigningRequest::parse(&self.key.request(name).unwrap()).unwrap(),
            has_pauses: true,
        }
    }

    fn refused(&self, joiner: &Joiner, now_ms: u64) -> RefusedKind {
        judge(&self.config, joiner, now_ms).unwrap_err().kind
    }
}

#[test]
fn first_use_makes_member_and_spends_token() {
    let mut case = Case::new();
    let joiner = case.joiner("h2", 2);
    let Judged::First(change) = judge(&case.config, &joiner, NOW_MS).unwrap() else { panic!() };
    case.config.apply(&change).unwrap();
    let answer = admitted(&case.config, "h2");
    assert_eq!((answer.id, answer.members.len()), (2, 2));
    assert_eq!(case.config.members["h2"].seat, seat(joiner.request.key()).get());
    // The answer was lost: the same host asks again.
    assert_eq!(judge(&case.config, &joiner, NOW_MS).unwrap(), Judged::Again(answer));
    // Another host, or another key, with the same token.
    assert_eq!(case.refused(&case.joiner("h3", 3), NOW_MS), RefusedKind::TokenUsed);
    case.key = JoinKey::generate().unwrap();
    assert_eq!(case.refused(&case.joiner("h2", 2), NOW_MS), RefusedKind::TokenUsed);
    // The same transaction a second time, from a host that raced.
    assert!(case.config.apply(&change[1..]).is_err());
}

#[test]
fn host_is_refused_by_its_fault() {
    let case = Case::new();
    assert_eq!(case.refused(&case.joiner("h1", 2), NOW_MS), RefusedKind::NameTaken);
    assert_eq!(case.refused(&case.joiner("h2", 1), NOW_MS), RefusedKind::VtepTaken);
    let late = NOW_MS + 60_000;
    assert_eq!(case.refused(&case.joiner("h2", 2), late), RefusedKind::TokenExpired);
    let mut wrong = case.joiner("h2", 2);
    wrong.token = Case::new().token.secret().clone();
    assert_eq!(case.refused(&wrong, NOW_MS), RefusedKind::TokenWrong);
}

#[test]
fn underlay_without_pauses_refused_by_pausing_policy() {
    let mut case = Case::new();
    let joiner = Joiner { has_pauses: false, ..case.joiner("h2", 2) };
    let refused = judge(&case.config, &joiner, NOW_MS).unwrap_err();
    assert_eq!(refused.kind, RefusedKind::Underlay);
    let said = refused.to_string();
    for part in ["policy is ZZ", "no pause frames", "kind = \"l2\"", "config set policy=ZL"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let value = Some("ZL".into());
    case.config.apply(&[Operation::Set { key: "policy".to_owned(), value }]).unwrap();
    assert!(matches!(judge(&case.config, &joiner, NOW_MS), Ok(Judged::First(_))));
}
