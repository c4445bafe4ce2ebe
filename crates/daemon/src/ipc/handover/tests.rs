use super::*;

fn memory(text: &str) -> OwnedFd {
    let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(text.as_bytes()).unwrap();
    file.into()
}

fn text(fd: OwnedFd) -> String {
    let mut file = File::from(fd);
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn unpack_returns_what_was_packed() {
    let known = KnownState {
        vnet: "blue".into(),
        mac: "02:00:00:00:00:01".into(),
        at: At::Peer("h2".into()),
    };
    let state = State { stopped_ns: 7, known: vec![known], ..State::default() };
    let port = |word: &str| {
        let mut handed = PortHandover { bytes: vec![1, 0, 1], ..PortHandover::default() };
        handed.files.insert("socket".into(), memory(word));
        handed.numbers.insert("sharers".into(), 2);
        ("under lay".to_owned(), handed)
    };
    let taps = vec![("my web".to_owned(), memory("tap"))];
    let packed = pack(state.clone(), taps, vec![port("first"), port("second")]).unwrap();
    let (found, mut taps, ports) = unpack(packed).unwrap();
    assert_eq!(found, state);
    let (name, tap) = taps.pop().unwrap();
    assert_eq!((name.as_str(), text(tap).as_str()), ("my web", "tap"));
    let mut words = Vec::new();
    for (name, mut handed) in ports {
        assert_eq!((name.as_str(), handed.bytes.as_slice()), ("under lay", &[1, 0, 1][..]));
        assert_eq!(handed.numbers["sharers"], 2);
        words.push(text(handed.files.remove("socket").unwrap()));
    }
    assert_eq!(words, ["first", "second"], "in the order of the workers");
}

#[test]
fn handover_state_missing_or_malformed_refused() {
    assert!(unpack(Vec::new()).is_err());
    assert!(unpack(vec![("state".to_owned(), memory("{\"ports\":7}"))]).is_err());
}

#[test]
fn handover_line_read_leaves_following_bytes_unread() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"{\"formats\":[1],\"version\":\"9\"}\n[]").unwrap();
    let ready: Ready = read(&theirs).unwrap().unwrap();
    assert_eq!(ready.formats, [1]);
    let mut rest = [0; 2];
    (&theirs).read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"[]");
    ours.write_all(b"{\"error\":\"no\"}\n").unwrap();
    assert_eq!(read::<Ready>(&theirs).unwrap_err().to_string(), "no");
    drop(ours);
    assert_eq!(read::<Ready>(&theirs).unwrap(), None);
}
