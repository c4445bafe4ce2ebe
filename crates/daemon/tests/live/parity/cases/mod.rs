//! The cases, in a file for each theme.

mod arp;
mod claims;
mod dhcp;
mod frames;
mod groups;
mod macvlan;
mod moves;
mod mtu;
mod nd;
mod traffic;
mod vrrp;

use super::{Case, When};

/// Returns all cases: first those that run beside others.
pub(crate) fn all() -> Vec<Case> {
    let themes = [
        dhcp::CASES,
        vrrp::CASES,
        claims::CASES,
        moves::CASES,
        nd::CASES,
        arp::CASES,
        macvlan::CASES,
        mtu::CASES,
        frames::CASES,
        groups::CASES,
        traffic::CASES,
    ];
    let (mut all, mut alone) = (Vec::new(), Vec::new());
    for case in themes.concat() {
        if case.when == When::Beside { all.push(case) } else { alone.push(case) }
    }
    all.append(&mut alone);
    all
}
