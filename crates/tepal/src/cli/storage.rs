//! Servers, drives, pools, volumes and the cluster.

use super::LimitsArguments;
use super::value::{self, DrivePlace, Rate};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use tepal_model::{DriveId, Layout, ServerId};
use tepal_server::api::types::{Between, Right, SnapshotName, SourceName};

/// Formats of images that are read, as QEMU calls them.
pub const IMAGE_FORMATS: [&str; 9] = ["raw", "qcow2", "vmdk", "vhdx", "vpc", "vdi", "qcow", "qed", "parallels"];

/// Whether to wait for what goes on after the command was accepted.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArguments {
    /// Wait until it's done, and show how far it is (the default)
    #[arg(long, overrides_with = "no_wait")]
    wait: bool,
    /// Return at once; it goes on in the background
    #[arg(long)]
    no_wait: bool,
}

impl WaitArguments {
    pub fn waits(self) -> bool {
        self.wait || !self.no_wait
    }
}

#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// List the servers
    Ls,
    /// Show one server
    Show {
        /// The server, as s1
        id: ServerId,
    },
    /// Have other servers take what a server's drives hold; it goes on serving meanwhile
    Drain {
        /// The server's id, as s2
        id: ServerId,
        /// Its drives are to hold their share again
        #[arg(long)]
        cancel: bool,
        #[command(flatten)]
        wait: WaitArguments,
    },
    /// Tokens by which servers join a cluster that others can reach, each one server
    #[command(subcommand)]
    Token(TokenCommand),
    /// Take a server without drives out of the cluster for good
    Rm {
        /// The server's id, as s2
        id: ServerId,
    },
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token by which one server may join, and print it
    #[command(
        after_help = "Bring it to the new machine, in a file that others can't read, and start the server there:\n  \
        tepal serve --data /var/lib/tepal --join-token FILE --peers 10.0.0.2:7118 --api 10.0.0.2:7117 --drive /dev/sdb\n\
        Whoever has the token can join a server to the cluster, until it was used or its time is over."
    )]
    Create {
        /// For how many hours it counts, at most 720
        #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=720))]
        hours: u64,
        /// Where the new server reaches the API of servers of the cluster [default: where the server that is asked listens]
        #[arg(long, value_name = "HOST:PORT[,HOST:PORT...]")]
        api: Option<String>,
    },
    /// List the tokens
    Ls,
    /// Have nobody join by a token any more
    Rm {
        /// As `tepal server token ls` prints it
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show the cluster
    Show,
    /// Change what holds for all servers
    Set {
        /// For how long a server may be silent before others take over, as 1500ms or 3s: from 300ms to 60s
        #[arg(long, value_name = "TIME", value_parser = value::milliseconds)]
        lease: u64,
    },
    /// Let somebody use all volumes, those to come too
    Grant {
        /// read; write, which has read; or admin, which has both, and makes volumes
        #[arg(value_parser = value::right)]
        right: Right,
        /// An identity, or a group as @GROUP
        #[arg(value_name = "WHO", value_parser = value::grantee)]
        to: String,
    },
    /// Take away what was granted on all volumes; when this returns, nobody acts by it any more
    Revoke {
        /// An identity, or a group as @GROUP
        #[arg(value_name = "WHO", value_parser = value::grantee)]
        to: String,
    },
    /// List what was granted on all volumes
    Rights,
    /// Begin again with a cluster whose servers have all lost their data folders: its state is on each of its drives
    #[command(
        after_help = "Examples:\n  tepal cluster rebuild --from-drives --dir /var/lib/tepal --drive /dev/sdb --drive /dev/sdc \
        --dry-run\n  tepal cluster rebuild --from-drives --dir ./tepal-dev\n\nIt makes the data folder of one server, which is then \
        started with these drives; the other servers join it with empty folders (--server ID --join ADDR) and bring theirs. Nothing \
        is written to the drives. Of all drives, the latest state counts, so the command is for the server whose drives keep that."
    )]
    Rebuild(RebuildArguments),
}

#[derive(Debug, Args)]
pub struct RebuildArguments {
    /// From the state that is kept on drives; there is no other way
    #[arg(long, required = true)]
    pub from_drives: bool,
    /// A drive, wherever it is now. May be given again [default: those of a development cluster, else this machine's block devices]
    #[arg(long = "drive", value_name = "PATH")]
    pub drives: Vec<PathBuf>,
    /// Which of the cluster's servers this is to be, as s1 [default: the one that had most of these drives]
    #[arg(long, value_name = "ID")]
    pub server: Option<ServerId>,
    /// Where other servers will find this one, as `tepal serve --peers` says it [default: where it was]
    #[arg(long, value_name = "ADDR", value_parser = value::peers)]
    pub peers: Option<String>,
    /// Drives that aren't found will come with their servers: what only they held waits for them
    #[arg(long, conflicts_with = "without_missing")]
    pub partial: bool,
    /// Drives that aren't found are gone for good: what only they held is lost
    #[arg(long)]
    pub without_missing: bool,
    /// Of drives that keep states of different rebuilds, go on with those of this one; 0 is before any. What the others hold is lost
    #[arg(long, value_name = "HISTORY", value_parser = value::history)]
    pub history: Option<u64>,
    /// Only say what is there, and what would be done
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// List the drives
    Ls,
    /// Look for drives that could be added
    Scan,
    /// Take a block device or file into the cluster; what is on it is lost
    Add(AddDriveArguments),
    /// Take a drive out of the cluster for good
    Rm {
        /// The drive's name, or its id, or a beginning of that that no other has
        #[arg(value_parser = value::drive)]
        id: String,
        /// Even if it may hold the last good copy of something
        #[arg(long)]
        force: bool,
    },
    /// Have others take what a drive holds, so that it can be removed; it goes on serving meanwhile
    Drain {
        /// The drive's name, or its id, or a beginning of that that no other has
        #[arg(value_parser = value::drive)]
        id: String,
        /// It's to hold its share again
        #[arg(long)]
        cancel: bool,
        #[command(flatten)]
        wait: WaitArguments,
    },
    /// Keep a drive empty until another one has to be replaced
    Spare {
        /// The drive's name, or its id, or a beginning of that that no other has
        #[arg(value_parser = value::drive)]
        id: String,
        /// It's to hold its share like others
        #[arg(long)]
        cancel: bool,
    },
    /// Give volumes whose layouts name a drive another one in its place; what lies there goes to it while they are in use
    Replace {
        /// The drive's name, or its id, or a beginning of that that no other has
        #[arg(value_parser = value::drive)]
        id: String,
        /// The other one
        #[arg(value_parser = value::drive)]
        by: String,
    },
    /// Call a drive something besides its id
    Name {
        /// The drive's name, or its id, or a beginning of that that no other has
        #[arg(value_parser = value::drive)]
        id: String,
        /// Unique among drives; none takes the name away
        name: Option<String>,
    },
    /// Stop using a drive, as if it had been pulled; `online` brings it back
    Offline {
        /// The drive's name, or its id, or a beginning of that that no other has
        #[arg(value_parser = value::drive)]
        id: String,
    },
    /// Use a drive again that was offline; it catches up on what it missed
    Online {
        /// The drive's name, or its id, or a beginning of that that no other has
        #[arg(value_parser = value::drive)]
        id: String,
    },
    /// Use what a drive's device has been enlarged by, as by `truncate`, `lvextend` or `losetup -c`; it goes on serving
    Grow {
        /// The drive's name, or its id, or a beginning of that that no other has
        #[arg(value_parser = value::drive)]
        id: String,
    },
    /// Show what is on a drive, without a server: label, usage, log, map
    Inspect {
        /// A block device or file
        path: PathBuf,
        /// The device of its log, if that is not on the drive itself
        #[arg(long, value_name = "PATH")]
        log: Option<PathBuf>,
    },
    /// Verify every checksum and invariant of a drive, without a server; status 1 if it's damaged
    Check {
        /// A block device or file
        path: PathBuf,
        /// The device of its log, if that is not on the drive itself
        #[arg(long, value_name = "PATH")]
        log: Option<PathBuf>,
    },
    /// Make an empty device of a drive that no server uses: of a removed one, or of another cluster's. Its data is lost
    Wipe {
        /// A block device or file
        path: PathBuf,
        /// The drive's whole id, to show that it's the right one
        #[arg(long, value_name = "ID")]
        drive: Option<DriveId>,
        /// Even if its label is damaged or of an unknown format, so that its id can't be compared
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub struct AddDriveArguments {
    /// The server that the drive is on, as s1
    pub server: ServerId,
    /// The block device or file, on that server
    pub path: PathBuf,
    /// The pool that it joins
    #[arg(long, value_parser = value::name)]
    pub pool: Option<String>,
    /// Make it first, as a file of this size; nothing else may be there
    #[arg(long, value_name = "SIZE", value_parser = value::drive_size, allow_negative_numbers = true)]
    pub create: Option<u64>,
    /// Even if it carries a filesystem or partitions, which are lost
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Subcommand)]
pub enum LayoutCommand {
    /// Say what a layout outlives, needs and costs; asks no cluster
    #[command(
        after_help = "Examples:\n  tepal layout explain ec:4+2\n  tepal layout explain 'mirror:3;min_copies=2;domain=site'"
    )]
    Explain {
        /// As `volume create` takes it
        #[arg(value_parser = value::layout, allow_hyphen_values = true)]
        layout: Layout,
    },
}

#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// List the pools
    Ls,
    /// Make a pool
    Create(CreatePoolArguments),
    /// Show one pool
    Show {
        /// The pool's name
        #[arg(value_parser = value::name)]
        name: String,
    },
    /// Let somebody use all volumes of a pool, those to come too
    Grant {
        /// The pool's name
        #[arg(value_name = "POOL", value_parser = value::name)]
        name: String,
        /// read; write, which has read; or admin, which has both, and makes volumes there
        #[arg(value_parser = value::right)]
        right: Right,
        /// An identity, or a group as @GROUP
        #[arg(value_name = "WHO", value_parser = value::grantee)]
        to: String,
    },
    /// Take away what was granted on a pool; when this returns, nobody acts by it any more
    Revoke {
        /// The pool's name
        #[arg(value_name = "POOL", value_parser = value::name)]
        name: String,
        /// An identity, or a group as @GROUP
        #[arg(value_name = "WHO", value_parser = value::grantee)]
        to: String,
    },
    /// List what was granted on a pool
    Rights {
        /// The pool's name
        #[arg(value_name = "POOL", value_parser = value::name)]
        name: String,
    },
    /// Have new volumes of a pool encrypted if nothing else is said; those that are there stay as they are
    Set {
        /// The pool's name
        #[arg(value_name = "POOL", value_parser = value::name)]
        name: String,
        /// The name of the key that wraps theirs, which servers have in their --keys folder
        #[arg(long, value_name = "NAME", value_parser = value::name, required_unless_present = "plain")]
        key: Option<String>,
        /// They aren't encrypted any more
        #[arg(long, conflicts_with = "key")]
        plain: bool,
    },
    /// Remove a pool that has no drives and no volumes
    Rm {
        /// The pool's name
        #[arg(value_parser = value::name)]
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct CreatePoolArguments {
    /// The pool's name
    #[arg(value_parser = value::name)]
    pub name: String,
    /// For volumes that are created without a layout
    #[arg(long, value_parser = value::layout, allow_hyphen_values = true)]
    pub layout: Option<Layout>,
    /// New drives to add to it, as SERVER:PATH; what is on them is lost
    #[arg(long, num_args = 1.., value_name = "SERVER:PATH")]
    pub drives: Vec<DrivePlace>,
}

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume; it takes space only as it is written to
    Create(CreateVolumeArguments),
    /// List the volumes
    Ls,
    /// Show one volume
    Show {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
    },
    /// Change a volume's size, also while it is used
    Resize {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
        /// The new size
        #[arg(value_parser = value::size, allow_negative_numbers = true)]
        size: u64,
        /// Allow it to become smaller: what is past the new end is lost
        #[arg(long)]
        shrink: bool,
        /// Shrink it even while clients are connected, an import writes to it or an export reads it: what they have past the new end is
        /// gone
        #[arg(long, requires = "shrink")]
        force: bool,
    },
    /// Let somebody use a volume over TLS
    Grant {
        /// The volume's name
        #[arg(value_name = "VOLUME", value_parser = value::name)]
        name: String,
        /// read; write, which has read; or admin, which has both
        #[arg(value_parser = value::right)]
        right: Right,
        /// An identity, or a group as @GROUP
        #[arg(value_name = "WHO", value_parser = value::grantee)]
        to: String,
    },
    /// Take away what was granted of a volume; when this returns, nobody acts by it any more
    Revoke {
        /// The volume's name
        #[arg(value_name = "VOLUME", value_parser = value::name)]
        name: String,
        /// An identity, or a group as @GROUP
        #[arg(value_name = "WHO", value_parser = value::grantee)]
        to: String,
    },
    /// Cut off the clients of a volume: when this returns, nothing of theirs is written any more. Whoever comes from then on may use it
    Fence {
        /// The volume's name
        #[arg(value_name = "VOLUME", value_parser = value::name)]
        name: String,
        /// Only if it's reserved by this holder
        #[arg(long, value_name = "HOLDER", value_parser = value::name)]
        from: Option<String>,
    },
    /// Hold what clients ask of a volume to so much a second; without options, show the limits
    #[command(
        after_help = "Each server and gateway holds the limits by itself, for all its clients of the volume and its snapshots \
        together: a volume that is used through two of them may have twice as much. Requests past a limit wait, in order.\n\n\
        Examples:\n  tepal volume limit v0 --iops 500 --iops-burst 5000 --bandwidth 50M\n  tepal volume limit v0 --iops none"
    )]
    Limit {
        /// The volume's name
        #[arg(value_name = "VOLUME", value_parser = value::name)]
        name: String,
        #[command(flatten)]
        limits: LimitsArguments,
    },
    /// List what was granted of a volume
    Rights {
        /// The volume's name
        #[arg(value_name = "VOLUME", value_parser = value::name)]
        name: String,
    },
    /// Give a volume another name
    Rename {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
        /// The name that it gets
        #[arg(value_parser = value::name)]
        new_name: String,
    },
    /// Have the key of an encrypted volume wrapped by another key; what's stored of the volume stays as it is
    #[command(
        after_help = "The server that is asked needs both keys. Clones of the volume have the same key, each wrapped by itself. \
        Drives may have what the volume's key was wrapped as before for a while: whoever had the earlier key and such a copy could read \
        the volume."
    )]
    Rekey {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
        /// The other key's name
        #[arg(value_parser = value::name)]
        key: String,
    },
    /// Make a volume that begins with what a snapshot holds; nothing is copied, and each goes on by itself
    #[command(
        after_help = "The new volume has the snapshot's size, and is on the same drives. The snapshot, its volume and the \
        clone can be removed in any order: what the others hold stays."
    )]
    Clone {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAP", value_parser = value::snapshot)]
        snapshot: SnapshotName,
        /// The new volume's name
        #[arg(value_name = "NEW", value_parser = value::name)]
        name: String,
    },
    /// Remove a volume and all that is on it; clones of it stay
    Rm {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
        /// Even while it or a snapshot of it is in use, by clients or by an export, import or comparison: they get errors from then on
        #[arg(long)]
        force: bool,
        /// With its snapshots; one that has some stays otherwise
        #[arg(long)]
        snapshots: bool,
        #[command(flatten)]
        wait: WaitArguments,
    },
    /// Give a volume another layout, or the drives of another pool, while it's used: its data goes there, a part at a time
    #[command(after_help = "Examples:\n  tepal volume relayout v0 --layout mirror:2\n  \
        tepal volume relayout v0 --layout 'mirror:3;extent=4K' --rate 50M --no-wait\n  \
        tepal volume relayout v0 --pool fast\n  \
        tepal volume relayout v0 --range 0..10G --layout mirror:3\n\n\
        A range has a layout of its own; `volume show` lists them. It begins and ends at a multiple of 4M, or of more if an extent of one \
        of the layouts doesn't divide that; one that ends with the volume (`10G..`) goes on as far as the volume grows. \
        Snapshots go along, and so do clones, with which it shares its data. Ctrl-C ends the command, not the work: \
        `pause`, `resume`, `rate` and `cancel` are for that, and `migrations` lists what is under way.")]
    #[command(group(ArgGroup::new("to").required(true).multiple(true)))]
    Relayout {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
        /// How its data shall be kept: as of `create`
        #[arg(long, value_parser = value::layout, allow_hyphen_values = true, group = "to")]
        layout: Option<Layout>,
        /// Whose drives shall hold it
        #[arg(long, value_parser = value::name, group = "to")]
        pool: Option<String>,
        /// Only these bytes, as 0..10G or 10G..
        #[arg(long, value_name = "A..B", value_parser = value::between)]
        range: Option<Between>,
        #[command(flatten)]
        way: WayArguments,
    },
    /// Have a clone share no data with other volumes any more, by copying what it shares
    #[command(
        after_help = "Examples:\n  tepal volume flatten test\n  tepal volume flatten test --rate 50M --no-wait\n\n\
        It goes on like a change of layout, while the clone and the others are used: `pause`, `resume`, `rate` and `cancel` are for that, \
        and `migrations` lists what is under way. Its snapshots go along. What the others have stays where it is."
    )]
    Flatten {
        /// The clone's name, or that of what it's a clone of
        #[arg(value_parser = value::name)]
        name: String,
        #[command(flatten)]
        way: WayArguments,
    },
    /// List the volumes that are on their way: to another layout or pool, or to share no data any more
    Migrations,
    /// Have a change of layout or pool, a flatten, or a live import rest
    Pause {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
    },
    /// Have what rests go on; a live import that was cancelled too
    Resume {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
    },
    /// Keep a volume on its way to so many bytes a second
    Rate {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
        /// As 50M, copies not counted; or `auto` for as much as clients leave
        #[arg(value_name = "BYTES|auto", value_parser = value::rate, allow_negative_numbers = true)]
        rate: Rate,
    },
    /// Call a change of layout or pool, or a flatten, off: what has gone comes back. Of a live import: let go of the old place
    Cancel {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
        #[command(flatten)]
        wait: WaitArguments,
    },
    /// Have what is left of a volume served as it is, where only drives that failed had all that was acknowledged
    #[command(
        after_help = "Examples:\n  tepal volume accept-loss test\n  tepal volume accept-loss test --force --shown 5f3a0c1d9e42\n\n\
        Without --force it changes nothing, and names the bytes of this volume that are concerned. With --force, the newest older copies of \
        these bytes are served from then on. Where an erasure code has fewer fragments left than it needs, the bytes become zeros, and what \
        could still be read there is removed too.\n\n\
        The same happens in the volume's snapshots, its origin and its clones, also where they have content of their own: run accept-loss \
        without --force, and `tepal volume export --keep-going`, for each of them first. There is no way back: if a drive may still return, \
        bring it back instead."
    )]
    AcceptLoss {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
        /// Do it: serve what is left
        #[arg(long)]
        force: bool,
        /// Only if no other bytes are lost by now than were shown with this tag
        #[arg(long, value_name = "TAG", requires = "force")]
        shown: Option<String>,
    },
    /// Read and verify every copy of everything on a volume, and repair what is damaged
    Scrub {
        /// The volume's name
        #[arg(value_parser = value::name)]
        name: String,
        #[command(flatten)]
        wait: WaitArguments,
    },
    /// Write a volume's bytes to standard output, or what differs in them from a snapshot
    #[command(after_help = "Examples:\n  tepal volume export v0 > v0.img           (holes stay holes in a file)\n  \
        tepal volume export v0@mon > mon.img\n  tepal volume export v0@tue --since mon > mon-tue.diff\n  \
        tepal volume export v0@mon --as tepal | ssh other tepal volume import v0\n  \
        tepal volume export v0@tue --since mon --as rbd-diff | rbd import-diff - pool/v0\n\n\
        A volume that is written to meanwhile gives bytes of different times: export a snapshot of it.")]
    Export(ExportArguments),
    /// Write standard input, an image or another system's disk to a volume; or apply what `export --since` has written
    #[command(
        after_help = "Examples:\n  tepal volume import v0 < v0.img\n  tepal volume import v0 --from vm.qcow2 --verify\n  \
        tepal volume import v0 --from nbd://host/export\n  \
        rbd export --export-format 2 pool/v0 - | tepal volume import v0      (with its snapshots)\n  \
        rbd export-diff --from-snap mon pool/v0@tue - | tepal volume import v0\n\nA volume that doesn't exist is created: with --size, \
        else as large as the file. One that exists is enlarged if a file needs it; past the end of a raw image \
        it keeps what it has.\n\nWhat `export` has written `--as tepal` or with `--since` is known by how it begins. What `--as tepal` wrote \
        says how large the volume is. A volume is incomplete until its import ends: it's not attached or exported unless by force, and no \
        snapshot of it is made.\n\nDifferences are \
        applied to a volume that holds what they are based on; if it has a snapshot of that name, this is checked. Those of Ceph's `rbd` need that \
        snapshot, and what they lead to is kept as a snapshot."
    )]
    Import(ImportArguments),
    /// Write a volume with its snapshots to standard output, for `receive`
    #[command(after_help = "Examples:\n  tepal volume send v0 | ssh other tepal volume receive v0\n  \
        tepal volume send v0@tue --since mon | ssh other tepal volume receive v0\n  \
        tepal volume send v0 --as rbd | rbd import --export-format 2 - pool/v0\n\n\
        Of the volume itself only what its snapshots hold is sent: make one first.")]
    Send(SendArguments),
    /// Make a volume with its snapshots of what `send` has written, or the newer snapshots of one
    Receive(ReceiveArguments),
}

/// How a volume goes to other places.
#[derive(Clone, Copy, Debug, Args)]
pub struct WayArguments {
    /// At most so many bytes a second, as 50M, copies not counted; else as much as clients leave
    #[arg(long, value_name = "BYTES|auto", value_parser = value::rate, allow_negative_numbers = true)]
    rate: Option<Rate>,
    #[command(flatten)]
    pub wait: WaitArguments,
}

impl WayArguments {
    pub fn rate(self) -> Option<u64> {
        self.rate.and_then(|Rate(rate)| rate)
    }
}

#[derive(Debug, Args)]
pub struct CreateVolumeArguments {
    /// The volume's name: 1 to 128 of A-Z a-z 0-9 . _ -
    #[arg(value_parser = value::name)]
    pub name: String,
    /// How large it is, as 10G
    #[arg(long, value_parser = value::size, allow_negative_numbers = true)]
    pub size: u64,
    /// How its data is kept: stripe, mirror:N, chained, ec:M+K or quorum:M/N,t=T,async, and options as in 'mirror:2;durability=flush'.
    /// `tepal layout explain` says what a layout outlives. If not said, what the pool says, else mirror:2 where there are two drives
    #[arg(long, value_parser = value::layout, allow_hyphen_values = true)]
    pub layout: Option<Layout>,
    /// The pool whose drives it uses
    #[arg(long, value_parser = value::name)]
    pub pool: Option<String>,
    /// Encrypt it: the name of the key that wraps the volume's own, which servers and gateways have in their --keys folder [default: the
    /// pool's, if it has one]
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub key: Option<String>,
    /// Don't encrypt it, whatever key the pool has
    #[arg(long, conflicts_with = "key")]
    pub plain: bool,
}

#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The volume, or a snapshot of it
    #[arg(value_name = "NAME[@SNAP]", value_parser = value::source)]
    pub name: SourceName,
    /// Only what differs from this snapshot of it, for `import` onto a volume that holds what that does
    #[arg(long, value_name = "SNAP", value_parser = value::name)]
    pub since: Option<String>,
    /// The volume's bytes and nothing else; or with its size and checksums, and with holes that stay holes in a pipe, for `import`; or a
    /// stream for Ceph's `rbd import-diff`, with --since too
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "raw")]
    pub form: Form,
    /// Where blocks are damaged, go on with zeros in their place; status 1, and they are listed at the end
    #[arg(long, conflicts_with = "since")]
    pub keep_going: bool,
    /// Even if the volume is incomplete, as an import of it hasn't come to its end
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct SendArguments {
    /// The volume, with all its snapshots; or with those up to this one
    #[arg(value_name = "NAME[@SNAP]", value_parser = value::source)]
    pub name: SourceName,
    /// Only the snapshots that are newer than this one, for a volume that has it
    #[arg(long, value_name = "SNAP", value_parser = value::name)]
    pub since: Option<String>,
    /// For `receive`; or for Ceph's `rbd import --export-format 2`, without --since
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "tepal")]
    pub form: SendForm,
}

#[derive(Debug, Args)]
pub struct ReceiveArguments {
    /// The volume's name: one that doesn't exist yet, or has the snapshot that `send --since` named
    #[arg(value_parser = value::name)]
    pub name: String,
    /// The layout of the volume to create
    #[arg(long, value_parser = value::layout, allow_hyphen_values = true)]
    pub layout: Option<Layout>,
    /// The pool of the volume to create
    #[arg(long, value_parser = value::name)]
    pub pool: Option<String>,
    /// Encrypt the volume to create: the name of a key that the servers have
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub key: Option<String>,
    /// Go on with what was cut short; standard input is what it was, from its beginning
    #[arg(long)]
    pub resume: bool,
}

/// What an export writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    Raw,
    Tepal,
    RbdDiff,
}

/// What sends a volume with its snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SendForm {
    Tepal,
    Rbd,
}

#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The volume's name
    #[arg(value_parser = value::name)]
    pub name: String,
    /// The size of the volume to create, if there is none of this name; and of an image in a pipe, how long that is to be
    #[arg(long, value_parser = value::size, allow_negative_numbers = true)]
    pub size: Option<u64>,
    /// The layout of the volume to create, if there is none of this name
    #[arg(long, value_parser = value::layout, allow_hyphen_values = true)]
    pub layout: Option<Layout>,
    /// The pool of the volume to create, if there is none of this name
    #[arg(long, value_parser = value::name)]
    pub pool: Option<String>,
    /// Encrypt the volume to create: the name of a key that the servers have
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub key: Option<String>,
    /// Take the place of another import that goes on, which ends with an error. Differences are applied even if the volume has changed
    /// since the snapshot on which they are based; those of Ceph never are
    #[arg(long)]
    pub force: bool,
    /// Go on with an import that was cut short: what is there already is compared with standard input, and written where it differs
    #[arg(long, conflicts_with_all = ["layout", "pool", "key"])]
    pub resume: bool,
    /// If the volume is larger than the one that the input came from, make it as small: what is past the new end is lost
    #[arg(long)]
    pub shrink: bool,
    /// Take the input for an image, whatever it begins with
    #[arg(long, conflicts_with = "from")]
    pub raw: bool,
    /// Import this instead of the bytes on standard input: an image of a virtual machine (qcow2, VMDK, VHDX and others, by QEMU's tools),
    /// a disk, a stream of Ceph's `rbd`, `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, or `-` for what is on standard input
    #[arg(long, value_name = "SOURCE", value_hint = clap::ValueHint::AnyPath)]
    pub from: Option<String>,
    /// The image's format, if it isn't to be found out
    #[arg(long, requires = "from", value_parser = clap::builder::PossibleValuesParser::new(IMAGE_FORMATS))]
    pub format: Option<String>,
    /// Let the image take bytes from other files that it names, as its backing file
    #[arg(long, requires = "from")]
    pub backing: bool,
    /// Read the source once more in the end, and compare the volume with it
    #[arg(long, requires = "from")]
    pub verify: bool,
    /// Have the volume used at once, while servers import it from an NBD address that they reach themselves: what isn't there yet is read
    /// from there, and what is written stays here. Nobody may write to the old place from then on
    #[arg(long, requires = "from", conflicts_with_all = ["format", "backing", "verify", "resume", "shrink", "force"])]
    pub live: bool,
    /// With --live: don't wait until all of it is there
    #[arg(long, requires = "live")]
    pub no_wait: bool,
}

impl ImportArguments {
    /// Without any option.
    pub fn of(name: String) -> Self {
        let (size, layout, pool, key) = (None, None, None, None);
        let (force, resume, shrink, raw, backing, verify, live, no_wait) = Default::default();
        let (from, format) = (None, None);
        ImportArguments {
            name,
            size,
            layout,
            pool,
            key,
            force,
            resume,
            shrink,
            raw,
            from,
            format,
            backing,
            verify,
            live,
            no_wait,
        }
    }
}
