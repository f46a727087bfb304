//! The tepal binary.

fn main() {}
