PRAGMA application_id=1416643436;
PRAGMA user_version=9;
BEGIN TRANSACTION;
CREATE TABLE cluster (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created_unix_ms INTEGER NOT NULL, view INTEGER NOT NULL,
            lease_ms INTEGER,               -- for how long a server may serve unheard; null if it was never set
            longest_lease_ms INTEGER        -- the longest of which somebody may still hold one
        ) STRICT;
INSERT INTO "cluster" VALUES('fd065aa4df583039bf3acb3648cf49de','test',1795916713392,5,NULL,NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
INSERT INTO "counters" VALUES('server',2);
INSERT INTO "counters" VALUES('volume',4);
INSERT INTO "counters" VALUES('map',3);
INSERT INTO "counters" VALUES('event',9);
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
INSERT INTO "drives" VALUES('c612157b993ddb4e','s1','default','/tmp/fx/d2',64684032,'up','added',3,NULL,0,'active',NULL);
INSERT INTO "drives" VALUES('b493b0a0f02d4aa6','s1','default','/tmp/fx/d1',64684032,'up','added',2,NULL,0,'active','left');
CREATE TABLE events (
            seq INTEGER PRIMARY KEY,
            unix_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            text TEXT NOT NULL
        ) STRICT;
INSERT INTO "events" VALUES(1,1795916713392,'cluster','test','cluster fd065aa4df583039bf3acb3648cf49de begins on server s1 at 127.0.0.1:7000');
INSERT INTO "events" VALUES(2,1795916713894,'drive','b493b0a0f02d4aa6','added to pool default: server s1, /tmp/fx/d1');
INSERT INTO "events" VALUES(3,1795916713948,'drive','c612157b993ddb4e','added to pool default: server s1, /tmp/fx/d2');
INSERT INTO "events" VALUES(4,1795916714088,'volume','v0','created: 8M, stripe, on 2 drives of pool default');
INSERT INTO "events" VALUES(5,1795916714124,'volume','w','created: 8M, stripe, on 2 drives of pool default');
INSERT INTO "events" VALUES(6,1795916714150,'snapshot','v0@s','made: 8M, of epoch 1, in view 4');
INSERT INTO "events" VALUES(7,1795916714170,'volume','c','made as a clone of v0@s: 8M, in view 5');
INSERT INTO "events" VALUES(8,1795916714945,'drive','b493b0a0f02d4aa6','is called left');
CREATE TABLE map_columns (
            map INTEGER NOT NULL,           -- maps.id
            column INTEGER NOT NULL,        -- from 0
            copy INTEGER NOT NULL,          -- from 0; the first that is up leads
            drive TEXT NOT NULL,            -- drives.id
            since INTEGER NOT NULL,         -- the view since which it counts; 0 if that isn't on record
            status TEXT NOT NULL,           -- complete | passed over in VIEW | given up in VIEW
            PRIMARY KEY (map, column, copy)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "map_columns" VALUES(1,0,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,1,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,2,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,3,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,4,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,5,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,6,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,7,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,8,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,9,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,10,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,11,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,12,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,13,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,14,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,15,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,16,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,17,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,18,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,19,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,20,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,21,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,22,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,23,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,24,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,25,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,26,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,27,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,28,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,29,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,30,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,31,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,32,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,33,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,34,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,35,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,36,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,37,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,38,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,39,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,40,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,41,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,42,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,43,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,44,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,45,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,46,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,47,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,48,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,49,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,50,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,51,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,52,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,53,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,54,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,55,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,56,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,57,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,58,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,59,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,60,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,61,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(1,62,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(1,63,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,0,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,1,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,2,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,3,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,4,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,5,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,6,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,7,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,8,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,9,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,10,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,11,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,12,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,13,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,14,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,15,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,16,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,17,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,18,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,19,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,20,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,21,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,22,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,23,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,24,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,25,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,26,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,27,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,28,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,29,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,30,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,31,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,32,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,33,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,34,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,35,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,36,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,37,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,38,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,39,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,40,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,41,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,42,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,43,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,44,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,45,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,46,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,47,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,48,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,49,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,50,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,51,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,52,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,53,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,54,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,55,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,56,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,57,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,58,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,59,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,60,0,'c612157b993ddb4e',3,'complete');
INSERT INTO "map_columns" VALUES(2,61,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,62,0,'b493b0a0f02d4aa6',3,'complete');
INSERT INTO "map_columns" VALUES(2,63,0,'c612157b993ddb4e',3,'complete');
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
INSERT INTO "maps" VALUES(1,1,'stripe;domain=server',65536,3,3,2,16);
INSERT INTO "maps" VALUES(2,2,'stripe;domain=server',65536,3,1,2,16);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('membership','{"since":{"term":0,"node":1,"index":0},"members":{"voters":[[1]],"addresses":{"1":"127.0.0.1:7000"}}}',621900972);
INSERT INTO "meta" VALUES('applied','{"term":1,"node":1,"index":9}',3113552721);
INSERT INTO "meta" VALUES('digest','743923505',1792362182);
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
INSERT INTO "proposers" VALUES('s1','{"server":"s1","incarnation":0,"boot":1879759,"settled":7,"answers":{"7":{"Ok":"done"}}}',1770137845);
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
INSERT INTO "servers" VALUES('s1','127.0.0.1:7000','up',1,0,0,0,NULL,0);
CREATE TABLE snapshots (
            volume INTEGER NOT NULL,        -- volumes.id
            epoch INTEGER NOT NULL,         -- the newest of its lineage
            name TEXT NOT NULL,
            lineage TEXT NOT NULL,          -- the epochs that it sees, as in 0-4,7-9
            size ANY NOT NULL,              -- as volumes.size
            created_unix_ms INTEGER NOT NULL,
            PRIMARY KEY (volume, epoch)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "snapshots" VALUES(1,1,'s','0-1',8388608,1795916714150);
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
            cut_in INTEGER NOT NULL         -- the revision that it had when it was made smaller last; 0 if it wasn't
        ) STRICT;
INSERT INTO "volumes" VALUES(1,'v0',8388608,'stripe','default',1,2,1,'active',1795916714088,'0-2',4,NULL,NULL,NULL,NULL,0,0);
INSERT INTO "volumes" VALUES(2,'w',8388608,'stripe','default',2,1,1,'active',1795916714124,'0-1',3,NULL,NULL,NULL,NULL,0,0);
INSERT INTO "volumes" VALUES(3,'c',8388608,'stripe','default',1,3,1,'active',1795916714170,'0-1,3-3',5,1,1,NULL,NULL,0,0);
CREATE UNIQUE INDEX volumes_by_name ON volumes (name) WHERE state = 'active';
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (volume, name);
COMMIT;
