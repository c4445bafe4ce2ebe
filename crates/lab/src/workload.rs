//! The workload: processes in containers, which last for the run, and virtual machines, which last
//! as long as the daemons of one policy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use crate::counters::{self, Counters};
use crate::guests::Guests;
use crate::lab::Lab;
use crate::pa::processes::{Aggregator, Role, workers};
use crate::pa::{Job, Report};
use crate::plan::Container;

/// Time limit of a single job.
const PATIENCE: Duration = Duration::from_secs(600);

/// The processes and the virtual machines of the workload.
pub(crate) struct Workload {
    program: PathBuf,
    congestion: String,
    workers: Vec<Role>,
    aggregator: Option<Aggregator>,
    guests: Guests,
}

impl Workload {
    /// Starts the workers of all containers.
    pub(crate) fn start(lab: &mut Lab, program: &Path) -> anyhow::Result<Self> {
        let mut workload = Self {
            program: program.to_owned(),
            congestion: lab.scenario.tcp.congestion.clone(),
            workers: Vec::new(),
            aggregator: None,
            guests: Guests::default(),
        };
        workload.start_workers(lab)?;
        Ok(workload)
    }

    fn start_workers(&mut self, lab: &mut Lab) -> anyhow::Result<()> {
        let containers: Vec<&Container> =
            lab.plan.containers.iter().filter(|machine| !machine.is_vm).collect();
        self.workers = workers(&containers, &mut lab.state, &self.program, &self.congestion)?;
        Ok(())
    }

    /// Boots the virtual machines. The daemons must run.
    pub(crate) fn boot(&mut self, lab: &mut Lab) -> anyhow::Result<()> {
        self.guests = Guests::boot(lab, &self.program)?;
        self.guests.serve(&lab.plan, &self.congestion)
    }

    /// Switches the virtual machines off, before the daemons end.
    pub(crate) fn switch_off(&mut self, lab: &mut Lab) -> anyhow::Result<()> {
        std::mem::take(&mut self.guests).stop(&mut lab.state)
    }

    /// Sets the congestion control of new connections.
    pub(crate) fn use_congestion(&mut self, lab: &mut Lab, name: &str) -> anyhow::Result<()> {
        if self.congestion == name {
            return Ok(());
        }
        name.clone_into(&mut self.congestion);
        // The old workers end first: the new ones listen at the same addresses.
        self.workers.clear();
        self.start_workers(lab)?;
        self.guests.serve(&lab.plan, name)
    }

    /// Runs one job in one container or virtual machine.
    pub(crate) fn ask(
        &mut self,
        lab: &mut Lab,
        asks: &Container,
        job: &Job,
    ) -> anyhow::Result<Report> {
        if let Some(agent) = self.guests.agent(&asks.name) {
            return agent.run(job, PATIENCE, &mut |_| {});
        }
        let mut aggregator = Aggregator::start(asks, &mut lab.state, &self.program)?;
        aggregator.run(job, PATIENCE, &mut |_| {})
    }

    /// Starts a job in a virtual machine; [`Self::end`] waits for its end.
    pub(crate) fn begin(&mut self, asks: &Container, job: &Job) -> anyhow::Result<()> {
        self.guests.agent(&asks.name).context("no such virtual machine runs")?.begin(job)
    }

    /// Waits for the end of a virtual machine's job.
    pub(crate) fn end(&mut self, asks: &Container, patience: Duration) -> anyhow::Result<Report> {
        let agent = self.guests.agent(&asks.name).context("no such virtual machine runs")?;
        agent.end(patience, &mut |_| {})
    }

    /// Starts the aggregator of the queries, if it is a container and does not run yet.
    pub(crate) fn start_aggregator(&mut self, lab: &mut Lab) -> anyhow::Result<()> {
        let first = &lab.plan.containers[0];
        if !first.is_vm && self.aggregator.is_none() {
            self.aggregator = Some(Aggregator::start(first, &mut lab.state, &self.program)?);
        }
        Ok(())
    }

    /// Runs a job of the aggregator. `progress` gets the number of queries done.
    pub(crate) fn query(
        &mut self,
        lab: &Lab,
        job: &Job,
        silence: Duration,
        progress: &mut dyn FnMut(u32),
    ) -> anyhow::Result<Report> {
        let own = self.aggregator.as_mut();
        let aggregator = own.or_else(|| self.guests.agent(&lab.plan.containers[0].name));
        aggregator.context("there is no aggregator")?.run(job, silence, progress)
    }

    /// Returns the counters of all kernels of containers and virtual machines: repairs, losses.
    pub(crate) fn counters(&mut self) -> anyhow::Result<(Counters, Counters)> {
        // Container 0 may have two processes; each namespace is read once.
        let pids: Vec<u32> = self.workers.iter().filter_map(Role::pid).collect();
        let mut sums = counters::read(&pids);
        self.guests.count(&mut sums)?;
        Ok(sums)
    }
}
