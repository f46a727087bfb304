PRAGMA application_id=1416643436;
PRAGMA user_version=6;
BEGIN TRANSACTION;
CREATE TABLE cluster (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created_unix_ms INTEGER NOT NULL, view INTEGER NOT NULL,
            lease_ms INTEGER,               -- for how long a server may serve unheard; null if it was never set
            longest_lease_ms INTEGER        -- the longest of which somebody may still hold one
        ) STRICT;
INSERT INTO "cluster" VALUES('ac2f8557d3db149a05843c2824a14575','dev',1795794972555,4,NULL,NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
INSERT INTO "counters" VALUES('server',2);
INSERT INTO "counters" VALUES('volume',2);
INSERT INTO "counters" VALUES('map',2);
INSERT INTO "counters" VALUES('event',6);
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
            purpose TEXT NOT NULL           -- active, draining, spare, removed
        ) STRICT;
INSERT INTO "drives" VALUES('5db3aeff53dd1012','s1','default','/v/s1/drive0',64684032,'up','added',2,NULL,0,'active');
INSERT INTO "drives" VALUES('10ca4ea5e4ed8191','s1','default','/v/s1/drive1',64684032,'missing','there is nothing at its path',4,4,0,'active');
CREATE TABLE events (
            seq INTEGER PRIMARY KEY,
            unix_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            text TEXT NOT NULL
        ) STRICT;
INSERT INTO "events" VALUES(1,1795794972555,'cluster','dev','cluster ac2f8557d3db149a05843c2824a14575 begins on server s1 at unix:/v/s1/peers.sock');
INSERT INTO "events" VALUES(2,1795794972790,'drive','5db3aeff53dd1012','added to pool default: server s1, /v/s1/drive0');
INSERT INTO "events" VALUES(3,1795794972834,'drive','10ca4ea5e4ed8191','added to pool default: server s1, /v/s1/drive1');
INSERT INTO "events" VALUES(4,1795794984835,'volume','v0','created: 8M, mirror:2, on 2 drives of pool default');
INSERT INTO "events" VALUES(5,1795794985839,'drive','10ca4ea5e4ed8191','up -> missing: there is nothing at its path');
CREATE TABLE map_columns (
            map INTEGER NOT NULL,           -- maps.id
            column INTEGER NOT NULL,        -- from 0
            copy INTEGER NOT NULL,          -- from 0; the first that is up leads
            drive TEXT NOT NULL,            -- drives.id
            since INTEGER NOT NULL,         -- the view since which it counts; 0 if that isn't on record
            PRIMARY KEY (map, column, copy)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "map_columns" VALUES(1,0,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,0,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,1,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,1,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,2,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,2,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,3,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,3,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,4,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,4,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,5,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,5,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,6,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,6,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,7,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,7,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,8,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,8,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,9,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,9,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,10,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,10,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,11,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,11,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,12,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,12,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,13,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,13,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,14,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,14,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,15,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,15,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,16,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,16,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,17,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,17,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,18,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,18,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,19,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,19,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,20,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,20,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,21,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,21,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,22,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,22,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,23,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,23,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,24,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,24,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,25,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,25,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,26,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,26,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,27,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,27,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,28,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,28,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,29,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,29,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,30,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,30,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,31,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,31,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,32,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,32,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,33,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,33,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,34,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,34,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,35,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,35,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,36,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,36,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,37,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,37,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,38,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,38,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,39,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,39,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,40,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,40,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,41,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,41,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,42,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,42,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,43,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,43,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,44,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,44,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,45,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,45,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,46,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,46,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,47,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,47,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,48,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,48,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,49,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,49,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,50,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,50,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,51,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,51,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,52,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,52,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,53,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,53,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,54,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,54,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,55,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,55,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,56,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,56,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,57,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,57,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,58,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,58,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,59,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,59,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,60,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,60,1,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,61,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,61,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,62,0,'5db3aeff53dd1012',3);
INSERT INTO "map_columns" VALUES(1,62,1,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,63,0,'10ca4ea5e4ed8191',3);
INSERT INTO "map_columns" VALUES(1,63,1,'5db3aeff53dd1012',3);
CREATE TABLE map_joins (
            map INTEGER NOT NULL,           -- maps.id
            column INTEGER NOT NULL,
            drive_to TEXT NOT NULL,         -- drives.id
            drive_from TEXT NOT NULL,       -- drives.id: whose place it takes when it has everything
            since INTEGER NOT NULL,         -- the view since which it gets new writes
            PRIMARY KEY (map, column)
        ) STRICT, WITHOUT ROWID;
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
INSERT INTO "maps" VALUES(1,1,'mirror:2;domain=drive',65536,3,1,2,16);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('membership','{"since":{"term":0,"node":1,"index":0},"members":{"voters":[[1]],"addresses":{"1":"unix:/v/s1/peers.sock"}}}',1779440392);
INSERT INTO "meta" VALUES('applied','{"term":1,"node":1,"index":6}',1592525228);
INSERT INTO "meta" VALUES('digest','3237878943',976108468);
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
            begun_unix_ms INTEGER NOT NULL
        ) STRICT;
CREATE TABLE pools (name TEXT PRIMARY KEY, layout TEXT) STRICT;
INSERT INTO "pools" VALUES('default',NULL);
CREATE TABLE proposers (server TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "proposers" VALUES('s1','{"server":"s1","incarnation":0,"boot":1170831,"settled":4,"answers":{"4":{"Ok":"done"}}}',1164923370);
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
INSERT INTO "servers" VALUES('s1','unix:/v/s1/peers.sock','up',1,0,0,0,NULL,0);
CREATE TABLE snapshots (
            volume INTEGER NOT NULL,        -- volumes.id
            epoch INTEGER NOT NULL,         -- the newest of its lineage
            name TEXT NOT NULL,
            lineage TEXT NOT NULL,          -- the epochs that it sees, as in 0-4,7-9
            size ANY NOT NULL,              -- as volumes.size
            created_unix_ms INTEGER NOT NULL,
            PRIMARY KEY (volume, epoch)
        ) STRICT, WITHOUT ROWID;
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
            origin_epoch INTEGER            -- and snapshots.epoch; null if it's no clone
        ) STRICT;
INSERT INTO "volumes" VALUES(1,'v0',8388608,'mirror:2','default',1,1,1,'active',1795794984835,'0-1',3,NULL,NULL);
CREATE UNIQUE INDEX volumes_by_name ON volumes (name) WHERE state = 'active';
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (volume, name);
COMMIT;
