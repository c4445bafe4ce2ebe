//! Shared memory that goes away: its file becomes shorter while it is mapped, its huge pages run
//! out, or the machine finds a page broken. A thread that touches such a page gets a SIGBUS, which
//! would end the process, and with it the ports of all other guests.
//!
//! So every region of a guest is watched here. When the signal comes for an address in one, private
//! pages of zeros replace the region, it is flagged as [gone](Watch::is_gone), and the interrupted
//! code goes on, with bytes as good as any that a guest may write at any time. The port checks the
//! flag once a turn and stops with a named fault. A signal for any other address has its earlier
//! effect.
//!
//! The handler takes no lock and no memory: it reads a table of atomics and calls `mmap`. It cannot
//! miss a region: a thread that touches one keeps it mapped, so its entry was made before and
//! stays.
#![allow(unsafe_code, reason = "a handler of a signal, and a mapping put in place of another")]

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Maximum of watched regions: eight of each of 128 guests.
const WATCHED_MAX: usize = 1024;

#[derive(Debug)]
struct Entry {
    taken: AtomicBool,
    /// Address of the region; zero if the entry is unused. Written last.
    base: AtomicUsize,
    size: AtomicUsize,
    gone: AtomicBool,
}

impl Entry {
    /// Base and size of the region watched here, if this address is in it.
    ///
    /// The entry may get another region at any moment, unless the address is in it: the base is the
    /// same before and after the size was read, or the two are not of one region.
    fn holds(&self, at: usize) -> Option<(usize, usize)> {
        let base = self.base.load(Ordering::Acquire);
        let size = self.size.load(Ordering::Acquire);
        let is_whole = base != 0 && self.base.load(Ordering::Relaxed) == base;
        (is_whole && at.wrapping_sub(base) < size).then_some((base, size))
    }
}

static ENTRIES: [Entry; WATCHED_MAX] = [const {
    Entry {
        taken: AtomicBool::new(false),
        base: AtomicUsize::new(0),
        size: AtomicUsize::new(0),
        gone: AtomicBool::new(false),
    }
}; WATCHED_MAX];

/// The earlier action of the signal.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Watch of a region. It must be dropped before the region is unmapped.
#[derive(Debug)]
pub(super) struct Watch(&'static Entry);

impl Watch {
    /// Watches a mapping of whole pages.
    ///
    /// # Errors
    /// Too many are watched; or the kernel's error for the handler.
    pub(super) fn new(base: NonNull<u8>, size: usize) -> io::Result<Self> {
        install()?;
        let entry = ENTRIES.iter().find(|entry| !entry.taken.swap(true, Ordering::Acquire));
        let entry = entry.ok_or_else(|| {
            io::Error::other(format!("more than {WATCHED_MAX} regions of memory on this host"))
        })?;
        entry.gone.store(false, Ordering::Relaxed);
        // Release: a reader of this size sees that the earlier base is gone.
        entry.size.store(size, Ordering::Release);
        // Release: a handler that sees the base sees the rest.
        entry.base.store(base.addr().get(), Ordering::Release);
        Ok(Self(entry))
    }

    /// Returns true if a page of it could not be accessed, and all of it reads as zeros now.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.base.store(0, Ordering::Relaxed);
        // Release: the next owner finds it empty.
        self.0.taken.store(false, Ordering::Release);
    }
}

/// Installs the handler, once in a process.
fn install() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    // A thread that panicked here has left it unchanged.
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    // SAFETY: the calls read and write a `sigaction` each, of which all fields may be zero. The
    // handler is put in place after what it needs.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        BEFORE.get_or_init(|| before);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        // On the thread's alternate stack if it has one, as the standard library's handler.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    *installed = true;
    Ok(())
}

extern "C" fn on_bus_error(_: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives the information, and for this signal it has an address.
    let at = unsafe { (*info).si_addr() }.addr();
    if replace(at) {
        return;
    }
    // Not ours: the instruction runs again, with the earlier action.
    if let Some(before) = BEFORE.get() {
        // SAFETY: it is what was in place before.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
}

/// Replaces the region of this address by zeros. Returns false if there is none, or if the kernel
/// has no room for it.
fn replace(at: usize) -> bool {
    let holds = |entry: &'static Entry| entry.holds(at).map(|region| (entry, region));
    let Some((entry, (base, size))) = ENTRIES.iter().find_map(holds) else { return false };
    let base = std::ptr::with_exposed_provenance_mut(base);
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
    );
    // SAFETY: the region is mapped as long as it is watched, and no content of it is trusted;
    // `mmap` may be called in a handler. The interrupted code keeps its `errno`.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let mapped = libc::mmap(base, size, protection, flags, -1, 0);
        *errno = before;
        if mapped == libc::MAP_FAILED {
            return false;
        }
    }
    entry.gone.store(true, Ordering::Relaxed);
    true
}

#[cfg(test)]
mod tests;
