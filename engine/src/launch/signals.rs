//! Delivers signals through a descriptor, so that a loop can wait for signals and other descriptors
//! together.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// A descriptor that becomes readable when a signal arrives.
#[derive(Debug)]
pub(super) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    pub fn catch(which: &[i32]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        SignalDelivery::with_pipe(read, write, SignalOnly, which).map(Self)
    }

    /// Returns the signals that have arrived since the last call.
    pub fn take(&mut self) -> Vec<i32> {
        self.0.pending().collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}
