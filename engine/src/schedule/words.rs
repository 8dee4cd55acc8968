//! Triggers in plain words.
