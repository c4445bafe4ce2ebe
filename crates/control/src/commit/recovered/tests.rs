use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::commit::record::{Kind, Store};

fn entry(index: u64) -> Record {
    Record::Entry(LogEntry { index, term: 1, kind: Kind::Command, data: vec![] })
}

fn records() -> Vec<Record> {
    let epoch = Epoch { number: 1, founder: HostId(1), base: 0 };
    let id = TxnId { host: HostId(1), incarnation: 1, number: 1 };
    let conf = Conf { voters: vec![1], learners: vec![] };
    vec![
        Record::Identity { seat: Seat::new(5).unwrap(), epoch },
        Record::HardState { term: 1, vote: 1, commit: 4 },
        Record::Snapshot { index: 3, term: 1, conf, state: vec![] },
        entry(4),
        entry(5),
        Record::Reservation { id, keys: vec![b"blue".to_vec()], change: b"add blue".to_vec() },
        Record::Aside { epoch, entries: vec![] },
    ]
}

fn read(records: &[Record]) -> Result<Recovered, Unreadable> {
    let bytes: Vec<_> = records.iter().map(Record::to_bytes).collect();
    Recovered::from_records(bytes.iter().map(Vec::as_slice))
}

#[derive(Default)]
struct Keys(BTreeMap<Vec<u8>, Vec<u8>>);

impl Store for Keys {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(key.to_vec(), value.to_vec());
    }

    fn remove(&mut self, first: &[u8], end: &[u8]) {
        self.0.retain(|key, _| key.as_slice() < first || key.as_slice() >= end);
    }
}

#[test]
fn store_by_key_equals_records_in_order() {
    let id = TxnId { host: HostId(1), incarnation: 1, number: 1 };
    let mut all = records();
    all.extend([Record::Truncate { from: 5 }, Record::Compact { to: 3 }]);
    all.extend([entry(5), entry(6), Record::Released { id }, Record::Kept { state: vec![7] }]);
    for count in 0..=all.len() {
        let mut keys = Keys::default();
        all[..count].iter().for_each(|record| record.store(&mut keys));
        let by_key = Recovered::from_records(keys.0.values().map(Vec::as_slice));
        let in_order = read(&all[..count]);
        match (by_key, in_order) {
            (Ok(a), Ok(b)) => {
                assert_eq!(a.entries, b.entries, "{count}");
                assert_eq!((a.snapshot, a.reservations), (b.snapshot, b.reservations), "{count}");
                assert_eq!((a.hard, a.kept), (b.hard, b.kept), "{count}");
            }
            (a, b) => assert_eq!(a.is_err(), b.is_err(), "{count}"),
        }
    }
}

#[test]
fn missing_records_are_named() {
    let table = [
        (0, "the record of its identity is missing"),
        (1, "the record of the term is missing"),
        (2, "entries 1 to 3 are missing"),
        (3, "entries 4 to 4 are missing"),
    ];
    assert!(read(&records()).is_ok());
    for (without, words) in table {
        let mut left = records();
        left.remove(without);
        let why = read(&left).unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn damaged_record_is_named() {
    let mut bytes = entry(4).to_bytes();
    bytes[3] ^= 1;
    let why = Recovered::from_records([bytes.as_slice()]).unwrap_err().to_string();
    assert!(why.contains("record 0 is malformed: the checksum of a record differs"), "{why}");
}

#[test]
fn every_record_is_read_as_written() {
    for record in records() {
        let bytes = record.to_bytes();
        assert_eq!(Record::parse(&bytes), Ok(record));
        assert!((0..bytes.len()).all(|len| Record::parse(&bytes[..len]).is_err()));
    }
}

#[test]
fn mark_of_own_entry_commits_up_to_it() {
    let epoch = Epoch { number: 1, founder: HostId(1), base: 0 };
    let good = Mark { seat: Seat::new(5).unwrap(), epoch, index: 5, term: 1 };
    let committed = |mark: Option<Mark>| {
        let marked = read(&records()).unwrap().with_mark(mark);
        assert_eq!(marked.is_marked, marked.hard.2 > 4);
        marked.hard.2
    };
    assert_eq!(committed(Some(good)), 5);
    let others = [
        None,
        Some(Mark { seat: Seat::new(6).unwrap(), ..good }),
        Some(Mark { epoch: Epoch { number: 2, ..epoch }, ..good }),
        Some(Mark { index: 6, ..good }),
        Some(Mark { index: 4, ..good }),
        Some(Mark { term: 2, ..good }),
    ];
    for mark in others {
        assert_eq!(committed(mark), 4, "{mark:?}");
    }
}
