//! The CPUs of the machine as the kernel shows them: [`cpu_list`] reads and writes `0-3,8`,
//! [`topology`] finds siblings and NUMA nodes, and [`machines`] the CPUs of virtual machines.
#![forbid(unsafe_code)]

pub mod cpu_list;
pub mod machines;
pub mod topology;
