//! Requests of other threads to a worker, which reads them between two turns.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::SyncSender;

use sluice_api::show::Question;
use sluice_base::{PortId, TunnelId};
use sluice_switch::PortValues;

use super::{Device, MigrationStep, PlaceStep, Step, YieldStep};
use crate::config::BoundTo;
use crate::data::capture::Capture;
use crate::data::look;
use crate::data::ports::{AddResult, PendingPort};
use crate::data::snapshot::Snapshot;

/// Requests of other threads to the worker.
pub(in crate::data) enum WorkerRequest {
    /// A snapshot.
    Show(Question, SyncSender<Snapshot>),
    /// A look at what one frame would use.
    Look(look::StateQuery, SyncSender<look::Seen>),
    /// The next hop of a tunnel became known, or is not known any more.
    NextHop(TunnelId, Option<sluice_base::Mac>),
    /// Something about the device of an underlay.
    Device(Device),
    /// A port comes.
    Add(Box<PendingPort>, SyncSender<AddResult>),
    /// A port goes. The answer is how many frames ended with it.
    Del(PortId, SyncSender<u64>),
    /// A port's machine gets other addresses.
    Rebind(PortId, Box<(BoundTo, PortValues)>, SyncSender<Result<(), String>>),
    /// Asks whether a port is there, and its device too.
    IsOpen(PortId, SyncSender<bool>),
    /// Control attaches by this connection.
    Attach(UnixStream),
    /// A step of moving buckets of a shared underlay. The answer is that it is done.
    Move(Step, SyncSender<()>),
    /// A step of moving a port.
    Migrate(MigrationStep),
    /// A step of a reconfiguration.
    Places(PlaceStep),
    /// A capture begins.
    Capture(Capture),
    /// A capture ends. The answer is its memory.
    CaptureEnd(u64, SyncSender<Option<Capture>>),
    /// A step of handing everything over to another process.
    Yield(YieldStep),
    /// Read nothing more, send what is held, and end.
    Drain,
}
