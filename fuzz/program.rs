//! The modules of the program that the fuzz targets test. They are included by path because the
//! program is not a library.

#[path = "../src/ui/failure.rs"]
mod failure;

/// The part of the program's `ui` module that the configuration depends on.
pub mod ui {
    pub use super::failure::Failure;
}

#[path = "../src/config/mod.rs"]
pub mod config;
