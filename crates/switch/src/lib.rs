//! Placeholder of the core; the surface types are final.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
mod config;
mod surface;
pub use config::*;
pub use surface::*;
