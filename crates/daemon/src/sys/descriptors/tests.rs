use std::io::{Read as _, Write as _};

use super::*;

/// Makes pipes that each contain their name.
fn pipes(count: usize) -> Vec<Named> {
    let pipe = |at: usize| {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(format!("p{at}").as_bytes()).unwrap();
        (format!("p{at}"), OwnedFd::from(reader))
    };
    (0..count).map(pipe).collect()
}

#[test]
fn descriptors_received_by_name_for_any_count() {
    for count in [0, 1, FILES_MAX, FILES_MAX + 1, 3 * FILES_MAX + 7] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sent = pipes(count);
        let sender = std::thread::spawn(move || send(&ours, &sent));
        let got = receive(&theirs).unwrap();
        sender.join().unwrap().unwrap();
        assert_eq!(got.len(), count);
        for (name, file) in got {
            let mut text = String::new();
            std::fs::File::from(file).read_to_string(&mut text).unwrap();
            assert_eq!(text, name);
        }
    }
}

#[test]
fn descriptor_stream_truncated_or_without_descriptors_refused() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(ours);
    assert_eq!(receive(&theirs).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"[\"web\"]\n[]\n").unwrap();
    assert_eq!(receive(&theirs).unwrap_err().kind(), ErrorKind::InvalidData);
}
