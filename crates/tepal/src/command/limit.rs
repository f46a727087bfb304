//! `tepal volume limit` and `tepal identity limit`.

use super::CommandError;
use crate::cli::{Limit, LimitsArguments};
use crate::client::Client;
use crate::output::{self, Output};
use tepal_server::api::types::{IdentityInfo, Limits, Rate, VolumeInfo, path, route};

#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error("a burst is that of a limit: give --{0} too")]
    Burst(&'static str),
    #[error("so many connections can't be counted")]
    Connections,
}

pub fn volume(client: &Client, output: Output, name: &str, asked: &LimitsArguments) -> Result<(), CommandError> {
    let now: VolumeInfo = client.get(&path(route::VOLUME, name))?;
    let limits = changed(now.limits, asked)?;
    let volume: VolumeInfo = match limits == now.limits {
        true => now,
        false => client.post(&path(route::VOLUME_LIMITS, name), &limits)?,
    };
    output.show(&volume, |volume| format!("volume {}: {}", volume.name, said(&volume.limits)))?;
    Ok(())
}

pub fn identity(
    client: &Client,
    output: Output,
    name: &str,
    (asked, connections): (&LimitsArguments, Option<Limit>),
) -> Result<(), CommandError> {
    let all: Vec<IdentityInfo> = client.get(route::IDENTITIES)?;
    let now = all.iter().find(|identity| identity.name == name).map(|identity| identity.limits);
    // Of one that isn't there, the cluster says so.
    let mut limits = changed(now.unwrap_or_default(), asked)?;
    match connections {
        None => {}
        Some(Limit::No) => limits.connections = None,
        Some(Limit::Of(most)) => {
            limits.connections = Some(u32::try_from(most).map_err(|_| LimitError::Connections)?);
        }
    }
    let identity: IdentityInfo = client.post(&path(route::IDENTITY_LIMITS, name), &limits)?;
    output.show(&identity, |identity| format!("identity {}: {}", identity.name, said(&identity.limits)))?;
    Ok(())
}

/// The limits as they are, with what is asked for instead.
fn changed(now: Limits, asked: &LimitsArguments) -> Result<Limits, LimitError> {
    let rate = |now: Option<Rate>, limit: Option<Limit>, burst: Option<u64>, option| {
        let rate = match limit {
            None => now,
            Some(Limit::No) => None,
            Some(Limit::Of(per_second)) => Some(Rate { per_second, burst: now.map_or(0, |now| now.burst) }),
        };
        match (rate, burst) {
            (Some(rate), Some(burst)) => Ok(Some(Rate { burst, ..rate })),
            (None, Some(_)) => Err(LimitError::Burst(option)),
            (rate, None) => Ok(rate),
        }
    };
    Ok(Limits {
        iops: rate(now.iops, asked.iops, asked.iops_burst, "iops")?,
        bandwidth: rate(now.bandwidth, asked.bandwidth, asked.bandwidth_burst, "bandwidth")?,
        connections: now.connections,
    })
}

/// For people.
pub fn said(limits: &Limits) -> String {
    let iops = limits.iops.map(|rate| format!("{} requests a second, {} at once", rate.per_second, rate.bucket()));
    let bandwidth = limits
        .bandwidth
        .map(|rate| format!("{}/s, {} at once", output::size(rate.per_second), output::size(rate.bucket())));
    let connections = limits.connections.map(|most| format!("{most} connections"));
    let all: Vec<String> = iops.into_iter().chain(bandwidth).chain(connections).collect();
    if all.is_empty() { "no limits".to_owned() } else { format!("at most {}", all.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(iops: Option<Limit>, iops_burst: Option<u64>) -> LimitsArguments {
        LimitsArguments { iops, iops_burst, bandwidth: None, bandwidth_burst: None }
    }

    #[test]
    fn what_is_not_asked_for_stays_as_it_is() {
        let bandwidth = Some(Rate { per_second: 1 << 20, burst: 0 });
        let now = Limits { iops: Some(Rate { per_second: 10, burst: 50 }), bandwidth, connections: Some(2) };
        let change = |iops, burst| changed(now, &asked(iops, burst)).ok();
        assert_eq!(change(None, None), Some(now));
        let twenty = Some(Rate { per_second: 20, burst: 50 });
        assert_eq!(change(Some(Limit::Of(20)), None), Some(Limits { iops: twenty, ..now }));
        assert_eq!(change(Some(Limit::No), None), Some(Limits { iops: None, ..now }));
        let burst = Some(Rate { per_second: 10, burst: 7 });
        assert_eq!(change(None, Some(7)), Some(Limits { iops: burst, ..now }));
        assert_eq!(change(Some(Limit::No), Some(7)), None);
    }
}
