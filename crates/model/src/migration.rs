//! Volumes on their way from one map to another.

use crate::text::shown;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Whether a migration goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigrationStage {
    /// What is fenced is taken over, in the background too.
    Running,
    /// Only what clients touch of what is fenced is taken over.
    Paused,
}

/// A text isn't a stage's name. Of a long text the beginning is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a state of a migration")]
pub struct MigrationStageError(String);

impl fmt::Display for MigrationStage {
    /// As users and SQL see it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MigrationStage::Running => "running",
            MigrationStage::Paused => "paused",
        })
    }
}

impl FromStr for MigrationStage {
    type Err = MigrationStageError;

    fn from_str(text: &str) -> Result<Self, MigrationStageError> {
        let stages = [MigrationStage::Running, MigrationStage::Paused];
        let named = stages.into_iter().find(|stage| stage.to_string() == text);
        named.ok_or_else(|| MigrationStageError(shown(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_read_back_as_they_print() {
        for stage in [MigrationStage::Running, MigrationStage::Paused] {
            assert_eq!(stage.to_string().parse(), Ok(stage));
        }
        assert_eq!(
            "Paused".parse::<MigrationStage>().unwrap_err().to_string(),
            "'Paused' is not a state of a migration"
        );
    }
}
