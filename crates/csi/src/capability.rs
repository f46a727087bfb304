//! How a volume is to be used: which access modes and filesystems there are.

use crate::failure::Failure;
use crate::spec::VolumeCapability;
use crate::spec::volume_capability::AccessType;
use crate::spec::volume_capability::access_mode::Mode;

/// What a filesystem is made of if nobody says which.
const DEFAULT: Filesystem = Filesystem::Ext4;

/// Filesystems that volumes can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
}

impl Filesystem {
    /// As `mount` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
        }
    }

    /// Bytes that a device has to have for one to be made.
    pub fn least(self) -> u64 {
        match self {
            Filesystem::Ext4 => 0,
            // What `mkfs.xfs` asks for from xfsprogs 5.19 on.
            Filesystem::Xfs => 300 << 20,
        }
    }

    /// By what `mount` calls it.
    pub fn called(name: &str) -> Option<Filesystem> {
        [Filesystem::Ext4, Filesystem::Xfs].into_iter().find(|one| one.name() == name)
    }
}

/// What the volume is on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device as it is.
    Block,
    /// A mounted filesystem.
    Mount {
        /// Which one is wanted; none: whichever is there.
        filesystem: Option<Filesystem>,
        /// Options of `mount`.
        flags: Vec<String>,
    },
}

/// One way to use a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What it is on a machine.
    pub kind: Kind,
    /// Whether nobody writes.
    pub read_only: bool,
    /// Whether several machines may have it at a time.
    pub shared: bool,
    /// Whether only one place of a machine may have it.
    pub single: bool,
}

impl Capability {
    /// # Errors
    ///
    /// If there's no such way.
    pub fn of(asked: &VolumeCapability) -> Result<Capability, Failure> {
        let kind = match &asked.access_type {
            None => return Err(Failure::invalid("the volume capability says neither block nor mount")),
            Some(AccessType::Block(_)) => Kind::Block,
            Some(AccessType::Mount(mount)) => {
                Kind::Mount { filesystem: filesystem(&mount.fs_type)?, flags: mount.mount_flags.clone() }
            }
        };
        let mode = asked.access_mode.as_ref().map_or(Mode::Unknown, |mode| mode.mode());
        let (read_only, shared, single) = match mode {
            Mode::SingleNodeWriter | Mode::SingleNodeMultiWriter => (false, false, false),
            Mode::SingleNodeSingleWriter => (false, false, true),
            Mode::SingleNodeReaderOnly => (true, false, false),
            Mode::MultiNodeReaderOnly => (true, true, false),
            Mode::MultiNodeMultiWriter if kind == Kind::Block => (false, true, false),
            Mode::MultiNodeMultiWriter => {
                return Err(Failure::invalid(
                    "the access mode MULTI_NODE_MULTI_WRITER is for raw block volumes: a filesystem that several machines write to is \
                     destroyed",
                ));
            }
            Mode::MultiNodeSingleWriter => {
                return Err(Failure::invalid(
                    "there is no access mode MULTI_NODE_SINGLE_WRITER: which of the machines writes would be nobody's to say",
                ));
            }
            Mode::Unknown => {
                return Err(Failure::invalid("the volume capability says no access mode that is known here"));
            }
        };
        Ok(Capability { kind, read_only, shared, single })
    }

    /// The one that has to be there.
    ///
    /// # Errors
    ///
    /// If it isn't, or there's no such way.
    pub fn required(asked: Option<&VolumeCapability>) -> Result<Capability, Failure> {
        Capability::of(asked.ok_or_else(|| Failure::invalid("the volume capability is missing"))?)
    }

    /// Those of which there has to be one.
    ///
    /// # Errors
    ///
    /// If there's none, or one isn't possible.
    pub fn all(asked: &[VolumeCapability]) -> Result<Vec<Capability>, Failure> {
        match asked {
            [] => Err(Failure::invalid("the volume capabilities are missing")),
            asked => asked.iter().map(Capability::of).collect(),
        }
    }
}

fn filesystem(name: &str) -> Result<Option<Filesystem>, Failure> {
    match name {
        "" => Ok(None),
        name => Filesystem::called(name)
            .map(Some)
            .ok_or_else(|| Failure::invalid(format!("the filesystem '{name}' isn't one of ext4 and xfs"))),
    }
}

/// What is made of a blank device.
pub fn to_make(wanted: Option<Filesystem>) -> Filesystem {
    wanted.unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::volume_capability::{AccessMode, BlockVolume, MountVolume};
    use tonic::Code;

    fn asked(mode: Mode, fs_type: Option<&str>) -> VolumeCapability {
        let mount =
            |fs_type: &str| AccessType::Mount(MountVolume { fs_type: fs_type.to_owned(), ..Default::default() });
        VolumeCapability {
            access_type: Some(fs_type.map_or(AccessType::Block(BlockVolume {}), mount)),
            access_mode: Some(AccessMode { mode: mode.into() }),
        }
    }

    #[test]
    fn writers_on_several_machines_are_refused_by_name_unless_block() {
        for (mode, fs_type, word) in [
            (Mode::MultiNodeMultiWriter, Some("ext4"), "MULTI_NODE_MULTI_WRITER"),
            (Mode::MultiNodeSingleWriter, Some(""), "MULTI_NODE_SINGLE_WRITER"),
            (Mode::MultiNodeSingleWriter, None, "MULTI_NODE_SINGLE_WRITER"),
            (Mode::Unknown, None, "access mode"),
            (Mode::SingleNodeWriter, Some("vfat"), "'vfat'"),
        ] {
            let refused = Capability::of(&asked(mode, fs_type)).expect_err("refused");
            assert_eq!(refused.code, Code::InvalidArgument);
            assert!(refused.message.contains(word), "{refused}");
        }
        let shared = Capability::of(&asked(Mode::MultiNodeMultiWriter, None)).expect("possible");
        assert_eq!((shared.shared, shared.read_only), (true, false));
    }

    #[test]
    fn one_writer_of_one_place_and_readers_of_many_are_told_apart() {
        let of = |mode| Capability::of(&asked(mode, Some("xfs"))).expect("possible");
        let all = [
            Mode::SingleNodeWriter,
            Mode::SingleNodeSingleWriter,
            Mode::SingleNodeReaderOnly,
            Mode::MultiNodeReaderOnly,
        ];
        let told = all.map(of).map(|one| (one.read_only, one.shared, one.single));
        assert_eq!(told, [(false, false, false), (false, false, true), (true, false, false), (true, true, false)]);
    }
}
