//! Traces as text, and the comparison of two traces.
//!
//! `crates/sim/tests/tcp_kernel` reads this format; `docs/tcp-oracles.md` describes it.

use std::fmt::Write;

use crate::relay::{Entry, What};
use crate::scenarios::{Acks, DELAY_MS, MSS, Scenario};

/// Gaps of this length or more between two segments come from a timer.
const TIMER_MS_MIN: u64 = 100;
/// The kernel's timer wheel is coarser for longer timers: by this part of their time.
const WHEEL: u64 = 8;

/// Returns the first difference of two runs of a scenario; `None` if they agree. Each direction is
/// compared by itself, because the order of two segments that cross depends on the machine. Gaps
/// between segments are compared, not absolute times, because after a timer all later times shift.
pub(crate) fn difference(a: &[Entry], b: &[Entry], spread_ms_max: u64) -> Option<String> {
    for data in [true, false] {
        let mut a = a.iter().filter(|entry| entry.is_data() == data);
        let mut b = b.iter().filter(|entry| entry.is_data() == data);
        let mut before = (0, 0);
        loop {
            let (a, b) = (a.next(), b.next());
            let (Some(x), Some(y)) = (a, b) else {
                if a.is_none() && b.is_none() {
                    break;
                }
                return Some(text(a, b));
            };
            let steps = (x.at_ms().abs_diff(before.0), y.at_ms().abs_diff(before.1));
            let is_timer = steps.0 >= TIMER_MS_MIN;
            let slack_ms = if is_timer { steps.0 / WHEEL } else { 0 };
            let far = steps.0.abs_diff(steps.1) > spread_ms_max + slack_ms;
            if x.what != y.what || x.lost != y.lost || far {
                return Some(text(a, b));
            }
            before = (x.at_ms(), y.at_ms());
        }
    }
    None
}

fn text(a: Option<&Entry>, b: Option<&Entry>) -> String {
    let line = |entry: Option<&Entry>| entry.map_or("nothing".to_owned(), line);
    format!("`{}`, `{}`, or the time before them", line(a).trim(), line(b).trim())
}

/// Returns the run that ended first: the machine disturbed it least.
pub(crate) fn fastest(mut runs: Vec<Vec<Entry>>) -> Vec<Entry> {
    runs.sort_by_key(|run| run.last().map(|entry| entry.at));
    runs.swap_remove(0)
}

/// Renders a golden as text.
pub(crate) fn render(scenario: &Scenario, entries: &[Entry], kernel: &str, date: &str) -> String {
    let mut text = String::new();
    let on = |yes| if yes { "on" } else { "off" };
    let acks = match scenario.acks {
        Acks::Each => "each",
        Acks::Delayed => "delayed",
        Acks::Quick => "quick",
    };
    let mut put = |key: &str, value: &str| {
        writeln!(text, "{key}: {value}").expect("a string takes all");
    };
    put("about", scenario.about);
    put("algorithm", scenario.algorithm);
    put("sack", on(scenario.sack));
    put("acks", acks);
    put("mss", &MSS.to_string());
    put("initial_window", &scenario.initial_window.to_string());
    put("delay_ms", &DELAY_MS.to_string());
    for (at_ms, bytes) in &scenario.sends {
        put("send", &format!("{bytes} at {at_ms} ms"));
    }
    for (seq, times) in &scenario.lost_data {
        let times: Vec<String> = times.iter().map(u32::to_string).collect();
        put("lose", &format!("data {seq}, transmission {}", times.join(" ")));
    }
    for number in &scenario.lost_acks {
        put("lose", &format!("ack number {number}"));
    }
    put("kernel", kernel);
    put("date", date);
    for deviation in &scenario.deviations {
        put("deviation", deviation);
    }
    text.push('\n');
    for entry in entries {
        text.push_str(&line(entry));
        text.push('\n');
    }
    text
}

fn line(entry: &Entry) -> String {
    let mut line = format!("{:5}  ", entry.at_ms());
    match &entry.what {
        What::Data { seq, size, again } => {
            write!(line, "data {seq:6} +{size}{}", if *again { " again" } else { "" })
        }
        What::Ack { ack, sack } => {
            let blocks: String =
                sack.iter().map(|(first, end)| format!(" {first}-{end}")).collect();
            let word = if sack.is_empty() { "" } else { " sack" };
            write!(line, "     ack {ack:6}{word}{blocks}")
        }
    }
    .expect("a string takes all");
    if entry.lost {
        line.push_str(" LOST");
    }
    line
}
