PRAGMA application_id=1416643436;
PRAGMA user_version=6;
BEGIN TRANSACTION;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO meta VALUES('membership','{"since":{"term":0,"node":1,"index":0},"members":{"voters":[[1]],"addresses":{"1":"unix:/tmp/b_form6/d/s1/peers.sock"}}}',3646666457);
INSERT INTO meta VALUES('applied','{"term":1,"node":1,"index":8}',2855768870);
INSERT INTO meta VALUES('digest','2258599197',2611241617);
CREATE TABLE cluster (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created_unix_ms INTEGER NOT NULL, view INTEGER NOT NULL,
            lease_ms INTEGER,               -- for how long a server may serve unheard; null if it was never set
            longest_lease_ms INTEGER        -- the longest of which somebody may still hold one
        ) STRICT;
INSERT INTO cluster VALUES('335fa73d7c4408a6a06860c60a1197eb','dev',1795796968933,5,NULL,NULL);
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
INSERT INTO servers VALUES('s1','unix:/tmp/b_form6/d/s1/peers.sock','up',1,0,0,0,NULL,0);
CREATE TABLE proposers (server TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO proposers VALUES('s1','{"server":"s1","incarnation":0,"boot":1515495,"settled":6,"answers":{"6":{"Ok":{"volume_created":{"id":3,"map":2}}}}}',3581930359);
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
INSERT INTO drives VALUES('da8bc817ab8213d9','s1','default','/tmp/b_form6/d/s1/drive0',64684032,'up','added',2,NULL,0,'active');
INSERT INTO drives VALUES('944143258d3b860b','s1','default','/tmp/b_form6/d/s1/drive1',64684032,'up','added',3,NULL,0,'active');
CREATE TABLE pools (name TEXT PRIMARY KEY, layout TEXT) STRICT;
INSERT INTO pools VALUES('default',NULL);
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
INSERT INTO volumes VALUES(1,'v0',8388608,'mirror:2','default',1,2,1,'active',1795796969406,'0-2',4,NULL,NULL);
INSERT INTO volumes VALUES(2,'c',8388608,'mirror:2','default',1,3,1,'active',1795796969473,'0-1,3-3',5,1,1);
INSERT INTO volumes VALUES(3,'w',1048576,'mirror:2','default',2,1,1,'active',1795796969493,'0-1',5,NULL,NULL);
CREATE TABLE snapshots (
            volume INTEGER NOT NULL,        -- volumes.id
            epoch INTEGER NOT NULL,         -- the newest of its lineage
            name TEXT NOT NULL,
            lineage TEXT NOT NULL,          -- the epochs that it sees, as in 0-4,7-9
            size ANY NOT NULL,              -- as volumes.size
            created_unix_ms INTEGER NOT NULL,
            PRIMARY KEY (volume, epoch)
        ) STRICT, WITHOUT ROWID;
INSERT INTO snapshots VALUES(1,1,'s','0-1',8388608,1795796969462);
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
INSERT INTO maps VALUES(1,1,'mirror:2;domain=drive',65536,3,3,2,16);
INSERT INTO maps VALUES(2,3,'mirror:2;domain=drive',65536,5,1,2,16);
CREATE TABLE map_columns (
            map INTEGER NOT NULL,           -- maps.id
            column INTEGER NOT NULL,        -- from 0
            copy INTEGER NOT NULL,          -- from 0; the first that is up leads
            drive TEXT NOT NULL,            -- drives.id
            since INTEGER NOT NULL,         -- the view since which it counts; 0 if that isn't on record
            PRIMARY KEY (map, column, copy)
        ) STRICT, WITHOUT ROWID;
INSERT INTO map_columns VALUES(1,0,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,0,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,1,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,1,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,2,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,2,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,3,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,3,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,4,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,4,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,5,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,5,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,6,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,6,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,7,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,7,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,8,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,8,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,9,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,9,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,10,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,10,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,11,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,11,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,12,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,12,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,13,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,13,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,14,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,14,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,15,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,15,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,16,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,16,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,17,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,17,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,18,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,18,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,19,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,19,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,20,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,20,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,21,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,21,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,22,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,22,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,23,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,23,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,24,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,24,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,25,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,25,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,26,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,26,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,27,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,27,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,28,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,28,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,29,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,29,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,30,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,30,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,31,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,31,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,32,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,32,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,33,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,33,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,34,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,34,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,35,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,35,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,36,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,36,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,37,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,37,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,38,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,38,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,39,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,39,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,40,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,40,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,41,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,41,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,42,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,42,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,43,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,43,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,44,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,44,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,45,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,45,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,46,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,46,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,47,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,47,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,48,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,48,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,49,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,49,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,50,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,50,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,51,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,51,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,52,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,52,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,53,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,53,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,54,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,54,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,55,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,55,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,56,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,56,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,57,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,57,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,58,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,58,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,59,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,59,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,60,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,60,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,61,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,61,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,62,0,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(1,62,1,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,63,0,'da8bc817ab8213d9',3);
INSERT INTO map_columns VALUES(1,63,1,'944143258d3b860b',3);
INSERT INTO map_columns VALUES(2,0,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,0,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,1,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,1,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,2,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,2,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,3,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,3,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,4,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,4,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,5,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,5,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,6,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,6,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,7,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,7,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,8,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,8,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,9,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,9,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,10,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,10,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,11,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,11,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,12,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,12,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,13,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,13,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,14,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,14,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,15,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,15,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,16,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,16,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,17,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,17,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,18,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,18,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,19,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,19,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,20,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,20,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,21,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,21,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,22,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,22,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,23,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,23,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,24,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,24,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,25,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,25,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,26,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,26,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,27,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,27,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,28,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,28,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,29,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,29,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,30,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,30,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,31,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,31,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,32,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,32,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,33,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,33,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,34,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,34,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,35,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,35,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,36,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,36,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,37,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,37,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,38,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,38,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,39,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,39,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,40,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,40,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,41,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,41,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,42,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,42,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,43,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,43,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,44,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,44,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,45,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,45,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,46,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,46,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,47,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,47,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,48,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,48,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,49,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,49,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,50,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,50,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,51,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,51,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,52,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,52,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,53,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,53,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,54,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,54,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,55,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,55,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,56,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,56,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,57,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,57,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,58,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,58,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,59,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,59,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,60,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,60,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,61,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,61,1,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,62,0,'da8bc817ab8213d9',5);
INSERT INTO map_columns VALUES(2,62,1,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,63,0,'944143258d3b860b',5);
INSERT INTO map_columns VALUES(2,63,1,'da8bc817ab8213d9',5);
CREATE TABLE map_joins (
            map INTEGER NOT NULL,           -- maps.id
            column INTEGER NOT NULL,
            drive_to TEXT NOT NULL,         -- drives.id
            drive_from TEXT NOT NULL,       -- drives.id: whose place it takes when it has everything
            since INTEGER NOT NULL,         -- the view since which it gets new writes
            PRIMARY KEY (map, column)
        ) STRICT, WITHOUT ROWID;
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
CREATE TABLE events (
            seq INTEGER PRIMARY KEY,
            unix_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            text TEXT NOT NULL
        ) STRICT;
INSERT INTO events VALUES(1,1795796968933,'cluster','dev','cluster 335fa73d7c4408a6a06860c60a1197eb begins on server s1 at unix:/tmp/b_form6/d/s1/peers.sock');
INSERT INTO events VALUES(2,1795796969274,'drive','da8bc817ab8213d9','added to pool default: server s1, /tmp/b_form6/d/s1/drive0');
INSERT INTO events VALUES(3,1795796969336,'drive','944143258d3b860b','added to pool default: server s1, /tmp/b_form6/d/s1/drive1');
INSERT INTO events VALUES(4,1795796969406,'volume','v0','created: 8M, mirror:2, on 2 drives of pool default');
INSERT INTO events VALUES(5,1795796969462,'snapshot','v0@s','made: 8M, of epoch 1, in view 4');
INSERT INTO events VALUES(6,1795796969473,'volume','c','made as a clone of v0@s: 8M, in view 5');
INSERT INTO events VALUES(7,1795796969493,'volume','w','created: 1M, mirror:2, on 2 drives of pool default');
CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
INSERT INTO counters VALUES('server',2);
INSERT INTO counters VALUES('volume',4);
INSERT INTO counters VALUES('map',3);
INSERT INTO counters VALUES('event',8);
CREATE UNIQUE INDEX volumes_by_name ON volumes (name) WHERE state = 'active';
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (volume, name);
COMMIT;
