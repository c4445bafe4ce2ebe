//! The agent: reads questions of the host, and answers.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendFlags};
use sluice_base::Mac;
use sluice_wire::EtherType;
use sluice_wire::guest_room::{self, FRAME_SIZE_MAX, FlowEntry, Message, RoomEntry};

use super::GuestError;
use super::diag::Diag;
use crate::sys;

/// Interval of hellos.
const HELLO: Duration = Duration::from_secs(1);

/// Result of a turn of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    Nothing,
    /// A question, which was answered.
    Asked,
    /// The host hears the agent and holds nothing for its sockets: its network is lossy.
    Idle,
}

/// Frames of the agent itself, which the card counts beside the machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Frames that it received.
    pub received: u64,
    /// Frames that it sent.
    pub sent: u64,
}

/// An agent at a card.
#[derive(Debug)]
pub struct Agent {
    device: String,
    socket: OwnedFd,
    mac: Mac,
    diag: Diag,
    frames: Frames,
    count_file: Option<File>,
    hello_at: Instant,
}

impl Agent {
    /// Opens a packet socket at a card. `count_file` always has the frames of the agent, two
    /// numbers of 20 digits in a line: received, sent.
    ///
    /// # Errors
    /// [`GuestError`] says what failed, with the remedy.
    pub fn open(device: &str, count_file: Option<&Path>) -> Result<Self, GuestError> {
        let failed = |what| GuestError::device(device, what);
        let (asker, request, index) = super::find(device)?;
        let mac = request.mac(asker.as_fd()).map_err(failed("ask for its address"))?;
        let socket = sys::packet_socket().map_err(failed("open a packet socket"))?;
        let group = libc::packet_mreq {
            mr_ifindex: index.cast_signed(),
            mr_type: sys::GROUP_ADDRESS,
            mr_alen: 6,
            mr_address: {
                let [a, b, c, d, e, f] = guest_room::ADDRESS.0;
                [a, b, c, d, e, f, 0, 0]
            },
        };
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &group)
            .map_err(failed("receive the group address of the host's frames"))?;
        sys::bind_packet(&socket, index, EtherType::LOCAL_EXPERIMENTAL.0)
            .map_err(failed("bind a packet socket to it"))?;
        let count_file = count_file.map(File::create).transpose();
        let count_file = count_file.map_err(failed("make the file of its frames"))?;
        let diag = Diag::open().map_err(|source| GuestError::NoDiag { source })?;
        let (frames, device) = (Frames::default(), device.to_owned());
        let hello_at = Instant::now();
        let agent = Self { device, socket, mac, diag, frames, count_file, hello_at };
        agent.count().map_err(failed("write the file of its frames"))?;
        Ok(agent)
    }

    /// Waits for a question and answers it, or says hello.
    ///
    /// # Errors
    /// [`GuestError`] if the card is gone.
    pub fn turn(&mut self) -> Result<Told, GuestError> {
        let failed = GuestError::device(&self.device, "receive from it");
        let wait = self.hello_at.saturating_duration_since(Instant::now());
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).expect("a short time"),
            tv_nsec: wait.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        let mut told = Told::Nothing;
        let mut frame = [0; FRAME_SIZE_MAX];
        match rustix::net::recv(&self.socket, &mut frame[..], RecvFlags::TRUNC) {
            Ok((_, size)) => {
                self.frames.received += 1;
                told = frame.get(..size).map_or(Ok(Told::Nothing), |frame| self.hear(frame))?;
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            // It may come up again.
            Err(rustix::io::Errno::NETDOWN) => std::thread::sleep(HELLO),
            Err(errno) => return Err(failed(errno.into())),
        }
        if self.hello_at <= Instant::now() {
            self.hello_at = Instant::now() + HELLO;
            self.send(&Message::Hello)?;
        }
        self.count().map_err(GuestError::device(&self.device, "write the file of its frames"))?;
        Ok(told)
    }

    /// Tells the host that the agent ends.
    ///
    /// # Errors
    /// [`GuestError`] if the card is gone.
    pub fn end(mut self) -> Result<(), GuestError> {
        self.send(&Message::Bye)?;
        self.count().map_err(GuestError::device(&self.device, "write the file of its frames"))
    }

    /// Frames of the agent so far.
    #[must_use]
    pub const fn frames(&self) -> Frames {
        self.frames
    }

    fn hear(&mut self, frame: &[u8]) -> Result<Told, GuestError> {
        match Message::parse(frame) {
            Ok(Message::Question { number, flows }) => {
                let rooms: Vec<RoomEntry> =
                    flows.iter().filter_map(|flow| self.room(flow)).collect();
                self.send(&Message::Answer { number, rooms: &rooms })?;
                Ok(Told::Asked)
            }
            Ok(Message::Idle) => Ok(Told::Idle),
            _ => Ok(Told::Nothing),
        }
    }

    /// The room of a flow's socket; `None` if the kernel does not say.
    fn room(&mut self, flow: &FlowEntry) -> Option<RoomEntry> {
        let found = self.diag.room(flow).ok()?;
        let room = found.map_or((0, 0, 0), |room| (room.cookie, room.used, room.limit));
        Some(RoomEntry::new(*flow, room.0, room.1, room.2))
    }

    fn send(&mut self, message: &Message<'_>) -> Result<(), GuestError> {
        let mut bytes = [0; FRAME_SIZE_MAX];
        let size = message.emit(self.mac, &mut bytes);
        match rustix::net::send(&self.socket, &bytes[..size], SendFlags::empty()) {
            Ok(_) => {
                self.frames.sent += 1;
                Ok(())
            }
            // A card that takes nothing now: the host asks again.
            Err(
                rustix::io::Errno::AGAIN
                | rustix::io::Errno::NOBUFS
                | rustix::io::Errno::INTR
                | rustix::io::Errno::NETDOWN,
            ) => Ok(()),
            Err(errno) => Err(GuestError::device(&self.device, "send by it")(errno.into())),
        }
    }

    fn count(&self) -> io::Result<()> {
        let Some(file) = &self.count_file else { return Ok(()) };
        let Frames { received, sent } = self.frames;
        file.write_all_at(format!("{received:020} {sent:020}\n").as_bytes(), 0)
    }
}
