//! Conditions under which a process begins again.

use std::ffi::OsStr;

use super::{LARGE_PAGES, is_worth_it};

#[test]
fn once_and_only_where_asking_changes_something() {
    assert!(is_worth_it("always [madvise] never\n", None));
    assert!(!is_worth_it("[always] madvise never\n", None), "they are given to everybody");
    assert!(!is_worth_it("always madvise [never]\n", None), "they are given to nobody");
    assert!(!is_worth_it("", None), "the kernel has none");
    let again = Some(OsStr::new(LARGE_PAGES));
    assert!(!is_worth_it("always [madvise] never\n", again), "it has begun again");
    let other = Some(OsStr::new("glibc.malloc.arena_max=1"));
    assert!(!is_worth_it("always [madvise] never\n", other), "somebody has chosen");
}
