//! How anything runs.
