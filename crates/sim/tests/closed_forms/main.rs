//! The simulator beside closed forms: rates, queues and waits that can be computed by hand.
//!
//! Each expectation is derived in its test from the scenario's own numbers. A tolerance is stated
//! where the form is asymptotic or the scenario is random.

mod frames;
mod network;
mod observer;
mod rings;
mod sharing;
mod timeouts;
mod vegas;
mod waits;
mod windows;
