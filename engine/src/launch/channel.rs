//! Sends messages through a socket. Each message is a length followed by JSON, and may carry file
//! descriptors.
//!
//! A channel must never wait indefinitely for the other side to read.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Time limit for a send that waits for the other side to read.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of a message in bytes. An argument list and an environment that Linux accepts by
/// default are smaller, even together.
const LARGEST: usize = 16 * 1024 * 1024;
/// Maximum number of descriptors in a message: standard input, output and error.
const DESCRIPTORS: usize = 3;

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
}

impl Channel {
    pub fn new(socket: OwnedFd) -> Self {
        // If the timeout cannot be set, a send could wait forever, but only if the other side is
        // also broken.
        let _ = set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE));
        Self { socket }
    }

    /// Creates both ends of a socket. They are closed when a program is executed.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Self::new(ours), theirs))
    }

    /// Shuts down the sending side. The other side may continue to send.
    pub fn hang_up(&self) {
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Sends one message together with the descriptors `with`.
    pub fn send(&self, message: &impl Serialize, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        if body.len() > LARGEST {
            return Err(Errno::MSGSIZE.into());
        }
        let length = u32::try_from(body.len()).map_err(|_| Errno::MSGSIZE)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !with.is_empty() && !control.push(SendAncillaryMessage::ScmRights(with)) {
            return Err(Errno::MSGSIZE.into());
        }
        let mut text = length.to_ne_bytes().to_vec();
        text.extend_from_slice(&body);
        let mut rest = text.as_slice();
        while !rest.is_empty() {
            match sendmsg(&self.socket, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    control.clear();
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for one message. Returns `None` if the other side has closed the socket.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut fds = Vec::new();
        let mut length = [0; 4];
        if !self.fill(&mut length, &mut fds)? {
            return Ok(None);
        }
        let length = u32::from_ne_bytes(length) as usize;
        if length > LARGEST {
            return Err(Errno::MSGSIZE.into());
        }
        let mut body = vec![0; length];
        if !self.fill(&mut body, &mut fds)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some((serde_json::from_slice(&body)?, fds)))
    }

    /// Fills `buffer`. Returns `false` if the stream ends before the first byte. Appends received
    /// descriptors to `fds`.
    fn fill(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<bool> {
        let mut at = 0;
        while at < buffer.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut buffer[at..])],
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            );
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    fds.extend(received);
                }
            }
            match received {
                Ok(received) if received.bytes == 0 && at == 0 => return Ok(false),
                Ok(received) if received.bytes == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(received) => at += received.bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn large_messages_and_descriptors_arrive() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::new(theirs);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"hello").unwrap();
        let long = "x".repeat(1_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ours.send(&long, &[file.as_fd()]).unwrap();
                ours.send(&"end", &[]).unwrap();
                ours.hang_up();
            });
            let (text, mut fds) = theirs.receive::<String>().unwrap().unwrap();
            assert_eq!((text.len(), fds.len()), (1_000_000, 1));
            let mut received = std::fs::File::from(fds.remove(0));
            received.rewind().unwrap();
            let mut text = String::new();
            received.read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello");
            assert_eq!(theirs.receive::<String>().unwrap().unwrap().0, "end");
            assert!(theirs.receive::<String>().unwrap().is_none());
        });
    }
}
