//! The configuration of a fabric as the document of the commit protocol.

use sluice_api::fabric_config::{
    self as shared, FabricConfig, NotApplicable, Operation, Unreadable, read_change, write_change,
};
use sluice_base::HostId;
use sluice_control::commit::{Key, Member, Refusal, Replica, Role, Seat};

/// The document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document(FabricConfig);

impl Document {
    pub(super) const fn new(config: FabricConfig) -> Self {
        Self(config)
    }

    pub(super) const fn config(&self) -> &FabricConfig {
        &self.0
    }
}

impl Replica for Document {
    fn check(&self, change: &[u8]) -> Result<Vec<Key>, Refusal> {
        let operations = read(change)?;
        self.0.clone().apply(&operations).map_err(unfit)?;
        let mut keys: Vec<Key> =
            operations.iter().flat_map(Operation::keys).map(String::into_bytes).collect();
        keys.sort();
        keys.dedup();
        Ok(keys)
    }

    fn apply(&mut self, change: &[u8]) -> Result<Vec<u8>, Refusal> {
        let inverse = self.0.apply(&read(change)?).map_err(unfit)?;
        Ok(write_change(&inverse))
    }

    fn members(&self) -> Vec<Member> {
        let member = |member: &shared::Member| Member {
            host: HostId(member.id),
            // Checked when the member was added.
            seat: Seat::new(member.seat).unwrap_or_else(|| Seat::new(1).expect("not zero")),
            role: match member.role {
                shared::Role::Auto => Role::Voter,
                shared::Role::Learner => Role::Learner,
                shared::Role::Witness => Role::Witness,
            },
        };
        self.0.members.values().map(member).collect()
    }

    fn snapshot(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("a configuration is plain data")
    }

    fn restore(bytes: &[u8]) -> Result<Self, Refusal> {
        let config: FabricConfig = serde_json::from_slice(bytes)
            .map_err(|error| Refusal::Unfit(format!("this is no configuration: {error}")))?;
        if config.format > shared::FORMAT {
            return Err(Refusal::Unknown(format!("configuration of format {}", config.format)));
        }
        Ok(Self(config))
    }
}

fn read(change: &[u8]) -> Result<Vec<Operation>, Refusal> {
    read_change(change).map_err(|error| match error {
        Unreadable::UnknownOperation(name) => Refusal::Unknown(name),
        other => Refusal::Unfit(other.to_string()),
    })
}

fn unfit(error: NotApplicable) -> Refusal {
    match error.of_other_version() {
        Some(key) => Refusal::Unknown(format!("set {key}")),
        None => Refusal::Unfit(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
