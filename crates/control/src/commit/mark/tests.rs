use sluice_base::HostId;

use super::*;

fn mark() -> Mark {
    let epoch = Epoch { number: 3, founder: HostId(2), base: 40 };
    Mark { seat: Seat::new(7).unwrap(), epoch, index: 57, term: 9 }
}

#[test]
fn encoding_read_back_same() {
    assert_eq!(Mark::parse(&mark().to_bytes()), Ok(mark()));
}

#[test]
fn damaged_bytes_no_mark() {
    let bytes = mark().to_bytes();
    for at in 0..bytes.len() {
        let mut torn = bytes.clone();
        torn[at] ^= 1;
        assert!(Mark::parse(&torn).is_err(), "byte {at}");
        assert!(Mark::parse(&bytes[..at]).is_err(), "{at} bytes");
    }
}
