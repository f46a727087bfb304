//! A volume's health, in a sentence.

use crate::spec::VolumeCondition;
use tepal_server::api::types::{VolumeInfo, VolumeState};

/// As the cluster sees it.
pub fn condition(volume: &VolumeInfo) -> VolumeCondition {
    let (abnormal, state) = match volume.state {
        VolumeState::Healthy => (false, "healthy"),
        VolumeState::Recovering => (false, "copies are being brought up to date"),
        VolumeState::Degraded => (true, "degraded"),
        VolumeState::Unavailable => (true, "unavailable"),
    };
    let message = std::iter::once(state).chain(volume.reason.iter().map(String::as_str)).collect::<Vec<_>>().join("; ");
    VolumeCondition { abnormal, message }
}
