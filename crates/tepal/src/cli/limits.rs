//! How much may be asked for.

use super::value;
use clap::Args;

/// A limit to set, or to take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    No,
    Of(u64),
}

/// What isn't given stays as it is.
#[derive(Debug, Args)]
pub struct LimitsArguments {
    /// Requests a second, or none
    #[arg(long, value_name = "COUNT", value_parser = value::limit)]
    pub iops: Option<Limit>,
    /// Requests that may come at once after a pause [default: a tenth of a second's]
    #[arg(long, value_name = "COUNT", value_parser = value::count)]
    pub iops_burst: Option<u64>,
    /// Bytes a second, read and written together, such as 100M, or none
    #[arg(long, value_name = "SIZE", value_parser = value::limit)]
    pub bandwidth: Option<Limit>,
    /// Bytes that may come at once after a pause [default: a tenth of a second's]
    #[arg(long, value_name = "SIZE", value_parser = value::count)]
    pub bandwidth_burst: Option<u64>,
}
