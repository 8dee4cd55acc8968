//! Guards that others call: an agent's hook, and answers about a path.
//!
//! None of them is the wall: that is the kernel's, and stands whether or not anybody asks here.

pub mod hook;
pub mod reach;
pub mod shell;
pub mod tools;
