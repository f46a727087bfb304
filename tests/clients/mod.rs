//! Programs of others that speak NBD: each sees a volume that does what NBD says.

mod crowd;
mod fio;
mod libnbd;
mod qemu;
