//! A small document: members and names with values. Its changes are lines of text.
//!
//! ```text
//!   add NAME VALUE      set NAME VALUE      del NAME      mark NAME VALUE (from version 2 on)
//!   member HOST SEAT    evict HOST
//! ```

use std::collections::{BTreeMap, BTreeSet};

use sluice_base::HostId;
use sluice_control::commit::{Key, Member, Refusal, Replica, Role, Seat};

/// The document, as version `V` of the program understands it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doc<const V: u8> {
    pub(crate) names: BTreeMap<String, String>,
    pub(crate) members: BTreeMap<u16, u64>,
    /// Seats of members that were evicted: a disk that has left does not come back.
    pub(crate) gone: BTreeSet<u64>,
}

fn unfit(why: String) -> Refusal {
    Refusal::Unfit(why)
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, Refusal> {
    word.parse().map_err(|_| unfit(format!("{word} is no number")))
}

impl<const V: u8> Doc<V> {
    pub(crate) fn new(members: &[(u16, u64)]) -> Self {
        Self { members: members.iter().copied().collect(), ..Self::default() }
    }

    /// Applies one line; returns the line that undoes it.
    fn line(&mut self, line: &str) -> Result<String, Refusal> {
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            ["add", name, value] => {
                if self.names.contains_key(*name) {
                    return Err(unfit(format!("{name} is taken")));
                }
                self.names.insert((*name).into(), (*value).into());
                Ok(format!("del {name}"))
            }
            ["set", name, value] | ["mark", name, value] if V > 1 || words[0] == "set" => {
                let place = self.names.get_mut(*name).ok_or_else(|| unfit(format!("no {name}")))?;
                let old = std::mem::replace(place, (*value).into());
                Ok(format!("set {name} {old}"))
            }
            ["del", name] => {
                let old = self.names.remove(*name).ok_or_else(|| unfit(format!("no {name}")))?;
                Ok(format!("add {name} {old}"))
            }
            ["member", host, seat] => {
                let (host, seat) = (number::<u16>(host)?, number(seat)?);
                if Seat::new(seat).is_none_or(|valid| valid.get() != seat) {
                    return Err(unfit(format!("{seat} is no seat")));
                }
                if self.members.contains_key(&host) {
                    return Err(unfit(format!("host {host} is a member")));
                }
                if self.gone.contains(&seat) {
                    return Err(unfit(format!("the disk of host {host} has left")));
                }
                self.members.insert(host, seat);
                Ok(format!("evict {host}"))
            }
            ["evict", host] => {
                let host: u16 = number(host)?;
                if self.members.len() == 1 {
                    return Err(unfit("it is the last member".into()));
                }
                let seat = self.members.remove(&host).ok_or_else(|| unfit("no member".into()))?;
                self.gone.insert(seat);
                Ok(format!("member {host} {seat}"))
            }
            ["gone", seat] => {
                self.gone.insert(number(seat)?);
                Ok(String::new())
            }
            _ => Err(Refusal::Unknown(words[0].into())),
        }
    }
}

impl<const V: u8> Replica for Doc<V> {
    fn check(&self, change: &[u8]) -> Result<Vec<Key>, Refusal> {
        self.clone().apply(change)?;
        let text = String::from_utf8_lossy(change);
        let key = |line: &str| line.split(' ').nth(1).map(|name| name.as_bytes().to_vec());
        Ok(text.lines().filter_map(key).collect())
    }

    fn apply(&mut self, change: &[u8]) -> Result<Vec<u8>, Refusal> {
        let text = std::str::from_utf8(change).map_err(|why| unfit(why.to_string()))?;
        let (mut copy, mut inverse) = (self.clone(), Vec::new());
        for line in text.lines() {
            inverse.push(copy.line(line)?);
        }
        inverse.reverse();
        *self = copy;
        Ok(inverse.join("\n").into_bytes())
    }

    fn members(&self) -> Vec<Member> {
        let member = |(host, seat): (&u16, &u64)| Member {
            host: HostId(*host),
            seat: Seat::new(*seat).expect("not zero"),
            role: Role::Voter,
        };
        self.members.iter().map(member).collect()
    }

    fn snapshot(&self) -> Vec<u8> {
        let members = self.members.iter().map(|(host, seat)| format!("member {host} {seat}"));
        let names = self.names.iter().map(|(name, value)| format!("add {name} {value}"));
        let gone = self.gone.iter().map(|seat| format!("gone {seat}"));
        members.chain(names).chain(gone).collect::<Vec<_>>().join("\n").into_bytes()
    }

    fn restore(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut doc = Self::default();
        doc.apply(bytes)?;
        Ok(doc)
    }
}

/// Returns the change that makes all of the changes, one after the other.
pub(crate) fn compose(changes: &[Vec<u8>]) -> Vec<u8> {
    changes.join(&b'\n')
}
