//! The tables of `cluster.db`. People read them, so columns are plain, and names are those of the interface. A
//! released column keeps its name and meaning; a new one comes with a higher version and a step that adds it.

use crate::database::Kind;

pub const FILE: &str = "cluster.db";

pub const KIND: Kind = Kind {
    application: 0x5470_436c, // "TpCl"
    schema: "
        -- What the state machine keeps for itself.
        CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
        CREATE TABLE cluster (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created_unix_ms INTEGER NOT NULL, view INTEGER NOT NULL,
            lease_ms INTEGER,               -- for how long a server may serve unheard; null if it was never set
            longest_lease_ms INTEGER        -- the longest of which somebody may still hold one
        ) STRICT;
        CREATE TABLE servers (
            id TEXT PRIMARY KEY,
            address TEXT NOT NULL,
            state TEXT NOT NULL,            -- up, down
            state_view INTEGER NOT NULL,    -- the view in which it came into this state
            incarnation INTEGER NOT NULL,   -- counts its data folders, from 0
            folder INTEGER NOT NULL,        -- the random number of its data folder
            boot INTEGER NOT NULL,          -- counts the starts of its data folder
            site TEXT,                      -- null if it doesn't say
            draining INTEGER NOT NULL       -- 1 if what its drives hold shall go to others
        ) STRICT;
        -- What the latest commands of each server came to, by which none is carried out twice.
        CREATE TABLE proposers (server TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
        -- What was created under keys that clients drew, by which nothing is created twice.
        CREATE TABLE requests (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
        CREATE TABLE drives (
            id TEXT PRIMARY KEY,
            server TEXT NOT NULL,           -- servers.id
            pool TEXT NOT NULL,             -- pools.name
            path TEXT NOT NULL,
            capacity INTEGER NOT NULL,      -- bytes
            state TEXT NOT NULL,            -- up, behind, missing, offline, failed
            reason TEXT NOT NULL,
            state_view INTEGER NOT NULL,    -- the view in which it came into this state
            missed_since INTEGER,           -- the first view whose writes may be missing, of which it knows none; null if it knows
            generation INTEGER NOT NULL,    -- of its label, when it was last taken into use; 0 if that isn't on record
            purpose TEXT NOT NULL,          -- active, draining, spare, removed
            name TEXT                       -- unique; null if it's called by its id
        ) STRICT;
        CREATE TABLE pools (name TEXT PRIMARY KEY, layout TEXT) STRICT;
        CREATE TABLE volumes (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL,
            size ANY NOT NULL,              -- bytes; an integer, but 2^63, which is a real
            layout TEXT NOT NULL,           -- as asked for
            pool TEXT NOT NULL,             -- pools.name
            map INTEGER NOT NULL,           -- maps.id; a volume's clones have the same
            epoch INTEGER NOT NULL,         -- in which it writes; the newest of its lineage
            revision INTEGER NOT NULL,
            state TEXT NOT NULL,            -- active, deleting
            created_unix_ms INTEGER NOT NULL,
            lineage TEXT NOT NULL,          -- the epochs that it sees, as in 0-4,7-9
            epoch_since INTEGER NOT NULL,   -- the view in which it began to write in its epoch; 0 if that isn't on record
            origin_volume INTEGER,          -- of a clone, the snapshot that it was made of, which may be gone: snapshots.volume
            origin_epoch INTEGER,           -- and snapshots.epoch; null if it's no clone
            import INTEGER,                 -- the number of the import that has begun to write to it; null if it's whole
            imported ANY,                   -- bytes of that which are there, as size; null if it's whole
            begun_in INTEGER NOT NULL,      -- the epoch in which it went on when it was rolled back last; 0 if it wasn't
            cut_in INTEGER NOT NULL,        -- the revision that it had when it was made smaller last; 0 if it wasn't
            replica_cluster TEXT,           -- of a replica, the cluster whose volume it follows; null if it's none
            replica_volume INTEGER,         -- and the volume's id there
            replica_name TEXT,              -- and how that is called
            replica_as_of INTEGER,          -- when the source held what the newest whole snapshot does; 0 before there is one
            replica_receives INTEGER,       -- the epoch of the source's snapshot of which it has a part; null if it's whole
            replica_base INTEGER,           -- snapshots.epoch of its newest whole one; null before there is one
            ranges TEXT                     -- first bytes and maps.id of its ranges, as 0:1,4194304:2; null if all is in map
        ) STRICT;
        CREATE UNIQUE INDEX volumes_by_name ON volumes (name) WHERE state = 'active';
        CREATE TABLE snapshots (
            volume INTEGER NOT NULL,        -- volumes.id
            epoch INTEGER NOT NULL,         -- the newest of its lineage
            name TEXT NOT NULL,
            lineage TEXT NOT NULL,          -- the epochs that it sees, as in 0-4,7-9
            size ANY NOT NULL,              -- as volumes.size
            created_unix_ms INTEGER NOT NULL,
            copy_cluster TEXT,              -- of a copy that replication made, the cluster of the original; null if it's none
            copy_volume INTEGER,            -- and the original's volume there
            copy_epoch INTEGER,             -- and its epoch
            copy_unix_ms INTEGER,           -- and when it was made
            PRIMARY KEY (volume, epoch)
        ) STRICT, WITHOUT ROWID;
        CREATE UNIQUE INDEX snapshots_by_name ON snapshots (volume, name);
        CREATE TABLE maps (
            id INTEGER PRIMARY KEY,
            volume INTEGER NOT NULL,        -- volumes.id of the one it was made for, which may be gone
            layout TEXT NOT NULL,           -- with its failure domain settled
            extent INTEGER NOT NULL,        -- bytes
            made_in INTEGER NOT NULL,       -- the view in which it was made; 0 if that isn't on record
            newest_epoch INTEGER NOT NULL,  -- the last that was handed out to a volume or a snapshot
            width INTEGER NOT NULL,         -- the columns of a set
            chunk INTEGER NOT NULL          -- the rows of a set before the next one takes its turn
        ) STRICT;
        -- Who has the copies of a map's columns.
        CREATE TABLE map_columns (
            map INTEGER NOT NULL,           -- maps.id
            column INTEGER NOT NULL,        -- from 0
            copy INTEGER NOT NULL,          -- from 0; the first that is up leads
            drive TEXT NOT NULL,            -- drives.id
            since INTEGER NOT NULL,         -- the view since which it counts; 0 if that isn't on record
            status TEXT NOT NULL,           -- complete | passed over in VIEW | given up in VIEW
            PRIMARY KEY (map, column, copy)
        ) STRICT, WITHOUT ROWID;
        -- Who gets a copy, and doesn't count yet.
        CREATE TABLE map_joins (
            map INTEGER NOT NULL,           -- maps.id
            column INTEGER NOT NULL,
            drive_to TEXT NOT NULL,         -- drives.id
            drive_from TEXT NOT NULL,       -- drives.id: whose place it takes when it has everything
            since INTEGER NOT NULL,         -- the view since which it gets new writes
            PRIMARY KEY (map, column)
        ) STRICT, WITHOUT ROWID;
        -- Volumes that go from one map to another, chunk by chunk, in a scattered order: the first `done` are there, those up to
        -- `fence` are on their way.
        CREATE TABLE migrations (
            id INTEGER PRIMARY KEY,         -- the map that was made for it
            source INTEGER NOT NULL,        -- maps.id: from which they go; volumes.map of all that do
            target INTEGER NOT NULL,        -- maps.id: to which they go
            layout TEXT NOT NULL,           -- what they have then, as asked for
            leaves INTEGER,                 -- volumes.id of the only one that goes; null if all of the source's do
            seed INTEGER NOT NULL,          -- of the order
            chunks INTEGER NOT NULL,        -- of 4 MiB, in all
            done INTEGER NOT NULL,
            fence INTEGER NOT NULL,
            stage TEXT NOT NULL,            -- running, paused
            cancelled INTEGER NOT NULL,     -- 1 if it goes back
            rate INTEGER,                   -- bytes a second at most; null if none was set
            since INTEGER NOT NULL,         -- the view in which window, stage or direction changed last
            begun_unix_ms INTEGER NOT NULL,
            first INTEGER NOT NULL,         -- the chunk in which the range begins that goes; 0 if volumes go from their beginning on
            ends INTEGER NOT NULL           -- 1 if the range ends with its chunks, and more of the volumes lies behind it
        ) STRICT;
        CREATE TABLE events (
            seq INTEGER PRIMARY KEY,
            unix_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            text TEXT NOT NULL,
            who TEXT                        -- who asked for it: an identity, or how it came; null if it came by itself
        ) STRICT;
        -- Who signs certificates. The keys are in data folders.
        CREATE TABLE authorities (
            number INTEGER PRIMARY KEY, certificate TEXT NOT NULL,
            server TEXT NOT NULL            -- servers.id: who made it
        ) STRICT;
        CREATE TABLE identities (
            name TEXT PRIMARY KEY,
            role TEXT NOT NULL,             -- host, operator, server
            groups TEXT NOT NULL,           -- names, with spaces between
            key TEXT NOT NULL,              -- SHA-256 of its public key
            former_key TEXT,                -- of the one before, which counts too; null if there was none
            created_unix_ms INTEGER NOT NULL
        ) STRICT;
        CREATE TABLE grants (
            volume INTEGER NOT NULL,        -- volumes.id
            to_whom TEXT NOT NULL,          -- identities.name, or a group after @
            right_to TEXT NOT NULL,         -- read, write, admin
            PRIMARY KEY (volume, to_whom)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE reservations (
            volume INTEGER PRIMARY KEY,     -- volumes.id
            holder TEXT,                    -- who alone may write, by its own word; null: everybody
            number INTEGER NOT NULL,        -- counts who came and went: connections of earlier numbers are cut off
            fenced TEXT NOT NULL DEFAULT '' -- holders that were cut off and didn't take it since, the latest last
        ) STRICT;
        -- Of encrypted volumes.
        CREATE TABLE volume_keys (
            volume INTEGER PRIMARY KEY,     -- volumes.id
            key TEXT NOT NULL,              -- the name of the key by which the volume's own is wrapped
            wrapped TEXT NOT NULL           -- that, in hexadecimal digits
        ) STRICT;
        -- How much may be asked for. What is null has no limit.
        CREATE TABLE limits (
            subject TEXT PRIMARY KEY,       -- volume:ID, by volumes.id, or identity:NAME
            iops INTEGER,                   -- requests a second
            iops_burst INTEGER,             -- requests at once; 0: what a tenth of a second allows
            bandwidth INTEGER,              -- bytes a second
            bandwidth_burst INTEGER,
            connections INTEGER             -- at a time
        ) STRICT;
        -- By which servers may join, each once.
        CREATE TABLE join_tokens (
            hash TEXT PRIMARY KEY,          -- SHA-256 of the secret
            until_unix_ms INTEGER NOT NULL, -- it counts until then
            key TEXT                        -- of the server that has joined by it; null if none has
        ) STRICT;
        -- Of volumes that are used while they are imported.
        CREATE TABLE live_imports (
            volume INTEGER PRIMARY KEY,     -- volumes.id
            address TEXT NOT NULL,          -- of the export that it comes from
            length INTEGER NOT NULL,        -- bytes that the export has
            done INTEGER NOT NULL,          -- bytes from the beginning on that are there for good
            stage TEXT NOT NULL             -- running, paused, cancelled
        ) STRICT;
        -- Authorities in whose place others come: trusted still, and signing nothing for servers.
        CREATE TABLE leaving_authorities (
            number INTEGER PRIMARY KEY,     -- authorities.number
            since_unix_ms INTEGER NOT NULL
        ) STRICT;
        -- Rights on all volumes of a pool, or of the cluster.
        CREATE TABLE scope_grants (
            scope TEXT NOT NULL,            -- pool:NAME, or cluster
            to_whom TEXT NOT NULL,          -- as in grants
            right_to TEXT NOT NULL,         -- read, write, admin
            PRIMARY KEY (scope, to_whom)
        ) STRICT, WITHOUT ROWID;
        -- By which new volumes of a pool are encrypted if nothing else is said.
        CREATE TABLE pool_keys (pool TEXT PRIMARY KEY, key TEXT NOT NULL) STRICT;
        -- Of others, who say who their people are.
        CREATE TABLE outside_authorities (name TEXT PRIMARY KEY, certificate TEXT NOT NULL) STRICT;
        -- Identities that are known by certificates of outside authorities.
        CREATE TABLE subjects (
            identity TEXT PRIMARY KEY,      -- identities.name, whose key is a digest of the rest
            authority TEXT NOT NULL,        -- outside_authorities.name
            subject TEXT NOT NULL           -- the common name of the certificate's subject
        ) STRICT;
        -- What is done again and again.
        CREATE TABLE schedules (
            id INTEGER PRIMARY KEY,         -- never used again
            name TEXT NOT NULL UNIQUE,
            work TEXT NOT NULL,             -- snapshots, scrubs
            volume INTEGER,                 -- volumes.id, of which snapshots are made
            pool TEXT,                      -- pools.name, if it's about all volumes of that
            every_s INTEGER,                -- of snapshots: seconds from one time to the next
            at TEXT,                        -- one of the times of the day, of local clocks
            zone TEXT,                      -- of these clocks: UTC, or as +02:00
            keep TEXT,                      -- how many stay of each kind
            within_s INTEGER,               -- of scrubs: seconds for which no volume stays unscrubbed
            paused INTEGER NOT NULL,        -- 1 if it rests
            created_unix_ms INTEGER NOT NULL,
            done_s INTEGER NOT NULL,        -- times up to this one are over, in seconds since 1970
            last_run_unix_ms INTEGER,
            missed INTEGER NOT NULL,        -- how many times have passed without a run
            last_missed_s INTEGER,          -- the last of them, in seconds since 1970
            error TEXT                      -- what went wrong in its last run
        ) STRICT;
        -- The snapshots that schedules have made, and may remove.
        CREATE TABLE schedule_snapshots (
            volume INTEGER NOT NULL,        -- snapshots.volume
            epoch INTEGER NOT NULL,         -- snapshots.epoch
            schedule INTEGER NOT NULL,      -- schedules.id
            due_s INTEGER NOT NULL,         -- the time that it was made for, in seconds since 1970
            held TEXT,                      -- why it's there, though it isn't kept any more
            PRIMARY KEY (volume, epoch)
        ) STRICT, WITHOUT ROWID;
        -- The last whole scrub of each volume.
        CREATE TABLE scrubs (
            volume INTEGER PRIMARY KEY,     -- volumes.id
            begun_unix_ms INTEGER NOT NULL, -- what was there then was read
            done_unix_ms INTEGER NOT NULL
        ) STRICT;
        CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
    ",
    steps: &[
        super::upgrade::from_form_1,
        super::upgrade::from_form_2,
        super::upgrade::from_form_3,
        super::upgrade::from_form_4,
        super::upgrade::from_form_5,
        super::upgrade::from_form_6,
        super::upgrade::from_form_7,
        super::upgrade::from_form_8,
        super::upgrade::from_form_9,
        super::upgrade::from_form_10,
        super::upgrade::from_form_11,
    ],
};
