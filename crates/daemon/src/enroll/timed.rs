//! TCP connections with one deadline for all that is said on them, and lines of a bounded size.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection that fails once its deadline has passed, however slowly its peer speaks.
#[derive(Debug)]
pub(super) struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

/// Reason why no line was read.
#[derive(Debug)]
pub(super) enum LineError {
    /// The peer closed, or the network failed.
    Io(io::Error),
    /// The line is longer than it may be.
    TooLong,
}

impl Timed {
    /// Sets the deadline of a connection.
    pub(super) fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, deadline: Instant::now() + limit }
    }

    /// Sets another deadline.
    pub(super) fn extend(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Calls an error by its cause: the kernel says that there is nothing yet.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into).map_err(timed_out)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads a line of at most `size_max` bytes with its end, and returns it without.
pub(super) fn read_line(from: &mut impl Read, size_max: usize) -> Result<Vec<u8>, LineError> {
    let mut line = Vec::new();
    let mut part = [0; 4096];
    loop {
        let wanted = part.len().min(size_max - line.len());
        if wanted == 0 {
            return Err(LineError::TooLong);
        }
        let read = match from.read(&mut part[..wanted]) {
            Ok(0) => return Err(LineError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(LineError::Io(error)),
        };
        if let Some(end) = part[..read].iter().position(|byte| *byte == b'\n') {
            line.extend(&part[..end]);
            return Ok(line);
        }
        line.extend(&part[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_largest_size_read_longer_refused() {
        let read = |text: &[u8]| read_line(&mut &text[..], 8);
        assert_eq!(read(b"1234567\nrest").unwrap(), b"1234567");
        assert_eq!(read(b"\n").unwrap(), b"");
        assert!(matches!(read(b"12345678\n"), Err(LineError::TooLong)));
        assert!(matches!(read(b"1234567"), Err(LineError::Io(_))), "it has no end");
    }

    #[test]
    fn connection_past_deadline_neither_read_nor_written() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut timed = Timed::new(stream, Duration::ZERO);
        assert_eq!(timed.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(timed.write(&[0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        timed.extend(Duration::from_millis(20));
        assert_eq!(timed.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        timed.extend(Duration::from_secs(10));
        assert_eq!(timed.write(&[0]).unwrap(), 1);
    }
}
