//! Bridge parity: each case is a small script of real clients, run on two hosts with the kernel's
//! VXLAN and a Linux bridge, and on two hosts of a fabric. A difference is a failure, unless the
//! tables of `docs/bridge-parity.md` name it; a row that no longer differs is a failure, too.
//!
//! ```text
//!   a ─┐                           ┌─ b        stations of a case: 10.0.0.1, 10.0.0.2, …
//!      ├ h1 up0 ═══════════ up0 h2 ┤           in a network that no other case has
//!   c ─┘                           └─ d
//! ```
//!
//! `PARITY=arp/` runs the cases with that prefix; then rows of others are not checked. Cases that
//! take longer than some seconds run under `SLUICE_SOAK=1`.

mod parity;
mod rig;

use parity::round;

#[test]
#[ignore = "live: needs root"]
fn behaviour_equals_that_of_a_linux_bridge() {
    if rig::skip("live_parity", &["ping"]) {
        return;
    }
    round::run();
}
