//! The metadata.
