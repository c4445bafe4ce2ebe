//! A worker: answers every request at once, and ends when its standard input does.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::{HEAD_BYTES, REQUEST_BYTES, socket};

/// The longest piece of an answer that is written at once.
const CHUNK: usize = 1 << 20;

/// Runs a worker. It prints `ready` once it listens.
///
/// # Errors
///
/// The worker cannot listen on its address.
pub(crate) fn run(address: Ipv4Addr, port: u16, congestion: &str) -> anyhow::Result<()> {
    let _service = Service::start(address, port, congestion)?;
    println!("ready");
    // The parent program holds the other end of standard input: this process ends with it.
    let mut sink = [0; 64];
    let mut input = std::io::stdin();
    while input.read(&mut sink)? > 0 {}
    Ok(())
}

/// The service that answers requests, in threads of its own, until the process ends.
#[derive(Debug)]
pub(super) struct Service {
    congestion: Arc<Mutex<String>>,
}

impl Service {
    /// Starts to listen.
    pub(super) fn start(address: Ipv4Addr, port: u16, congestion: &str) -> anyhow::Result<Self> {
        let listener = socket::listener(address, port, congestion)?;
        let congestion = Arc::new(Mutex::new(congestion.to_owned()));
        let service = Self { congestion: Arc::clone(&congestion) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let name = congestion.lock().unwrap_or_else(PoisonError::into_inner).clone();
                thread::spawn(move || {
                    if socket::prepare(&stream, &name).is_ok() {
                        // The aggregator reports a broken connection.
                        let _ = serve(stream);
                    }
                });
            }
        });
        Ok(service)
    }

    /// Sets the congestion control of new connections.
    pub(super) fn change(&self, congestion: &str) {
        let mut name = self.congestion.lock().unwrap_or_else(PoisonError::into_inner);
        congestion.clone_into(&mut name);
    }
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; REQUEST_BYTES];
    let mut chunk = vec![0_u8; CHUNK];
    loop {
        stream.read_exact(&mut request)?;
        let (length, query) = request.split_at(REQUEST_BYTES / 2);
        let mut left = length.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        chunk[..HEAD_BYTES].copy_from_slice(query);
        while left > 0 {
            let now = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
            stream.write_all(&chunk[..now])?;
            left -= now as u64;
        }
    }
}
