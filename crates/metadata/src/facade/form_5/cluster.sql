PRAGMA application_id=1416643436;
PRAGMA user_version=5;
BEGIN TRANSACTION;
CREATE TABLE cluster (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created_unix_ms INTEGER NOT NULL, view INTEGER NOT NULL,
            lease_ms INTEGER,               -- for how long a server may serve unheard; null if it was never set
            longest_lease_ms INTEGER        -- the longest of which somebody may still hold one
        ) STRICT;
INSERT INTO "cluster" VALUES('b32cc2d961c7cc51d21bd43726294df5','dev',1795393834698,5,2000,2000);
CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
INSERT INTO "counters" VALUES('server',2);
INSERT INTO "counters" VALUES('volume',4);
INSERT INTO "counters" VALUES('map',4);
INSERT INTO "counters" VALUES('event',12);
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
            generation INTEGER NOT NULL     -- of its label, when it was last taken into use; 0 if that isn't on record
        ) STRICT;
INSERT INTO "drives" VALUES('a13d159126ad82fb','s1','default','/tmp/f4/d/s1/drive0',65142784,'up','added',2,NULL,0);
INSERT INTO "drives" VALUES('cab87f32e10c4207','s1','default','/tmp/f4/d/s1/drive1',65142784,'up','added',3,NULL,0);
INSERT INTO "drives" VALUES('d3b07384d113edec','s1','default','/tmp/f5/d/s1/drive2',65142784,'up','added',4,NULL,0);
CREATE TABLE events (
            seq INTEGER PRIMARY KEY,
            unix_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            text TEXT NOT NULL
        ) STRICT;
INSERT INTO "events" VALUES(1,1795393834698,'cluster','dev','cluster b32cc2d961c7cc51d21bd43726294df5 begins on server s1 at unix:/tmp/f4/d/s1/peers.sock');
INSERT INTO "events" VALUES(2,1795393834809,'drive','a13d159126ad82fb','added to pool default: server s1, /tmp/f4/d/s1/drive0');
INSERT INTO "events" VALUES(3,1795393834813,'drive','cab87f32e10c4207','added to pool default: server s1, /tmp/f4/d/s1/drive1');
INSERT INTO "events" VALUES(4,1795393834828,'volume','v0','created: 8M, mirror:2, on 2 drives of pool default');
INSERT INTO "events" VALUES(5,1795393850067,'volume','gone','created: 4M, stripe, on 2 drives of pool default');
INSERT INTO "events" VALUES(6,1795393851087,'volume','gone','removed; its space is being freed');
INSERT INTO "events" VALUES(7,1795393851090,'volume','gone','its space is free');
INSERT INTO "events" VALUES(8,1795393851112,'cluster','dev','a server may be silent for 2000 ms from now on, before others take over');
INSERT INTO "events" VALUES(9,1795393859000,'drive','d3b07384d113edec','added to pool default: server s1, /tmp/f5/d/s1/drive2');
INSERT INTO "events" VALUES(10,1795393860000,'volume','v1','created: 16M, mirror:2, on 3 drives of pool default');
INSERT INTO "events" VALUES(11,1795393861000,'snapshot','v0@s','made: 8M, of epoch 1, in view 5');
CREATE TABLE map_drives (
            map INTEGER NOT NULL,           -- maps.id
            position INTEGER NOT NULL,      -- from 0
            drive TEXT NOT NULL,            -- drives.id
            PRIMARY KEY (map, position)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "map_drives" VALUES(1,0,'a13d159126ad82fb');
INSERT INTO "map_drives" VALUES(1,1,'cab87f32e10c4207');
INSERT INTO "map_drives" VALUES(3,0,'a13d159126ad82fb');
INSERT INTO "map_drives" VALUES(3,1,'cab87f32e10c4207');
INSERT INTO "map_drives" VALUES(3,2,'d3b07384d113edec');
CREATE TABLE maps (
            id INTEGER PRIMARY KEY,
            volume INTEGER NOT NULL,        -- volumes.id
            layout TEXT NOT NULL,           -- with its failure domain settled
            extent INTEGER NOT NULL,        -- bytes
            made_in INTEGER NOT NULL        -- the view in which it was made; 0 if that isn't on record
        , newest_epoch INTEGER NOT NULL DEFAULT 1) STRICT;
INSERT INTO "maps" VALUES(1,1,'mirror:2;domain=drive',65536,3,2);
INSERT INTO "maps" VALUES(3,3,'mirror:2;domain=drive',65536,4,1);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('membership','{"since":{"term":0,"node":1,"index":0},"members":{"voters":[[1]],"addresses":{"1":"unix:/tmp/f4/d/s1/peers.sock"}}}',3704083258);
INSERT INTO "meta" VALUES('applied','{"term":1,"node":1,"index":9}',3113552721);
INSERT INTO "meta" VALUES('digest','2890761527',2495166536);
CREATE TABLE pools (name TEXT PRIMARY KEY, layout TEXT) STRICT;
INSERT INTO "pools" VALUES('default',NULL);
CREATE TABLE proposers (server TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "proposers" VALUES('s1','{"server":"s1","incarnation":0,"boot":1841776,"settled":7,"answers":{"7":{"Ok":"done"}}}',3416760638);
CREATE TABLE servers (
            id TEXT PRIMARY KEY,
            address TEXT NOT NULL,
            state TEXT NOT NULL,            -- up, down
            state_view INTEGER NOT NULL,    -- the view in which it came into this state
            incarnation INTEGER NOT NULL,   -- counts its data folders, from 0
            folder INTEGER NOT NULL,        -- the random number of its data folder
            boot INTEGER NOT NULL,          -- counts the starts of its data folder
            site TEXT                       -- null if it doesn't say
        ) STRICT;
INSERT INTO "servers" VALUES('s1','unix:/tmp/f4/d/s1/peers.sock','up',1,0,0,0,NULL);
CREATE TABLE snapshots (
    volume INTEGER NOT NULL, epoch INTEGER NOT NULL, name TEXT NOT NULL, lineage TEXT NOT NULL, size ANY NOT NULL,
    created_unix_ms INTEGER NOT NULL, PRIMARY KEY (volume, epoch)
) STRICT, WITHOUT ROWID;
INSERT INTO "snapshots" VALUES(1,1,'s','0-1',8388608,1795393861000);
CREATE TABLE volumes (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL,
            size ANY NOT NULL,              -- bytes; an integer, but 2^63, which is a real
            layout TEXT NOT NULL,           -- as asked for
            pool TEXT NOT NULL,             -- pools.name
            map INTEGER NOT NULL,           -- maps.id
            epoch INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            state TEXT NOT NULL,            -- active, deleting
            created_unix_ms INTEGER NOT NULL
        , lineage TEXT NOT NULL DEFAULT '0-1', epoch_since INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "volumes" VALUES(1,'v0',8388608,'mirror:2','default',1,2,1,'active',1795393834828,'0-2',5);
INSERT INTO "volumes" VALUES(3,'v1',16777216,'mirror:2','default',3,1,1,'active',1795393860000,'0-1',4);
CREATE UNIQUE INDEX volumes_by_name ON volumes (name) WHERE state = 'active';
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (volume, name);
COMMIT;
