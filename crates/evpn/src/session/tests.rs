use super::*;

const OWN: Identity = Identity {
    local_as: 65000,
    router_id: Ipv4Addr::new(10, 0, 0, 1),
    hold_s: 9,
    restart_s: 30,
    remote_as: 65001,
};
const THEIRS: Identity = Identity {
    local_as: 65001,
    router_id: Ipv4Addr::new(10, 0, 0, 2),
    hold_s: 30,
    restart_s: 0,
    remote_as: 65000,
};
const START: Nanos = Nanos::from_millis(1_000);

fn open(identity: Identity) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::put_open(&mut bytes, identity);
    bytes
}

fn keepalive() -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::put_keepalive(&mut bytes);
    bytes
}

fn update() -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::put_end_of_rib(&mut bytes);
    bytes
}

fn refresh() -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::put_refresh(&mut bytes, Refresh::Request);
    bytes
}

/// Makes a session in a state, its output taken.
fn session(state: State) -> Session {
    let mut session = Session::begin(START, OWN);
    let messages = [open(THEIRS), keepalive()];
    let count = match state {
        State::OpenSent => 0,
        State::OpenConfirm => 1,
        State::Established => 2,
    };
    for message in &messages[..count] {
        session.feed(message);
        assert!(session.next(START).is_some());
    }
    assert_eq!((session.state(), session.next(START).is_none()), (state, true));
    session.sent(START, session.output().len());
    session
}

/// Returns how a session ends that gets a message; `None`: it does not.
fn after(state: State, message: &[u8]) -> Option<Ending> {
    let mut session = session(state);
    session.feed(message);
    while session.next(START).is_some() {}
    session.ending().cloned()
}

#[test]
fn every_message_in_every_state() {
    let (sent, confirm, up) = (State::OpenSent, State::OpenConfirm, State::Established);
    let mut notification = Vec::new();
    wire::put_notification(&mut notification, &Notification::CEASE_SHUT_DOWN);
    let error = |subcode| Some(Ending::Sent(5, subcode));
    let table = [
        (open(THEIRS), [None, error(2), error(3)]),
        (keepalive(), [error(1), None, None]),
        (update(), [error(1), error(2), None]),
        (refresh(), [error(1), error(2), None]),
        (notification, [(); 3].map(|()| Some(Ending::Told(6, 2)))),
    ];
    for (message, expected) in table {
        let endings = [sent, confirm, up].map(|state| after(state, &message));
        assert_eq!(endings, expected, "{message:?}");
    }
}

#[test]
fn session_established_from_any_cuts() {
    let bytes = [open(THEIRS), keepalive(), update()].concat();
    let mut session = Session::begin(START, OWN);
    let mut said = Vec::new();
    for byte in bytes {
        session.feed(&[byte]);
        said.extend(session.next(START));
    }
    assert!(matches!(said[..], [Said::Open, Said::Established, Said::Update(_)]), "{said:?}");
    assert_eq!(session.peer().map(|peer| peer.router_id), Some(THEIRS.router_id));
}

#[test]
fn unfit_open_refused_with_its_code() {
    let wrong_as = Identity { local_as: 65002, ..THEIRS };
    let zero = Identity { router_id: Ipv4Addr::UNSPECIFIED, ..THEIRS };
    let short_hold = Identity { hold_s: 2, ..THEIRS };
    for (identity, subcode) in [(wrong_as, 2), (zero, 3), (short_hold, 6)] {
        let ending = after(State::OpenSent, &open(identity));
        assert_eq!(ending, Some(Ending::Sent(2, subcode)), "{identity:?}");
    }
    let mut old = open(THEIRS);
    old[19] = 3;
    assert_eq!(after(State::OpenSent, &old), Some(Ending::Sent(2, 1)));
    // Without capabilities: not even this family.
    let mut bare = open(THEIRS)[..29].to_vec();
    (bare[17], bare[28]) = (29, 0);
    assert_eq!(after(State::OpenSent, &bare), Some(Ending::Sent(2, 7)));
}

#[test]
fn bad_headers_end_with_their_code() {
    for (at, value, subcode) in [(0, 0, 1), (17, 18, 2), (16, 0x20, 2), (18, 9, 3)] {
        let mut message = keepalive();
        message[at] = value;
        let ending = after(State::Established, &message);
        assert_eq!(ending, Some(Ending::Sent(1, subcode)), "octet {at}");
    }
}

#[test]
fn hold_time_is_the_lower_one() {
    let mut session = session(State::Established);
    let just_before = START.after(Nanos::from_millis(8_999));
    session.tick(just_before);
    assert_eq!(session.ending(), None);
    session.feed(&keepalive());
    assert!(session.next(just_before).is_none());
    session.tick(START.after(Nanos::from_millis(9_000)));
    assert_eq!(session.ending(), None, "a KEEPALIVE began it anew");
    session.tick(just_before.after(Nanos::from_millis(9_000)));
    assert_eq!(session.ending(), Some(&Ending::Sent(4, 0)));
    assert_eq!(session.deadline(), None);
}

#[test]
fn keepalive_sent_each_third_of_hold_time() {
    let mut session = session(State::Established);
    for count in 1..=3 {
        let due = START.after(Nanos::from_millis(3_000 * count));
        assert_eq!(session.deadline(), Some(due));
        session.feed(&keepalive());
        assert!(session.next(due).is_none());
        session.tick(due);
        assert_eq!(session.output(), keepalive());
        session.sent(due, session.output().len());
    }
}

#[test]
fn zero_hold_time_ends_nothing() {
    let mut session = Session::begin(START, OWN);
    session.feed(&[open(Identity { hold_s: 0, ..THEIRS }), keepalive()].concat());
    while session.next(START).is_some() {}
    session.sent(START, session.output().len());
    assert_eq!((session.state(), session.deadline()), (State::Established, None));
}

#[test]
fn neighbor_that_takes_nothing_is_left() {
    let mut session = session(State::Established);
    session.put(START, |out| out.push(0));
    let mut now = START;
    while session.ending().is_none() {
        now = session.deadline().unwrap();
        session.feed(&keepalive());
        assert!(session.next(now).is_none());
        session.tick(now);
    }
    assert_eq!(session.ending(), Some(&Ending::Sent(8, 0)));
    assert_eq!(now, START.after(SEND_HOLD_MIN));
}

#[test]
fn ended_session_reads_nothing() {
    let mut session = session(State::OpenConfirm);
    session.end(&Notification::CEASE_COLLISION);
    session.feed(&keepalive());
    assert!(session.next(START).is_none());
    assert_eq!((session.state(), session.is_established()), (State::OpenConfirm, false));
}
