//! Words of refusals.

use alloc::vec::Vec;
use core::fmt;

use sluice_base::HostId;

use super::Refused;

struct Hosts<'a>(&'a [HostId]);

impl fmt::Display for Hosts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hosts: Vec<_> = self.0.iter().map(|host| host.0).collect();
        hosts.sort_unstable();
        for (n, host) in hosts.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}host {host}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vetoed(vetoes) => {
                f.write_str("refused by")?;
                for (n, veto) in vetoes.iter().enumerate() {
                    let comma = if n == 0 { "" } else { ";" };
                    write!(f, "{comma} host {}: {}", veto.host.0, veto.reason)?;
                }
                Ok(())
            }
            Self::NoQuorum { voters, missing } => write!(
                f,
                "no quorum of the {voters} voters: {} did not answer; bring them back, or run \
                 `sluice fabric recover` if they are lost for good",
                Hosts(missing)
            ),
            Self::Slow(hosts) => write!(
                f,
                "no vote in time from {}, which is connected but slow: look at its disk and its \
                 load, and try again",
                Hosts(hosts)
            ),
            Self::Away(hosts) => write!(
                f,
                "all members are required, and {} did not answer: bring them back, evict them, or \
                 commit by quorum",
                Hosts(hosts)
            ),
            Self::Conflict(id) => {
                write!(f, "transaction {id} is changing the same thing: try again")
            }
            Self::TooLate(why) => write!(f, "another change came first: {why}"),
            Self::Behind => f.write_str("this host is still catching up: try again in a moment"),
            Self::Disk(why) => write!(f, "cannot write to disk: {why}"),
            Self::InDoubt(id) => write!(
                f,
                "the fate of transaction {id} is not known yet: see the log once a quorum is back"
            ),
            Self::Unfit(why) => f.write_str(why),
            Self::Unconfirmed(revision) => write!(
                f,
                "the transaction at revision {revision} waits to be confirmed: confirm it or undo \
                 it first"
            ),
            Self::NothingToConfirm => f.write_str("no transaction waits to be confirmed"),
            Self::TooLarge(thing) => write!(f, "the {thing} is too large: split the change"),
            Self::Busy => f.write_str("too many requests are waiting: try again in a moment"),
            Self::NotMember => f.write_str("this host is no member of the fabric: join it first"),
            Self::Halted(why) => f.write_str(why),
            Self::Forgotten(revision) => {
                write!(f, "revision {revision} is no longer in the history")
            }
        }
    }
}

impl core::error::Error for Refused {}
