use super::*;

fn limits(count: u64) -> Limits {
    Limits { count, until: None, ended: Arc::default() }
}

fn record(head: Head, body: &[u8]) -> Vec<u8> {
    [&head.bytes(body.len())[..], body].concat()
}

/// Plays the data process: names a port, sends frames and, after the half close, counts.
fn serve(mut stream: &UnixStream, frames: u64) {
    let name = serde_json::to_vec(&PortName { name: "web".into(), vnet: "blue".into() }).unwrap();
    stream.write_all(&record(Head::of(Kind::Port, 7), &name)).unwrap();
    for _ in 0..frames {
        let head = Head { size: 60, ..Head::of(Kind::Frame, 7) };
        stream.write_all(&record(head, &[0; 60])).unwrap();
    }
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the client says nothing more");
    let counts = [frames.to_le_bytes(), 2_u64.to_le_bytes()].concat();
    stream.write_all(&record(Head::of(Kind::Counts, 7), &counts)).unwrap();
    let counts = [0_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat();
    stream.write_all(&record(Head::of(Kind::Counts, NO_PORT), &counts)).unwrap();
}

#[test]
fn capture_ends_after_count_with_counts() {
    let (own, other) = UnixStream::pair().unwrap();
    own.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    let server = std::thread::spawn(move || serve(&other, 10));
    let mut bytes = Vec::new();
    let mut capture = Capture::new(Writer::new(&mut bytes, 96));
    capture.run(&own, &limits(4)).unwrap();
    server.join().unwrap();
    let summary = capture.summary();
    assert_eq!((summary.captured, summary.missed), (4, 7), "2 at the port, 5 drops of any");
    assert_eq!(summary.ports[0], PortSummary { port: "web".into(), seen: 10, missed: 2 });
    assert!(words(&summary).starts_with("4 frames captured; 7 more found no room"));
}

#[test]
fn capture_cut_short_is_an_error() {
    let (own, mut other) = UnixStream::pair().unwrap();
    own.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    let name = serde_json::to_vec(&PortName { name: "web".into(), vnet: "blue".into() }).unwrap();
    other.write_all(&record(Head::of(Kind::Port, 7), &name)).unwrap();
    drop(other);
    let mut capture = Capture::new(Writer::new(Vec::new(), 96));
    let error = capture.run(&own, &limits(u64::MAX)).unwrap_err();
    assert!(error.to_string().starts_with("the data process ended"), "{error}");
}

#[test]
fn reader_that_leaves_ends_capture_quietly() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (own, _other) = UnixStream::pair().unwrap();
    Capture::new(Writer::new(Gone, 96)).run(&own, &limits(u64::MAX)).unwrap();
}
