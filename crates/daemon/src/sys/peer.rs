//! The process at the other end of a socket.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Returns true if the peer is root, or the user as whom this process runs.
pub(crate) fn is_owner(stream: impl AsFd) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

/// Returns true if the peer has closed the connection, as one that was killed. A peer that only
/// writes no more still reads.
pub(crate) fn is_gone(stream: impl AsFd) -> bool {
    // The kernel reports a hang-up unasked.
    let mut fds = [PollFd::new(&stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn peer_is_gone_when_it_has_closed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(!is_gone(&ours));
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(!is_gone(&ours), "it may still read");
        drop(theirs);
        assert!(is_gone(&ours));
    }
}
