//! One drive: label, log, physical map, space and scrub, over an injected device.

pub mod world;
