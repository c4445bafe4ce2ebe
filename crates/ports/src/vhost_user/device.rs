//! State of a device, as set by the front end's vhost-user requests.
//!
//! A ring runs from the moment at which its place, its memory and its kick are known to the moment
//! at which the front end asks for its base; see "Starting and stopping rings" of the vhost-user
//! specification. Its frames pass only if `SET_VRING_ENABLE` enables it, too.

pub(super) mod handing;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_setfl};
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut as Requests};

use super::log::{DirtyLog, Logging};
use super::memory::{Layout, Memory};
use super::ring::{Place, SIZE_MAX};
use super::session::{Change, Driver, Region, Setup};
use crate::net_header;

/// Feature bits (virtio 1.2 sections 5.1.3 and 6, and vhost-user).
pub(super) const MRG_RXBUF: u64 = 1 << 15;
/// Of vhost-user: writes are marked in the dirty log.
const LOG_ALL: u64 = 1 << 26;
const INDIRECT_DESC: u64 = 1 << 28;
pub(super) const EVENT_IDX: u64 = 1 << 29;
const PROTOCOL_FEATURES: u64 = 1 << 30;
const VERSION_1: u64 = 1 << 32;
/// A ring can be reset alone: the same as a stop here.
const RING_RESET: u64 = 1 << 40;
/// A guest that was moved announces its address: else the front end would have to.
const GUEST_ANNOUNCE: u64 = 1 << 21;

/// A hypervisor may set its guest's MTU (virtio 1.2 section 5.1.4): the guest reads it in the
/// hypervisor's configuration space, and the port gets `NET_SET_MTU`.
const MTU: u64 = 1 << 3;

/// Features of every device.
const FEATURES: u64 = MTU
    | MRG_RXBUF
    | LOG_ALL
    | INDIRECT_DESC
    | EVENT_IDX
    | PROTOCOL_FEATURES
    | VERSION_1
    | RING_RESET
    | GUEST_ANNOUNCE;

/// Chains are used in the order in which they became available.
const IN_ORDER: u64 = 1 << 35;

/// There may be more than one queue pair; a driver tells its hypervisor the number in use.
const MQ: u64 = 1 << 22;

/// Features of a device with this number of queue pairs.
pub(super) const fn features(in_order: bool, offload: bool, pairs: usize) -> u64 {
    let order = if in_order { IN_ORDER } else { 0 };
    let offload = if offload { net_header::OFFERED } else { 0 };
    let queues = if pairs > 1 { MQ } else { 0 };
    FEATURES | order | offload | queues
}

/// Offer of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Features that a front end may choose from.
    pub(super) features: u64,
    /// Queue pairs: two rings each.
    pub(super) pairs: usize,
    /// Layer-3 MTU of its network, and so the maximum for a guest.
    pub(super) mtu: u16,
}

/// Maximum of memory regions that a front end may share (vhost-user has room for as many in
/// `SET_MEM_TABLE`).
const REGIONS_MAX: u64 = 8;

/// State of one ring.
#[derive(Debug, Default)]
struct Vring {
    place: Place,
    /// True if the front end sent its addresses.
    placed: bool,
    /// The guest's address of the used ring, if its writes are logged.
    logged: Option<u64>,
    base: u16,
    kick: Option<File>,
    call: Option<File>,
    enabled: bool,
    runs: bool,
}

/// The device of one session.
#[derive(Debug)]
pub(super) struct Device {
    driver: Driver,
    offered: Offer,
    features: u64,
    /// Features of the protocol.
    protocol: u64,
    regions: Vec<Region>,
    memory: Arc<Memory>,
    log: Option<Arc<DirtyLog>>,
    rings: Vec<Vring>,
    /// The fault of a request, in words.
    pub(super) problem: Option<String>,
}

impl Device {
    pub(super) fn new(driver: Driver, offered: Offer) -> Self {
        Self {
            driver,
            offered,
            features: 0,
            protocol: 0,
            regions: Vec::new(),
            memory: Arc::default(),
            log: None,
            rings: (0..2 * offered.pairs).map(|_| Vring::default()).collect(),
            problem: None,
        }
    }

    /// Refuses a request, which ends the session.
    fn refuse<T>(&mut self, problem: impl Into<String>) -> Result<T> {
        let problem = problem.into();
        self.problem = Some(problem.clone());
        Err(Error::ReqHandlerError(io::Error::other(problem)))
    }

    /// Checks the MTU that the front end sets for its guest.
    pub(super) fn set_mtu(&mut self, mtu: u64) -> Result<()> {
        let most = self.offered.mtu;
        if mtu <= u64::from(most) {
            return Ok(());
        }
        self.refuse(format!(
            "the guest is told an MTU of {mtu}, and its network has {most}: use {most} or less \
             (QEMU: `host_mtu={most}`)"
        ))
    }

    fn ring(&mut self, index: u32) -> Result<&mut Vring> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let count = self.rings.len();
        if index >= count {
            return self.refuse(format!("ring {index}: this port has {count}"));
        }
        Ok(&mut self.rings[index])
    }

    fn ask(&mut self, change: Change) -> Result<u16> {
        match self.driver.ask(change) {
            Ok(base) => Ok(base),
            Err(problem) => self.refuse(problem),
        }
    }

    /// Duplicates a descriptor of a ring for the driver.
    fn copy_of(
        &mut self,
        index: usize,
        which: fn(&Vring) -> Option<&File>,
    ) -> Result<Option<OwnedFd>> {
        match which(&self.rings[index]).map(File::try_clone).transpose() {
            Ok(copy) => Ok(copy.map(Into::into)),
            Err(error) => self.refuse(error.to_string()),
        }
    }

    /// Starts a ring once its state is complete.
    fn start_if_ready(&mut self, index: usize) -> Result<()> {
        let (features, memory) = (self.features, Arc::clone(&self.memory));
        let ring = &self.rings[index];
        if ring.runs || !ring.placed || ring.kick.is_none() || self.regions.is_empty() {
            return Ok(());
        }
        // The ring waits for a log that is still to come: no write may go without a mark.
        if features & LOG_ALL != 0 && self.log.is_none() {
            return Ok(());
        }
        let logging = self.logging(index)?;
        let kick = self.copy_of(index, |ring| ring.kick.as_ref())?;
        let call = self.copy_of(index, |ring| ring.call.as_ref())?;
        let ring = &self.rings[index];
        // Without protocol features there is no request that would enable it.
        let enabled = ring.enabled || features & PROTOCOL_FEATURES == 0;
        let (place, base) = (ring.place, ring.base);
        let setup = Setup { place, base, memory, features, logging, kick, call, enabled };
        self.ask(Change::Start(number(index), Box::new(setup)))?;
        self.rings[index].runs = true;
        Ok(())
    }

    /// Returns the logging of a ring.
    fn logging(&mut self, index: usize) -> Result<Option<Logging>> {
        if self.features & LOG_ALL == 0 {
            return Ok(None);
        }
        let Some(log) = self.log.clone() else {
            return self.refuse("LOG_ALL without a dirty log: SET_LOG_BASE comes before it");
        };
        let ring = &self.rings[index];
        let used = ring.logged;
        // Flags, index, entries, and the index of the wanted event.
        let used_size = 2 * 3 + 8 * u64::from(ring.place.size);
        let used_end = used.map_or(0, |at| at.saturating_add(used_size));
        let needed = used_end.max(self.memory.end());
        if log.end() < needed {
            return self.refuse(too_small(&log, needed));
        }
        Ok(Some(Logging { log, used }))
    }

    /// Sends its current logging to a ring that runs.
    fn tell_log(&mut self, index: usize) -> Result<()> {
        if !self.rings[index].runs {
            return Ok(());
        }
        let logging = self.logging(index)?;
        self.ask(Change::Log(number(index), logging)).map(drop)
    }

    /// Stops a ring, whose chains are all given back afterwards, and stores its base.
    fn stop(&mut self, index: usize) -> Result<()> {
        if self.rings[index].runs {
            self.rings[index].runs = false;
            self.rings[index].base = self.ask(Change::Stop(number(index)))?;
        }
        Ok(())
    }

    /// Stops all rings, since the front end is gone.
    pub(super) fn stop_all(&mut self) {
        for index in 0..self.rings.len() {
            // If the driver is closed, it has no ring.
            let _ = self.stop(index);
        }
    }

    /// Returns true if an added region is there: QEMU before 8.0 repeats it for each queue pair.
    fn is_said_again(&self, added: &Layout) -> bool {
        self.offered.pairs > 1 && self.regions.iter().any(|(there, _)| there == added)
    }

    /// Maps other memory: rings that run stop, and continue in it.
    fn use_regions(&mut self, regions: Vec<Region>) -> Result<()> {
        let ran: Vec<bool> = self.rings.iter().map(|ring| ring.runs).collect();
        for index in 0..ran.len() {
            self.stop(index)?;
        }
        self.memory = match Memory::map(&regions) {
            Ok(memory) => Arc::new(memory),
            Err(error) => return self.refuse(format!("guest memory: {error}")),
        };
        self.regions = regions;
        for index in (0..ran.len()).filter(|&index| ran[index]) {
            self.start_if_ready(index)?;
        }
        Ok(())
    }
}

fn number(index: usize) -> u8 {
    u8::try_from(index).expect("sixteen rings at most")
}

fn too_small(log: &DirtyLog, needed: u64) -> String {
    format!(
        "the dirty log ends at guest address {:#x}, and what is written at {needed:#x}: give a \
         larger one (SET_LOG_BASE)",
        log.end()
    )
}

const fn layout(region: &VhostUserMemoryRegion) -> Layout {
    Layout {
        guest: region.guest_phys_addr,
        user: region.user_addr,
        size: region.memory_size,
        offset: region.mmap_offset,
    }
}

fn cloned(regions: &[Region]) -> io::Result<Vec<Region>> {
    regions.iter().map(|(layout, file)| Ok((*layout, file.try_clone()?))).collect()
}

impl Requests for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offered.features)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !self.offered.features;
        if unknown != 0 {
            return self.refuse(format!("features {unknown:#x} were not offered"));
        }
        if features & VERSION_1 == 0 && features & !(PROTOCOL_FEATURES | LOG_ALL) != 0 {
            return self.refuse("the driver is a legacy one; virtio 1.0 (VERSION_1) is needed");
        }
        let before = std::mem::replace(&mut self.features, features);
        if (before ^ features) & LOG_ALL != 0 {
            (0..self.rings.len()).try_for_each(|index| self.tell_log(index))?;
        }
        if features & LOG_ALL == 0 && before & LOG_ALL != 0 {
            // Another migration brings another log.
            self.log = None;
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        self.use_regions(regions.iter().map(layout).zip(files).collect())?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        if num == 0 || num > SIZE_MAX || !num.is_power_of_two() {
            return self
                .refuse(format!("a ring of {num} entries: a power of two up to {SIZE_MAX}"));
        }
        self.ring(index)?.place.size = u16::try_from(num).expect("at most 32,768");
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let ring = self.ring(index)?;
        let logged = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG).then_some(log);
        if ring.runs {
            // This switches dirty logging on or off; the ring stays in its place.
            let place = Place { desc: descriptor, avail: available, used, ..ring.place };
            let same = place == ring.place;
            if !same {
                return self.refuse("a ring was moved while it runs");
            }
            ring.logged = logged;
            return self.tell_log(usize::try_from(index).expect("checked"));
        }
        ring.logged = logged;
        ring.place = Place { desc: descriptor, avail: available, used, ..ring.place };
        ring.placed = true;
        self.start_if_ready(usize::try_from(index).expect("checked"))
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        // A split ring's index; larger values belong to packed rings.
        let Ok(base) = u16::try_from(base) else {
            return self.refuse(format!("base {base} of a split ring"));
        };
        self.ring(index)?.base = base;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.ring(index)?;
        let at = usize::try_from(index).expect("checked");
        self.stop(at)?;
        // The ring starts again when the front end sets its kick again.
        let ring = &mut self.rings[at];
        (ring.kick, ring.call) = (None, None);
        Ok(VhostUserVringState::new(index, ring.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        if fd.is_none() {
            return self.refuse("a ring without kicks (polling by the front end's wish)");
        }
        self.ring(index.into())?.kick = fd;
        let at = usize::from(index);
        if !self.rings[at].runs {
            return self.start_if_ready(at);
        }
        let kick = self.copy_of(at, |ring| ring.kick.as_ref())?;
        self.ask(Change::Kick(index, kick)).map(drop)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        // The worker writes to it, and must not block.
        let ready = fd.as_ref().map(|fd| fcntl_setfl(fd, OFlags::NONBLOCK)).transpose();
        if let Err(errno) = ready {
            return self.refuse(format!("the call descriptor of ring {index}: {errno}"));
        }
        self.ring(index.into())?.call = fd;
        let at = usize::from(index);
        if !self.rings[at].runs {
            return Ok(());
        }
        let call = self.copy_of(at, |ring| ring.call.as_ref())?;
        self.ask(Change::Call(index, call)).map(drop)
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.ring(index.into()).map(drop)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::MTU
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::LOG_SHMFD)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        self.protocol = features;
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.offered.pairs as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let ring = self.ring(index)?;
        ring.enabled = enable;
        if ring.runs {
            let index = u8::try_from(index).expect("sixteen rings at most");
            self.ask(Change::Enable(index, enable))?;
        }
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        if self.is_said_again(&layout(region)) {
            return Ok(None);
        }
        if self.regions.len() as u64 == REGIONS_MAX {
            return self.refuse(format!("more than {REGIONS_MAX} regions of memory"));
        }
        let mut regions = cloned(&self.regions).map_err(Error::ReqHandlerError)?;
        regions.push((layout(region), file));
        self.use_regions(regions)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let gone = layout(region);
        let is_it = |other: &Layout| {
            (other.guest, other.user, other.size) == (gone.guest, gone.user, gone.size)
        };
        let mut regions = cloned(&self.regions).map_err(Error::ReqHandlerError)?;
        regions.retain(|(layout, _)| !is_it(layout));
        if regions.len() == self.regions.len() {
            if self.offered.pairs > 1 {
                // A repetition, for another pair.
                return Ok(());
            }
            return self.refuse("a region of memory that was not added is removed");
        }
        self.use_regions(regions)
    }

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Err(Error::InvalidOperation("configuration space was not offered"))
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("configuration space was not offered"))
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("this is a network device"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("shared objects were not offered"))
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(Error::InvalidOperation("the in-flight region was not offered"))
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        Err(Error::InvalidOperation("the in-flight region was not offered"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("the transfer of device state was not offered"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("the transfer of device state was not offered"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("shared memory regions were not offered"))
    }

    fn set_log_base(&mut self, area: &VhostUserLog, file: File) -> Result<()> {
        let log = match DirtyLog::map(&file, area.mmap_offset, area.mmap_size) {
            Ok(log) => log,
            Err(error) => return self.refuse(format!("the dirty log: {error}")),
        };
        if log.end() < self.memory.end() {
            return self.refuse(too_small(&log, self.memory.end()));
        }
        self.log = Some(Arc::new(log));
        for index in 0..self.rings.len() {
            self.tell_log(index)?;
            self.start_if_ready(index)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
