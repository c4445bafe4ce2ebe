//! Arguments of `sluice vport`.

use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_api::fabric;
use sluice_api::port::AllowedIp;
use sluice_daemon::client;

use crate::transaction::ChangeArguments;
use crate::{Asked, ask};

#[derive(Debug, Subcommand)]
pub(crate) enum VportCommand {
    /// All endpoints that this host knows
    List {
        /// Only those of this network
        #[arg(long, value_name = "NAME")]
        vnet: Option<String>,
        #[command(flatten)]
        asked: Asked,
    },
    /// One endpoint, with the claims of all hosts
    Show(Endpoint),
    /// Change the policy of a vport, at all members
    Set(SetArguments),
    /// Leave the policy of a vport to its host and its network again
    Clear {
        #[command(flatten)]
        vport: NamedVport,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// The moves of an endpoint
    History(Endpoint),
    /// Let an endpoint that moved too often move again, at all hosts
    Thaw(Endpoint),
    /// Events, until interrupted
    Watch {
        #[command(flatten)]
        asked: Asked,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Endpoint {
    /// Its MAC or IP address
    endpoint: String,
    /// The network that it is in
    #[arg(long, value_name = "NAME")]
    vnet: Option<String>,
    #[command(flatten)]
    asked: Asked,
}

/// A vport as the configuration names it.
#[derive(Args, Debug)]
pub(crate) struct NamedVport {
    /// The name of its port, at whichever host it is, now or later
    port: String,
    /// The network that it is in
    #[arg(long, value_name = "NAME")]
    vnet: String,
}

#[derive(Args, Debug)]
pub(crate) struct SetArguments {
    #[command(flatten)]
    vport: NamedVport,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    change: ChangeArguments,
}

/// Values of a policy, at least one. Those that are not named stay as they are.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct PolicyArguments {
    /// The rate at which its machine is served, in Mbit/s; `default`: that of its host and network
    #[arg(long, value_name = "MBPS")]
    rate: Option<Choice<u64>>,
    /// The priority of its frames without one, 0 to 7; `default`: that of its host and network
    #[arg(long, value_name = "N")]
    priority: Option<Choice<u8>>,
    /// The addresses or prefixes that it may use beside its own, separated by commas, in place of
    /// its host's list; `none`: no other; `default`: its host's list
    #[arg(long, value_name = "IP,…")]
    allow: Option<Choice<AllowedList>>,
}

/// A value, or the default.
#[derive(Clone, Debug)]
struct Choice<T>(Option<T>);

impl<T: FromStr<Err: ToString>> FromStr for Choice<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "default" => Ok(Self(None)),
            _ => text.parse().map(|value| Self(Some(value))).map_err(|e: T::Err| e.to_string()),
        }
    }
}

/// A list of addresses.
#[derive(Clone, Debug)]
struct AllowedList(Vec<AllowedIp>);

impl FromStr for AllowedList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(Vec::new())),
            _ => text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self),
        }
    }
}

impl PolicyArguments {
    /// Returns the values that are named, by key.
    fn values(&self) -> Vec<(String, Option<Value>)> {
        let list = |list: &AllowedList| {
            Value::Array(list.0.iter().map(|ip| ip.to_string().into()).collect())
        };
        let all = [
            ("service_mbps", self.rate.as_ref().map(|rate| rate.0.map(Value::from))),
            ("priority", self.priority.as_ref().map(|priority| priority.0.map(Value::from))),
            ("allow_ip", self.allow.as_ref().map(|allow| allow.0.as_ref().map(list))),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

pub(crate) fn run(command: VportCommand) -> anyhow::Result<ExitCode> {
    let of = |one: &Endpoint| fabric::Question::Vport {
        vnet: one.vnet.clone(),
        endpoint: one.endpoint.clone(),
    };
    match command {
        VportCommand::List { vnet, asked } => ask(&asked, fabric::Question::Vports { vnet }),
        VportCommand::Show(one) => ask(&one.asked, of(&one)),
        VportCommand::Set(set) => {
            let vport = (set.vport.vnet.as_str(), set.vport.port.as_str());
            set.change.run(client::transaction::of_vport(vport, set.policy.values()))
        }
        VportCommand::Clear { vport, change } => {
            let vport = (vport.vnet.as_str(), vport.port.as_str());
            change.run(client::transaction::cleared(&change.asked().whom(), vport)?)
        }
        VportCommand::History(one) => {
            client::fabric::history(&one.asked.whom(), of(&one), one.asked.json)?;
            Ok(ExitCode::SUCCESS)
        }
        VportCommand::Thaw(Endpoint { vnet, endpoint, asked }) => {
            ask(&asked, fabric::Question::Thaw { vnet, endpoint })
        }
        VportCommand::Watch { asked } => {
            client::fabric::watch(&asked.whom(), asked.json)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
