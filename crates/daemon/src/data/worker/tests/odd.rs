//! Ports in memory with something odd about them, and a kernel that is slow to answer.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use sluice_ports::memory::MemoryPort;
use sluice_ports::{
    Amount, Counters, DeviceState, KernelSide, Losses, Lossless, Outside, PollFd, Read, Ring,
};
use sluice_switch::{Egress, Sink, Taken, Window};

use super::several::start_with;
use super::*;
use crate::data::losses;

/// A port in memory with something odd about it.
pub(super) struct Odd {
    pub(super) port: MemoryPort,
    /// From some time on it has a descriptor which cannot be polled, as files have.
    pub(super) unwatchable: Option<(File, Arc<AtomicBool>)>,
    /// The kernel has counters of it.
    pub(super) kernel: Option<Arc<dyn KernelSide>>,
}

impl Odd {
    pub(super) fn of(port: MemoryPort) -> Self {
        Self { port, unwatchable: None, kernel: None }
    }
}

impl Sink<FrameBuf> for Odd {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        self.port.offer(frame)
    }
}

impl Port for Odd {
    fn kind(&self) -> &'static str {
        self.port.kind()
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let file = self.unwatchable.as_ref().and_then(|(file, is_so)| {
            let fd = PollFd { fd: file.as_fd(), read: true, write: false };
            is_so.load(Ordering::Acquire).then_some(fd)
        });
        self.port.poll_fds().into_iter().chain(file).collect()
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        self.port.read(window, limit, pool, batch)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.port.flush()
    }

    fn wants_write(&self) -> bool {
        self.port.wants_write()
    }

    fn pending(&self) -> Amount {
        self.port.pending()
    }

    fn lost(&self) -> &Losses {
        self.port.lost()
    }

    fn outside(&self) -> Outside {
        match &self.kernel {
            Some(kernel) => Outside::of_kernel(Counters::new(), Arc::clone(kernel)),
            None => self.port.outside(),
        }
    }

    fn ring(&self) -> Ring {
        self.port.ring()
    }

    fn lossless(&self) -> Lossless {
        self.port.lossless()
    }

    fn mtu(&self) -> u16 {
        self.port.mtu()
    }

    fn close(&mut self) -> io::Result<()> {
        self.port.close()
    }
}

/// Notes who asks it.
#[derive(Debug, Default)]
struct Kernel(Mutex<Vec<ThreadId>>);

impl Kernel {
    fn note(&self) {
        self.0.lock().unwrap().push(std::thread::current().id());
    }
}

impl KernelSide for Kernel {
    fn read(&self, _: &mut Counters) -> io::Result<()> {
        self.note();
        Ok(())
    }

    fn device(&self) -> DeviceState {
        self.note();
        DeviceState::default()
    }
}

#[test]
fn worker_never_waits_for_kernel_counters() {
    let kernel = Arc::new(Kernel::default());
    let running = start_with(&containers(2, 64), &[0, 1], 64, |_, port| {
        Box::new(Odd { kernel: Some(Arc::clone(&kernel) as _), ..Odd::of(port) })
    });
    let Body::Ports(shots) = running.ask(Question::Ports) else { panic!("ports") };
    let ids = [PortId(0), PortId(1)];
    let seen = losses::shots(&running.askers, &ids).unwrap();
    assert_eq!((shots.len(), seen.len()), (2, 2));
    assert_eq!(*kernel.0.lock().unwrap(), [], "a worker asked");
    let all = shots.iter().chain(seen.iter().map(|(_, shot)| shot));
    all.for_each(|shot| assert!(shot.outside.state().counters.is_ok()));
    let asked = kernel.0.lock().unwrap().clone();
    assert_eq!(asked, vec![std::thread::current().id(); 8]);
    running.end();
}
