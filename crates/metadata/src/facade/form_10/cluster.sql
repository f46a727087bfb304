PRAGMA application_id=1416643436;
PRAGMA user_version=10;
BEGIN TRANSACTION;
CREATE TABLE cluster (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created_unix_ms INTEGER NOT NULL, view INTEGER NOT NULL,
            lease_ms INTEGER,               -- for how long a server may serve unheard; null if it was never set
            longest_lease_ms INTEGER        -- the longest of which somebody may still hold one
        ) STRICT;
INSERT INTO "cluster" VALUES('e1cbac1b2297a40e3ecf8ec46a1eb9c5','test',1795960095862,8,NULL,NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
INSERT INTO "counters" VALUES('server',2);
INSERT INTO "counters" VALUES('volume',6);
INSERT INTO "counters" VALUES('map',5);
INSERT INTO "counters" VALUES('event',14);
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
INSERT INTO "drives" VALUES('d77c1bcca30cbbe8','s1','default','/tmp/fx/d1',64684032,'up','added',2,NULL,0,'active',NULL);
INSERT INTO "drives" VALUES('7be754a0991517b7','s1','default','/tmp/fx/d2',64684032,'up','added',3,NULL,0,'active','left');
CREATE TABLE events (
            seq INTEGER PRIMARY KEY,
            unix_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            text TEXT NOT NULL
        ) STRICT;
INSERT INTO "events" VALUES(1,1795960095862,'cluster','test','cluster e1cbac1b2297a40e3ecf8ec46a1eb9c5 begins on server s1 at unix:/tmp/fx/data/peers.sock');
INSERT INTO "events" VALUES(2,1795960096019,'drive','d77c1bcca30cbbe8','added to pool default: server s1, /tmp/fx/d1');
INSERT INTO "events" VALUES(3,1795960096032,'drive','7be754a0991517b7','added to pool default: server s1, /tmp/fx/d2');
INSERT INTO "events" VALUES(4,1795960105687,'volume','v0','created: 8M, mirror:2, on 2 drives of pool default');
INSERT INTO "events" VALUES(5,1795960105720,'volume','w','created: 4M, stripe, on 2 drives of pool default');
INSERT INTO "events" VALUES(6,1795960105735,'snapshot','v0@s','made: 8M, of epoch 1, in view 4');
INSERT INTO "events" VALUES(7,1795960105786,'volume','r','created: 4M, stripe, on 2 drives of pool default');
INSERT INTO "events" VALUES(8,1795960114133,'volume','c','made as a clone of v0@s: 8M, in view 5');
INSERT INTO "events" VALUES(9,1795960114154,'drive','7be754a0991517b7','is called left');
INSERT INTO "events" VALUES(10,1795960124833,'volume','r2','created: 8M, mirror:2, on 2 drives of pool default');
INSERT INTO "events" VALUES(11,1795960124850,'volume','r2','is a replica of volume ''v0'' of cluster ''test'' at 127.0.0.1:33655 from now on');
INSERT INTO "events" VALUES(12,1795960124859,'snapshot','v0@replica-f1cec89a-20261129T134844.858Z','made: 8M, of epoch 2, in view 7');
INSERT INTO "events" VALUES(13,1795960124887,'snapshot','r2@replica-f1cec89a-20261129T134844.858Z','made: 8M, of epoch 1, in view 8');
CREATE TABLE map_columns (
            map INTEGER NOT NULL,           -- maps.id
            column INTEGER NOT NULL,        -- from 0
            copy INTEGER NOT NULL,          -- from 0; the first that is up leads
            drive TEXT NOT NULL,            -- drives.id
            since INTEGER NOT NULL,         -- the view since which it counts; 0 if that isn't on record
            status TEXT NOT NULL,           -- complete | passed over in VIEW | given up in VIEW
            PRIMARY KEY (map, column, copy)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "map_columns" VALUES(1,0,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,0,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,1,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,1,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,2,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,2,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,3,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,3,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,4,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,4,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,5,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,5,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,6,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,6,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,7,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,7,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,8,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,8,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,9,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,9,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,10,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,10,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,11,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,11,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,12,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,12,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,13,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,13,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,14,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,14,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,15,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,15,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,16,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,16,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,17,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,17,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,18,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,18,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,19,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,19,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,20,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,20,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,21,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,21,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,22,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,22,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,23,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,23,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,24,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,24,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,25,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,25,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,26,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,26,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,27,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,27,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,28,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,28,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,29,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,29,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,30,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,30,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,31,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,31,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,32,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,32,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,33,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,33,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,34,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,34,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,35,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,35,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,36,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,36,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,37,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,37,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,38,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,38,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,39,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,39,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,40,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,40,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,41,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,41,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,42,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,42,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,43,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,43,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,44,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,44,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,45,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,45,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,46,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,46,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,47,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,47,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,48,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,48,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,49,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,49,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,50,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,50,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,51,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,51,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,52,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,52,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,53,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,53,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,54,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,54,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,55,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,55,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,56,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,56,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,57,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,57,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,58,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,58,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,59,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,59,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,60,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,60,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,61,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,61,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,62,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(1,62,1,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,63,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(1,63,1,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,0,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,1,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,2,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,3,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,4,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,5,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,6,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,7,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,8,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,9,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,10,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,11,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,12,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,13,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,14,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,15,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,16,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,17,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,18,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,19,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,20,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,21,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,22,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,23,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,24,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,25,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,26,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,27,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,28,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,29,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,30,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,31,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,32,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,33,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,34,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,35,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,36,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,37,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,38,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,39,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,40,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,41,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,42,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,43,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,44,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,45,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,46,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,47,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,48,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,49,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,50,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,51,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,52,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,53,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,54,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,55,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,56,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,57,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,58,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,59,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,60,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(2,61,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,62,0,'d77c1bcca30cbbe8',3,'complete');
INSERT INTO "map_columns" VALUES(2,63,0,'7be754a0991517b7',3,'complete');
INSERT INTO "map_columns" VALUES(3,0,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,1,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,2,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,3,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,4,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,5,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,6,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,7,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,8,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,9,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,10,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,11,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,12,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,13,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,14,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,15,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,16,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,17,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,18,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,19,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,20,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,21,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,22,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,23,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,24,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,25,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,26,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,27,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,28,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,29,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,30,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,31,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,32,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,33,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,34,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,35,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,36,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,37,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,38,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,39,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,40,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,41,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,42,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,43,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,44,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,45,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,46,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,47,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,48,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,49,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,50,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,51,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,52,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,53,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,54,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,55,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,56,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,57,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,58,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,59,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,60,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,61,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(3,62,0,'d77c1bcca30cbbe8',4,'complete');
INSERT INTO "map_columns" VALUES(3,63,0,'7be754a0991517b7',4,'complete');
INSERT INTO "map_columns" VALUES(4,0,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,0,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,1,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,1,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,2,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,2,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,3,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,3,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,4,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,4,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,5,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,5,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,6,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,6,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,7,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,7,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,8,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,8,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,9,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,9,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,10,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,10,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,11,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,11,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,12,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,12,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,13,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,13,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,14,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,14,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,15,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,15,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,16,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,16,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,17,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,17,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,18,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,18,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,19,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,19,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,20,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,20,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,21,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,21,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,22,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,22,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,23,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,23,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,24,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,24,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,25,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,25,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,26,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,26,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,27,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,27,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,28,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,28,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,29,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,29,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,30,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,30,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,31,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,31,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,32,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,32,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,33,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,33,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,34,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,34,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,35,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,35,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,36,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,36,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,37,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,37,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,38,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,38,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,39,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,39,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,40,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,40,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,41,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,41,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,42,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,42,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,43,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,43,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,44,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,44,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,45,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,45,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,46,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,46,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,47,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,47,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,48,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,48,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,49,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,49,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,50,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,50,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,51,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,51,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,52,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,52,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,53,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,53,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,54,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,54,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,55,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,55,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,56,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,56,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,57,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,57,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,58,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,58,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,59,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,59,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,60,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,60,1,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,61,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,61,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,62,0,'7be754a0991517b7',5,'complete');
INSERT INTO "map_columns" VALUES(4,62,1,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,63,0,'d77c1bcca30cbbe8',5,'complete');
INSERT INTO "map_columns" VALUES(4,63,1,'7be754a0991517b7',5,'complete');
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
INSERT INTO "maps" VALUES(1,1,'mirror:2;domain=drive',65536,3,4,2,16);
INSERT INTO "maps" VALUES(2,2,'stripe;domain=server',65536,3,1,2,16);
INSERT INTO "maps" VALUES(3,3,'stripe;domain=server',65536,4,1,2,16);
INSERT INTO "maps" VALUES(4,5,'mirror:2;domain=drive',65536,5,2,2,16);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('membership','{"since":{"term":0,"node":1,"index":0},"members":{"voters":[[1]],"addresses":{"1":"unix:/tmp/fx/data/peers.sock"}}}',2494615275);
INSERT INTO "meta" VALUES('applied','{"term":1,"node":1,"index":15}',1701362733);
INSERT INTO "meta" VALUES('digest','703441114',639401437);
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
INSERT INTO "proposers" VALUES('s1','{"server":"s1","incarnation":0,"boot":1569237,"settled":13,"answers":{"13":{"Ok":{"snapshot_created":{"epoch":1,"view":8}}}}}',3332048048);
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
INSERT INTO "servers" VALUES('s1','unix:/tmp/fx/data/peers.sock','up',1,0,0,0,NULL,0);
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
INSERT INTO "snapshots" VALUES(1,1,'s','0-1',8388608,1795960105735,NULL,NULL,NULL,NULL);
INSERT INTO "snapshots" VALUES(1,2,'replica-f1cec89a-20261129T134844.858Z','0-2',8388608,1795960124859,NULL,NULL,NULL,NULL);
INSERT INTO "snapshots" VALUES(5,1,'replica-f1cec89a-20261129T134844.858Z','0-1',8388608,1795960124887,'e1cbac1b2297a40e3ecf8ec46a1eb9c5',1,2,1795960124859);
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
            replica_base INTEGER            -- snapshots.epoch of its newest whole one; null before there is one
        ) STRICT;
INSERT INTO "volumes" VALUES(1,'v0',8388608,'mirror:2','default',1,4,1,'active',1795960105687,'0-2,4-4',7,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "volumes" VALUES(2,'w',4194304,'stripe','default',2,1,1,'active',1795960105720,'0-1',3,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "volumes" VALUES(3,'r',4194304,'stripe','default',3,1,1,'active',1795960105786,'0-1',4,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "volumes" VALUES(4,'c',8388608,'mirror:2','default',1,3,1,'active',1795960114133,'0-1,3-3',5,1,1,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "volumes" VALUES(5,'r2',8388608,'mirror:2','default',4,2,4,'active',1795960124833,'0-2',8,NULL,NULL,NULL,NULL,0,0,'e1cbac1b2297a40e3ecf8ec46a1eb9c5',1,'volume ''v0'' of cluster ''test'' at 127.0.0.1:33655',1795960124859,NULL,1);
CREATE UNIQUE INDEX volumes_by_name ON volumes (name) WHERE state = 'active';
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (volume, name);
COMMIT;
