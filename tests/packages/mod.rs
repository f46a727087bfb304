//! Debian's package, of the binary under test: what is in it, and its life on a Debian of its own, whose systemd is the first process
//! of namespaces of its own.

mod debian;
mod life;
mod made;
