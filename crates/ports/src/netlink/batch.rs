//! Many requests by one system call.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::net::{RecvFlags, SendFlags};

use super::{Netlink, reply};

/// Requests of one call. If all of them fail, their answers fit the socket.
const REQUESTS_MAX: usize = 128;

impl Netlink {
    /// Makes requests in their order, all with these flags. Returns those that failed, by number.
    ///
    /// The kernel answers those that fail, and the last of a call, which is the end.
    ///
    /// # Errors
    /// The socket's: then it is not known which of them were carried out.
    pub(crate) fn tell(
        &mut self,
        requests: Vec<RouteNetlinkMessage>,
        flags: u16,
    ) -> io::Result<Vec<(usize, io::Error)>> {
        let (mut failed, mut first) = (Vec::new(), 0);
        let mut requests = requests.into_iter().peekable();
        let mut bytes = Vec::new();
        while requests.peek().is_some() {
            bytes.clear();
            let began = self.sequence;
            for left in (0..REQUESTS_MAX).rev() {
                let Some(request) = requests.next() else { break };
                self.sequence = self.sequence.wrapping_add(1);
                let mut header = NetlinkHeader::default();
                header.flags = NLM_F_REQUEST | flags;
                if left == 0 || requests.peek().is_none() {
                    header.flags |= NLM_F_ACK;
                }
                header.sequence_number = self.sequence;
                let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
                message.finalize();
                let at = bytes.len();
                bytes.resize(at + message.buffer_len(), 0);
                message.serialize(&mut bytes[at..]);
            }
            rustix::net::send(&self.fd, &bytes, SendFlags::empty())?;
            self.read_failures(began, |number, error| failed.push((first + number, error)))?;
            first += self.sequence.wrapping_sub(began) as usize;
        }
        Ok(failed)
    }

    /// Reads answers up to the last one. `began` is the number before the first request.
    fn read_failures(
        &mut self,
        began: u32,
        mut each: impl FnMut(usize, io::Error),
    ) -> io::Result<()> {
        loop {
            let (_, size) = rustix::net::recv(&self.fd, &mut *self.buffer, RecvFlags::TRUNC)?;
            let got = self.buffer.get(..size).ok_or(io::ErrorKind::InvalidData)?;
            for (sequence, result) in reply::results(got) {
                let number = sequence.wrapping_sub(began).wrapping_sub(1);
                let count = self.sequence.wrapping_sub(began);
                if number >= count {
                    continue; // Left over from a question that timed out.
                }
                if let Err(error) = result {
                    each(number as usize, error);
                }
                if number + 1 == count {
                    return Ok(());
                }
            }
        }
    }
}
