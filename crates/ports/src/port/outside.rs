//! State of a port outside the switch: counters of frames that were lost there, and its device.
//!
//! ```text
//!   worker ── Port::outside() ──▶ Outside ──▶ thread that asked ── Outside::state() ──▶ kernel
//!             the driver's numbers            all numbers
//! ```
//!
//! The kernel answers questions about devices under one lock of all of them (RTNL), which anybody
//! may hold for hundreds of milliseconds, as the deletion of a namespace does. So a thread that
//! moves frames never asks.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Counters by name. Each counts frames lost outside the switch since the port was opened.
pub type Counters = BTreeMap<&'static str, u64>;

/// Row in place of counters that cannot be read: they are not zero.
pub const UNREADABLE: (&str, u64) = ("kernel.unreadable", 1);

/// State of a port's device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// True if the device is set up; `None` if that is not known.
    pub up: Option<bool>,
    /// Reason why nothing passes, if it is known.
    pub problem: Option<String>,
}

/// The kernel's part of a port's state.
pub trait KernelSide: fmt::Debug + Send + Sync {
    /// Adds the kernel's counters. May wait for the kernel.
    ///
    /// # Errors
    /// The kernel's error, when its counters cannot be read.
    fn read(&self, rows: &mut Counters) -> io::Result<()>;

    /// Returns the state of the device. May wait for the kernel.
    fn device(&self) -> DeviceState;
}

/// All of the state.
#[derive(Debug)]
pub struct OutsideState {
    /// Counters of the kernel, and of the driver, behind which a loss of this port's frames could
    /// hide. An error is the kernel's.
    pub counters: io::Result<Counters>,
    /// State of the device.
    pub device: DeviceState,
}

/// State of a port of which the kernel's part was not read yet.
#[derive(Debug, Default)]
pub struct Outside {
    driver: Counters,
    device: DeviceState,
    kernel: Option<Arc<dyn KernelSide>>,
    state: OnceCell<OutsideState>,
}

impl Outside {
    /// The state of a port that knows its device itself, if it has one.
    #[must_use]
    pub fn of_driver(driver: Counters, device: DeviceState) -> Self {
        Self { driver, device, ..Self::default() }
    }

    /// The driver's counters, and the kernel's part.
    #[must_use]
    pub fn of_kernel(driver: Counters, kernel: Arc<dyn KernelSide>) -> Self {
        Self { driver, kernel: Some(kernel), ..Self::default() }
    }

    /// Adds a counter of the driver.
    pub(crate) fn add(&mut self, name: &'static str, count: u64) {
        self.driver.insert(name, count);
    }

    /// Returns the whole state. The first call asks the kernel, and may wait for it.
    pub fn state(&self) -> &OutsideState {
        self.state.get_or_init(|| {
            let mut counters = self.driver.clone();
            let Some(kernel) = &self.kernel else {
                return OutsideState { counters: Ok(counters), device: self.device.clone() };
            };
            let read = kernel.read(&mut counters);
            OutsideState { counters: read.map(|()| counters), device: kernel.device() }
        })
    }

    /// As [`Self::state`], to be changed.
    pub fn state_mut(&mut self) -> &mut OutsideState {
        self.state();
        self.state.get_mut().expect("it was read just now")
    }

    /// Returns the counters; as [`Self::state`], it may wait for the kernel.
    ///
    /// # Errors
    /// The kernel's error, when its counters cannot be read.
    pub fn into_counters(mut self) -> io::Result<Counters> {
        std::mem::replace(&mut self.state_mut().counters, Ok(Counters::new()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Counts its readings.
    #[derive(Debug, Default)]
    struct Kernel(AtomicU32);

    impl KernelSide for Kernel {
        fn read(&self, rows: &mut Counters) -> io::Result<()> {
            rows.insert("kernel", 2);
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(()),
                _ => Err(io::Error::other("no")),
            }
        }

        fn device(&self) -> DeviceState {
            DeviceState { up: Some(true), problem: None }
        }
    }

    #[test]
    fn kernel_asked_once_by_the_first_reader() {
        let kernel = Arc::new(Kernel::default());
        let outside = Outside::of_kernel([("driver", 1)].into(), Arc::clone(&kernel) as _);
        assert_eq!(kernel.0.load(Ordering::Relaxed), 0);
        for _ in 0..2 {
            let state = outside.state();
            let rows = state.counters.as_ref().unwrap();
            assert_eq!(*rows, [("driver", 1), ("kernel", 2)].into());
            assert_eq!(state.device.up, Some(true));
        }
        assert_eq!(kernel.0.load(Ordering::Relaxed), 1);
        let unreadable = Outside::of_kernel(Counters::new(), kernel);
        assert!(unreadable.into_counters().is_err());
    }
}
