//! Places in the running kernel, from its BTF (`/sys/kernel/btf/vmlinux`): the number of a type or
//! function, and offsets of members.

use std::io;
use std::sync::OnceLock;

use sluice_btf::{Btf, Kind};

/// Numbers and offsets that the programs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Number of the kernel function `bpf_rdonly_cast`.
    pub(super) cast: i32,
    /// Number of `struct sock`.
    pub(super) sock: i32,
    /// Offset of `sk_backlog.rmem_alloc` in it.
    pub(super) used: i16,
    /// Offset of `sk_rcvbuf` in it.
    pub(super) limit: i16,
}

/// The places in the running kernel.
pub(super) fn places() -> io::Result<Places> {
    static PLACES: OnceLock<Result<Places, String>> = OnceLock::new();
    let read = || {
        let bytes = sluice_btf::running_kernel().map_err(|error| error.to_string())?;
        find(&bytes).ok_or_else(|| {
            "its BTF has no bpf_rdonly_cast, or no struct sock with rmem_alloc and sk_rcvbuf"
                .to_owned()
        })
    };
    PLACES.get_or_init(read).clone().map_err(io::Error::other)
}

/// The places in this BTF, if it has them.
pub(super) fn find(bytes: &[u8]) -> Option<Places> {
    let btf = Btf::parse(bytes)?;
    let sock = btf.number(Kind::Struct, "sock")?;
    let backlog = btf.member(sock, "sk_backlog")?;
    let used = btf.member(backlog.type_number, "rmem_alloc")?;
    let limit = btf.member(sock, "sk_rcvbuf")?;
    Some(Places {
        cast: btf.number(Kind::Func, "bpf_rdonly_cast")?.try_into().ok()?,
        sock: sock.try_into().ok()?,
        used: (backlog.offset + used.offset).try_into().ok()?,
        limit: limit.offset.try_into().ok()?,
    })
}
