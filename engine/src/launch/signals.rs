//! Signals as a descriptor, so that a loop can wait for signals and other descriptors together.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A descriptor that becomes readable when a signal arrives.
#[derive(Debug)]
pub(super) struct Signals {
    caught: Vec<(i32, UnixStream)>,
    any: UnixStream,
}

impl Signals {
    pub fn catch(which: &[i32]) -> io::Result<Self> {
        let (any, bell) = UnixStream::pair()?;
        any.set_nonblocking(true)?;
        let mut caught = Vec::new();
        for signal in which {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(*signal, theirs)?;
            signal_hook::low_level::pipe::register(*signal, bell.try_clone()?)?;
            caught.push((*signal, ours));
        }
        Ok(Self { caught, any })
    }

    /// Returns the signals that arrived since the last call.
    pub fn take(&self) -> Vec<i32> {
        let mut sink = [0; 64];
        while matches!((&self.any).read(&mut sink), Ok(n) if n > 0) {}
        let came = self.caught.iter().filter(|(_, pipe)| {
            let mut came = false;
            while matches!((&*pipe).read(&mut [0; 64]), Ok(n) if n > 0) {
                came = true;
            }
            came
        });
        came.map(|(signal, _)| *signal).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }
}
