//! The XDP program on a device, with its maps.

use std::time::{Duration, Instant};

use anyhow::Context;
use aya::Ebpf;
use aya::maps::{Array, CpuMap, HashMap, MapData, PerCpuArray};
use aya::programs::{Xdp, XdpMode};
use rustix::time::{ClockId, clock_gettime};

use crate::rules::{RULES_WORDS, Rules, pair};

/// Value of a bucket without a core (`NOBODY` there).
const NOBODY: u32 = u32::MAX;
/// Time after which a silent bucket counts as paused.
const QUIET_NS: u64 = 10_000_000;
/// Maximum of packets that wait for a core: the program drops further ones.
const QUEUE: u32 = 2048;
/// Places beyond that in the kernel's queue. It frees up to 64 of them late (two cache lines of
/// pointers), and each receive core may find the last place at the same time.
const SPARE: u32 = 256;
/// A packet older than this is in no queue any more (`EMPTY_NS` there).
const EMPTY_NS: u64 = 1_000_000_000;
/// First version of the rules: slots begin with 0, and a slot that is two versions behind waits for
/// nothing.
const FIRST_RULES: u32 = 2;

#[cfg(has_program)]
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// Settings of the program (`struct settings`).
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) settle_ns: u64,
    pub(crate) hurry_ns: u64,
    pub(crate) patience_ns: u64,
    pub(crate) buckets: u32,
    pub(crate) high: u32,
    pub(crate) port: u16,
    pub(crate) high_networks: Vec<u32>,
    pub(crate) rules: Rules,
}

/// Packets and bytes of a bucket since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Packets since the start (`struct counts`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) other: u64,
    pub(crate) unplaced: u64,
    pub(crate) steered: u64,
    pub(crate) moved: u64,
    pub(crate) forced: u64,
    /// Slots in which changed matches are in force now.
    pub(crate) reread: u64,
    /// Slots among them in which a flow changed its bucket without a pause.
    pub(crate) reread_forced: u64,
    /// Packets for a core whose queue was full.
    pub(crate) dropped: u64,
}

/// The program, attached to a device as long as this lives.
pub(crate) struct Program {
    // The link closes with it, also if the process is killed.
    ebpf: Ebpf,
    config: Array<MapData, [u64; 6]>,
    all_rules: Array<MapData, [u64; RULES_WORDS]>,
    wanted: Array<MapData, u32>,
    state: Array<MapData, [u64; 3]>,
    slots: Array<MapData, [u64; 4]>,
    taken: Array<MapData, u32>,
    seen: PerCpuArray<MapData, [u64; 2]>,
    totals: PerCpuArray<MapData, [u64; 8]>,
    /// Counts of packets into and out of the queue of each core, for tests.
    #[cfg(test)]
    queues: [Array<MapData, [u64; 8]>; 2],
    settings: Settings,
    /// Limit of packets in each queue; 0 if they are not counted.
    queue: u32,
    /// Version of the rules.
    version: u32,
}

#[cfg(not(has_program))]
const BUILD_IT: &str = "install clang and libbpf-dev and build it again, or use --xdp rps";

#[cfg(not(has_program))]
fn load(_: u32) -> anyhow::Result<Ebpf> {
    anyhow::bail!("built without clang, and so without an XDP program: {BUILD_IT}")
}

/// Loads the programs and maps for this number of cores, which is no more than the kernel was built
/// for.
#[cfg(has_program)]
fn load(cores: u32) -> anyhow::Result<Ebpf> {
    aya::EbpfLoader::new()
        .map_max_entries("cores", cores)
        .map_max_entries("queues", cores)
        .map_max_entries("all_left", cores)
        .load(OBJECT)
        .context("the kernel does not take the XDP program (it needs root and Linux 5.15)")
}

impl Program {
    /// Loads the program, with a queue for each core; it is on no device yet.
    pub(crate) fn new(cores: &[u16], settings: &Settings) -> anyhow::Result<Self> {
        let most = cores.iter().max().context("no cores")?;
        let mut ebpf = load(u32::from(*most) + 1)?;
        let counter: &mut Xdp =
            ebpf.program_mut("steer_count").context("the object lacks a program")?.try_into()?;
        counter.load().context("the kernel refuses the program behind the CPU map")?;
        let counter = counter.fd()?.try_clone()?;
        let mut take = |name| ebpf.take_map(name).with_context(|| format!("no map {name}"));
        let mut of_cores = CpuMap::try_from(take("cores")?)?;
        for &core in cores {
            of_cores
                .set(core.into(), QUEUE + SPARE, Some(&counter), 0)
                .with_context(|| format!("core {core} takes no queue: is it online?"))?;
        }
        let mut high: HashMap<_, u32, u32> = HashMap::try_from(take("high_networks")?)?;
        for network in &settings.high_networks {
            high.insert(network, 1, 0)?;
        }
        let config = Array::try_from(take("config")?)?;
        let all_rules = Array::try_from(take("all_rules")?)?;
        let wanted = Array::try_from(take("wanted")?)?;
        let state = Array::try_from(take("state")?)?;
        let slots = Array::try_from(take("slots")?)?;
        let taken = Array::try_from(take("taken")?)?;
        let seen = PerCpuArray::try_from(take("seen")?)?;
        let totals = PerCpuArray::try_from(take("totals")?)?;
        #[cfg(test)]
        let queues = [Array::try_from(take("queues")?)?, Array::try_from(take("all_left")?)?];
        let program: &mut Xdp =
            ebpf.program_mut("steer").context("the object lacks a program")?.try_into()?;
        program.load().context("the kernel refuses the XDP program")?;
        let (settings, version) = (settings.clone(), FIRST_RULES);
        let mut new = Self {
            ebpf,
            config,
            all_rules,
            wanted,
            state,
            slots,
            taken,
            seen,
            totals,
            #[cfg(test)]
            queues,
            settings,
            queue: QUEUE,
            version,
        };
        new.tell()?;
        Ok(new)
    }

    pub(crate) fn attach(&mut self, device: &str, native: bool) -> anyhow::Result<()> {
        let mode = if native { XdpMode::Driver } else { XdpMode::Skb };
        self.main()?.attach(device, mode).with_context(|| {
            let how = if native { "driver" } else { "kernel" };
            format!("device {device} takes no XDP program run by the {how}; is there one already?")
        })?;
        Ok(())
    }

    fn main(&mut self) -> anyhow::Result<&mut Xdp> {
        Ok(self.ebpf.program_mut("steer").context("the object lacks a program")?.try_into()?)
    }

    /// Writes the program's settings, with the rules first.
    fn tell(&mut self) -> anyhow::Result<()> {
        self.all_rules.set(self.version & 1, self.settings.rules.words(), 0)?;
        Ok(self.config.set(0, words(&self.settings, self.version, self.queue), 0)?)
    }

    /// Sets other flows of high priority: in each slot as soon as the flows that change their
    /// bucket pause. Returns false, and changes nothing, while a slot still waits for that since
    /// the last change: the program knows two versions of the rules.
    pub(crate) fn set_rules(&mut self, rules: &Rules) -> anyhow::Result<bool> {
        if self.settings.rules == *rules {
            return Ok(true);
        }
        let now = monotonic_ns();
        for slot in 0..self.low() {
            let [numbers, last, ..] = self.slots.get(&slot, 0)?;
            let is_behind = last != 0 && halves(numbers)[0] != self.version;
            // A silent slot waits for nothing: its next packet finds the newest rules.
            if is_behind && last.saturating_add(EMPTY_NS) > now {
                return Ok(false);
            }
        }
        self.settings.rules = rules.clone();
        self.version += 1;
        self.tell()?;
        Ok(true)
    }

    /// Number of slots, which are the buckets that are not of high priority.
    fn low(&self) -> u32 {
        self.settings.buckets - self.settings.high
    }

    /// Sets the core for a bucket.
    pub(crate) fn want(&mut self, bucket: u32, core: u16) -> anyhow::Result<()> {
        Ok(self.wanted.set(bucket, u32::from(core) + 1, 0)?)
    }

    /// Stops counting queues: the kernel runs the work of one core on another one, so that the
    /// number of packets in each queue is unknown. From now on the kernel drops packets that find a
    /// queue full.
    pub(crate) fn trust_no_queue(&mut self) -> anyhow::Result<()> {
        if self.queue == 0 {
            return Ok(());
        }
        self.queue = 0;
        self.tell()
    }

    /// Leaves all packets to the stack again, so that none overtakes packets that still wait for a
    /// core when the program goes. It waits for flows that do not pause for `most` at the longest.
    pub(crate) fn release(&mut self, most: Duration) -> anyhow::Result<()> {
        for bucket in 0..self.settings.buckets {
            self.wanted.set(bucket, 0, 0)?;
        }
        let begin = Instant::now();
        while begin.elapsed() < most && !self.is_released(begin.elapsed())? {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns true if each bucket's packets go to no core any more, or none has come for `quiet`
    /// and none is under way.
    fn is_released(&self, quiet: Duration) -> anyhow::Result<bool> {
        let now = monotonic_ns();
        let mut is_empty = Vec::new();
        for slot in 0..self.low() {
            let [_, put] = halves(self.slots.get(&slot, 0)?[0]);
            is_empty.push(put == self.taken.get(&slot, 0)?);
        }
        let low = self.low() as usize;
        for bucket in 0..self.settings.buckets {
            let [places, last, _] = self.state.get(&bucket, 0)?;
            let [core, _] = halves(places);
            let at = bucket as usize;
            let is_empty = if at < low {
                is_empty[at]
            } else {
                let step = self.settings.high.max(1) as usize;
                is_empty[at - low..].iter().step_by(step).all(|is_empty| *is_empty)
            };
            let is_quiet = now.saturating_sub(last) > QUIET_NS
                && quiet.as_nanos() > u128::from(QUIET_NS)
                && is_empty;
            if last != 0 && core != NOBODY && !is_quiet {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Packets and bytes of every bucket, since the start.
    pub(crate) fn work(&self) -> anyhow::Result<Vec<Work>> {
        let of_bucket = |bucket: u32| {
            let sum = self.seen.get(&bucket, 0)?.iter().fold([0; 2], |sum: [u64; 2], core| {
                [sum[0].wrapping_add(core[0]), sum[1].wrapping_add(core[1])]
            });
            Ok(Work { packets: sum[0], bytes: sum[1] })
        };
        (0..self.settings.buckets).map(of_bucket).collect()
    }

    pub(crate) fn counts(&self) -> anyhow::Result<Counts> {
        let all = self.totals.get(&0, 0)?;
        let sum = |at: usize| all.iter().map(|core| core[at]).sum();
        Ok(Counts {
            other: sum(0),
            unplaced: sum(1),
            steered: sum(2),
            moved: sum(3),
            forced: sum(4),
            reread: sum(5),
            reread_forced: sum(6),
            dropped: sum(7),
        })
    }
}

/// The program's clock.
fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let number = |part: i64| u64::try_from(part).unwrap_or(0);
    number(time.tv_sec) * 1_000_000_000 + number(time.tv_nsec)
}

/// Two numbers of 32 bits, adjacent in memory.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// Settings as the program reads them: numbers of 64 bits, then of 32, and a port in network order.
fn words(settings: &Settings, version: u32, queue: u32) -> [u64; 6] {
    let [high, low] = settings.port.to_be_bytes();
    [
        settings.settle_ns,
        settings.hurry_ns,
        settings.patience_ns,
        pair(settings.buckets, settings.high),
        pair(version, queue),
        pair(u32::from_ne_bytes([high, low, 0, 0]), 0),
    ]
}

#[cfg(all(test, has_program))]
mod tests;
