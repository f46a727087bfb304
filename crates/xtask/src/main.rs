//! The xtask binary.

fn main() {}
