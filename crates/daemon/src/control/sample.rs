//! Samples: the answers of data, of the fabric and of the configuration, by the requests of
//! `sluice show` and `sluice fabric status`. `/metrics`, `/healthz` and `sluice status` are made of
//! them.

use std::path::Path;
use std::time::{Duration, Instant};

use sluice_api::client::{is_busy, while_busy};
use sluice_api::config::{HostConfig, Role};
use sluice_api::fabric;
use sluice_api::show::{Answer, Question};
use sluice_api::transaction;

use super::show::{Front, Known};
use crate::configuration::Configuration;
use crate::fabric::Fabric;
use crate::ipc::protocol::{self, Request};
use crate::metrics::{DataAnswers, FabricAnswers, Sample, Stage};
use crate::telemetry;

/// Longest time for all answers of the data process.
const DATA_MAX: Duration = Duration::from_secs(4);
/// Longest time for the answer about the configuration.
const CONFIGURATION_MAX: Duration = Duration::from_secs(3);

/// Facts of a host's configuration that the answers do not have.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Name of the host.
    pub(super) host: String,
    role: Role,
    lossless: [bool; 8],
}

impl Facts {
    /// Returns those of a configuration. They change with another data process only, which control
    /// does not survive.
    pub(super) fn of(config: &HostConfig) -> Self {
        let mut lossless = [true; 8];
        for class in &config.classes {
            if let Some(is_so) = lossless.get_mut(usize::from(class.priority)) {
                *is_so = class.lossless;
            }
        }
        Self { host: config.host.name.clone(), role: config.host.role, lossless }
    }
}

/// Asks all that know something of the host.
pub(super) fn sample(front: &Front) -> Sample {
    let began = Instant::now();
    // Before the sources: they may come meanwhile, and then nothing is asked of this.
    let stage = front.stage();
    let mut sample = match front.known() {
        Err(why) => Sample {
            host: front.host().to_owned(),
            role: Role::default(),
            lossless: [true; 8],
            stage,
            data: Err(why),
            fabric: None,
            configuration: None,
            traces: telemetry::counts(),
            took: Duration::ZERO,
        },
        Ok(known) => sample_of(known, began),
    };
    sample.took = began.elapsed();
    sample
}

fn sample_of(known: &Known, began: Instant) -> Sample {
    let Facts { host, role, lossless } = &known.facts;
    Sample {
        host: host.clone(),
        role: *role,
        lossless: *lossless,
        stage: Stage::Works,
        data: ask_data(&known.run_dir, began + DATA_MAX).map(Box::new),
        fabric: known.fabric.as_ref().map(ask_fabric),
        configuration: known.configuration.as_ref().map(ask_configuration),
        traces: telemetry::counts(),
        took: Duration::ZERO,
    }
}

/// Returns true if a data process answers.
pub(super) fn forwards(run_dir: &Path) -> bool {
    ask_question(run_dir, Question::Worker, Instant::now() + DATA_MAX).is_ok()
}

/// Asks the data process, until a moment. The first question that is not answered is the last one.
fn ask_data(run_dir: &Path, until: Instant) -> Result<DataAnswers, String> {
    let ask = |question| {
        let is_busy = |why: &String| is_busy(why);
        while_busy(until, is_busy, || ask_question(run_dir, question, until))
    };
    Ok(DataAnswers {
        ports: ask(Question::Ports)?,
        queues: ask(Question::Queues)?,
        drops: ask(Question::Drops)?,
        audit: ask(Question::Audit)?,
        pauses: ask(Question::Pauses)?,
        tunnels: ask(Question::Tunnels)?,
        worker: ask(Question::Worker)?,
    })
}

fn ask_question(run_dir: &Path, question: Question, until: Instant) -> Result<Answer, String> {
    let line = protocol::connect_now(run_dir).and_then(|data| {
        // Zero would be no limit.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        data.set_read_timeout(Some(left))?;
        data.set_write_timeout(Some(left))?;
        protocol::ask(data, &Request::Show(question))
    });
    let line = line.map_err(|error| protocol::silence(&error))?;
    protocol::expect(&line).map_err(|error| format!("{error:#}"))
}

fn ask_fabric(fabric: &Fabric) -> Result<FabricAnswers, String> {
    let fabric::Answer::Members(members) = fabric.answer(fabric::Question::Members)? else {
        return Err("the fabric answers another question".to_owned());
    };
    let answer = fabric.answer(fabric::Question::Certificates)?;
    let fabric::Answer::Certificates(certificates) = answer else {
        return Err("the fabric answers another question".to_owned());
    };
    let fabric::Answer::Rivals(rivals) = fabric.answer(fabric::Question::Rivals)? else {
        return Err("the fabric answers another question".to_owned());
    };
    // A speaker with much to do is late: the others are known all the same.
    let evpn = match fabric.answer(fabric::Question::Evpn) {
        Ok(fabric::Answer::Evpn(evpn)) => evpn,
        _ => None,
    };
    Ok(FabricAnswers { members, certificates, rivals, evpn })
}

fn ask_configuration(configuration: &Configuration) -> Result<Box<transaction::Status>, String> {
    match configuration.ask_within(transaction::Question::Status, CONFIGURATION_MAX)? {
        transaction::Answer::Status(status) => Ok(status),
        _ => Err("the configuration answers another question".to_owned()),
    }
}

#[cfg(test)]
pub(super) mod tests;
