//! A member whose state was read: what control begins with, before the thread of the configuration
//! is started.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::Context as _;
use sluice_api::config::{Fabric as FabricTable, HostConfig, LocalConfig, UnderlayKind};
use sluice_api::fabric_config::FabricConfig;
use sluice_api::placement::Stamped;
use sluice_base::HostId;
use sluice_control::commit::{Commit, Config, Formats, Recovered, Seat, Start, Timing};

use super::authority::Keeper;
use super::marker::Marker;
use super::replica::Document;
use super::store::Disk;
use super::thread::compose_own;
use super::{Configuration, EVENTS_MAX, Event, Own};
use crate::config::run_dir;
use crate::enroll::Files;
use crate::fabric::wall;
use crate::sys::clock;

/// A member whose state was read, before it speaks to others.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) own: Own,
    pub(super) disk: Disk,
    pub(super) commit: Commit<Document>,
    /// The fabric as it was known when this host became a member.
    pub(super) bootstrap: FabricConfig,
    pub(super) handle: Configuration,
    pub(super) events: Receiver<Event>,
    pub(super) marker: Marker,
    /// Reason why the host's file is not in force yet.
    pub(super) unfit: Option<String>,
}

impl Opened {
    /// Reads the state of a member.
    ///
    /// # Errors
    /// If it is damaged or cannot be read, with the remedy.
    pub(crate) fn open(own: Own) -> anyhow::Result<Self> {
        let disk = Disk::open(&own.state_dir)?.context("this host is no member of a fabric")?;
        let unusable = |error: &dyn std::fmt::Display| {
            anyhow::anyhow!("the state in {}: {error}", own.state_dir.display())
        };
        let records = disk.records()?;
        let marker = Marker::open(&run_dir(&own.local.host));
        let recovered = Recovered::from_records(records.iter().map(Vec::as_slice))
            .map_err(|error| unusable(&error))?
            .with_mark(marker.read());
        let bootstrap = disk.bootstrap()?.context("the fabric that was joined is not known")?;
        let incarnation = disk.next_start()?;
        let seat = Seat::new(own.place.seat).context("the identity of the disk is zero")?;
        let config = Config {
            host: HostId(own.place.id),
            seat: recovered.seat().unwrap_or(seat),
            incarnation,
            seed: u64::from(own.place.id) << 48 ^ own.place.seat ^ incarnation,
            timing: Timing::default(),
            start: match own.place.is_founder {
                true => Start::Create(Document::new(bootstrap.clone())),
                false => Start::Join,
            },
            formats: Formats::OWN,
        };
        let commit = Commit::new(config, recovered, clock::now());
        let commit = commit.map_err(|error| unusable(&error))?;
        let (sender, events) = sync_channel(EVENTS_MAX);
        let keeper = Arc::new(Keeper::new(Files::of(&own.state_dir), wall()));
        let handle = Configuration { events: sender, heard_bytes: Arc::default(), keeper };
        Ok(Self { own, disk, commit, bootstrap, handle, events, marker, unfit: None })
    }

    /// Returns the handle of other threads. What they say waits until the thread is started.
    pub(crate) fn handle(&self) -> Configuration {
        self.handle.clone()
    }

    /// Returns the configuration of this host.
    ///
    /// # Errors
    /// If this host is no member any more.
    pub(crate) fn config(&self) -> anyhow::Result<HostConfig> {
        compose_own(&self.own, self.shared()).map_err(anyhow::Error::msg)
    }

    /// Returns the configuration of this host with another content of its file, in a fabric.
    ///
    /// # Errors
    /// If this host is no member any more.
    pub(crate) fn config_with(
        &self,
        local: &LocalConfig,
        shared: &FabricConfig,
    ) -> Result<HostConfig, String> {
        compose_own(&Own { local: local.clone(), ..self.own.clone() }, shared)
    }

    /// Returns the kind of the underlay that was named when this host became a member.
    pub(crate) const fn underlay_kind(&self) -> UnderlayKind {
        self.own.place.underlay.kind
    }

    /// Returns true if this host is a member, as far as it was told.
    pub(crate) fn is_member(&self) -> bool {
        let is_there = self.shared().members.contains_key(&self.own.place.name);
        is_there && !self.commit.status().is_removed
    }

    /// Returns true if a table is of this host in this fabric.
    pub(crate) fn is_in(&self, table: &FabricTable) -> bool {
        (table.name.as_str(), table.id) == (self.own.place.fabric.as_str(), self.own.place.id)
    }

    /// Returns the revision that this host begins with.
    pub(crate) fn revision(&self) -> u64 {
        self.commit.revision()
    }

    /// Returns the content of the host's file.
    pub(crate) const fn local(&self) -> &LocalConfig {
        &self.own.local
    }

    /// Returns the directory of the run.
    pub(crate) fn run_dir(&self) -> PathBuf {
        run_dir(&self.own.local.host)
    }

    /// Returns the directory of the state.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.own.state_dir
    }

    /// Notes that the host begins without its file, and why.
    pub(crate) fn begins_without(&mut self, why: String) {
        self.unfit = Some(why);
    }

    /// Returns the placement policy that the configuration has.
    pub(crate) fn placement(&self) -> Option<&Stamped> {
        self.shared().placement.as_ref()
    }

    /// Returns the fabric as far as it is known.
    pub(crate) fn shared(&self) -> &FabricConfig {
        self.commit.replica().map_or(&self.bootstrap, Document::config)
    }
}
