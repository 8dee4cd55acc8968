//! Pure text.
