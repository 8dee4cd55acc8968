//! What is run.
