//! A listening socket with a bounded number of conversations at a time.

use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::ipc::protocol::{self, Failure};
use crate::sys::threads::spawn_behind;

/// Conversations at a time.
const CONVERSATIONS_MAX: usize = 16;

/// Accepts until the socket fails, each conversation in a thread of its own. `silence_max` is the
/// longest silence of a client.
pub(crate) fn connections(
    listener: &UnixListener,
    silence_max: Option<Duration>,
    converse: impl Fn(&UnixStream, &mut BufReader<UnixStream>) + Send + Sync + 'static,
) {
    let converse = Arc::new(converse);
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        if open.fetch_add(1, Ordering::Relaxed) >= CONVERSATIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            let error = sluice_api::client::busy(CONVERSATIONS_MAX);
            _ = protocol::write(&stream, &Failure { error });
            continue;
        }
        let (converse, done) = (Arc::clone(&converse), Arc::clone(&open));
        let conversation = move || {
            _ = stream.set_read_timeout(silence_max);
            // A client that does not read its answer is not waited for.
            _ = stream.set_write_timeout(Some(Duration::from_secs(5)));
            if let Ok(reader) = stream.try_clone() {
                converse(&stream, &mut BufReader::new(reader));
            }
            done.fetch_sub(1, Ordering::Relaxed);
        };
        if spawn_behind("conversation", conversation).is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
