//! The UDP sockets behind a pair, whose frames arrive later than they are sent.

use std::os::fd::AsFd as _;
use std::path::Path;

use super::pair::Place;
use crate::error::OpenError;
use crate::netns;
use crate::rcvbuf::{Arrivals, Receivers};

/// Opens those of the container at `place`, whose device has this index there. `adopted` is the
/// count of an earlier process.
pub(super) fn open(place: &Place, index: u32, adopted: Option<Arrivals>) -> Receivers {
    let work = || {
        let failed = OpenError::device(&index.to_string(), "count what arrives there");
        let arrivals = adopted.map_or_else(|| Arrivals::attach(index), Ok).map_err(failed)?;
        Ok((netns::open(Path::new(netns::OWN))?, arrivals))
    };
    match place.within(work) {
        Ok((namespace, arrivals)) => Receivers::behind(namespace.as_fd(), arrivals),
        Err(error) => Receivers::lacking(error.to_string()),
    }
}
