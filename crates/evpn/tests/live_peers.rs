//! The speaker with genuine peers: FRR and GoBGP.

#[path = "peers/frr.rs"]
mod frr;
#[path = "peers/gobgp.rs"]
mod gobgp;
#[path = "peers/lab.rs"]
mod lab;
