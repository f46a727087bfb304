PRAGMA application_id=1416643436;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE cluster (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created_unix_ms INTEGER NOT NULL, view INTEGER NOT NULL
        ) STRICT;
INSERT INTO "cluster" VALUES('a2c476aa2c680124d49612939b6f894b','dev',1795348757793,3);
CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
INSERT INTO "counters" VALUES('server',2);
INSERT INTO "counters" VALUES('volume',3);
INSERT INTO "counters" VALUES('map',3);
INSERT INTO "counters" VALUES('event',8);
CREATE TABLE drives (
            id TEXT PRIMARY KEY,
            server TEXT NOT NULL,
            pool TEXT NOT NULL,
            path TEXT NOT NULL,
            capacity INTEGER NOT NULL,
            state TEXT NOT NULL,
            reason TEXT NOT NULL,
            state_view INTEGER NOT NULL,
            missed_since INTEGER
        ) STRICT;
INSERT INTO "drives" VALUES('c0f8cabbfd2413f1','s1','default','/tmp/f2/d/s1/drive0',65142784,'up','added',2,NULL);
INSERT INTO "drives" VALUES('45a57783b32e636f','s1','default','/tmp/f2/d/s1/drive1',65142784,'up','added',3,NULL);
CREATE TABLE events (
            seq INTEGER PRIMARY KEY,
            unix_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            text TEXT NOT NULL
        ) STRICT;
INSERT INTO "events" VALUES(1,1795348757793,'cluster','dev','cluster a2c476aa2c680124d49612939b6f894b begins on server s1 at unix:/tmp/f2/d/s1/peers.sock');
INSERT INTO "events" VALUES(2,1795348758254,'drive','c0f8cabbfd2413f1','added to pool default: server s1, /tmp/f2/d/s1/drive0');
INSERT INTO "events" VALUES(3,1795348758327,'drive','45a57783b32e636f','added to pool default: server s1, /tmp/f2/d/s1/drive1');
INSERT INTO "events" VALUES(4,1795348758363,'volume','v0','created: 8M, mirror:2, on 2 drives of pool default');
INSERT INTO "events" VALUES(5,1795348758384,'volume','gone','created: 4M, stripe, on 2 drives of pool default');
INSERT INTO "events" VALUES(6,1795348758435,'volume','gone','removed; its space is being freed');
INSERT INTO "events" VALUES(7,1795348758475,'volume','gone','its space is free');
CREATE TABLE map_drives (
            map INTEGER NOT NULL,
            position INTEGER NOT NULL,
            drive TEXT NOT NULL,
            PRIMARY KEY (map, position)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "map_drives" VALUES(1,0,'45a57783b32e636f');
INSERT INTO "map_drives" VALUES(1,1,'c0f8cabbfd2413f1');
CREATE TABLE maps (
            id INTEGER PRIMARY KEY,
            volume INTEGER NOT NULL,
            layout TEXT NOT NULL,
            extent INTEGER NOT NULL
        ) STRICT;
INSERT INTO "maps" VALUES(1,1,'mirror:2;domain=drive',65536);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('membership','{"since":{"term":0,"node":1,"index":0},"members":{"voters":[[1]],"addresses":{"1":"unix:/tmp/f2/d/s1/peers.sock"}}}',4076527444);
INSERT INTO "meta" VALUES('applied','{"term":1,"node":1,"index":8}',2855768870);
INSERT INTO "meta" VALUES('digest','2812777738',4161728130);
CREATE TABLE pools (name TEXT PRIMARY KEY, layout TEXT) STRICT;
INSERT INTO "pools" VALUES('default',NULL);
CREATE TABLE proposers (server TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "proposers" VALUES('s1','{"server":"s1","incarnation":0,"boot":1496487,"settled":6,"answers":{"6":{"Ok":"done"}}}',2059633874);
CREATE TABLE servers (
            id TEXT PRIMARY KEY,
            address TEXT NOT NULL,
            state TEXT NOT NULL,
            state_view INTEGER NOT NULL,
            incarnation INTEGER NOT NULL,
            folder INTEGER NOT NULL,
            boot INTEGER NOT NULL,
            site TEXT
        ) STRICT;
INSERT INTO "servers" VALUES('s1','unix:/tmp/f2/d/s1/peers.sock','up',1,0,0,0,NULL);
CREATE TABLE volumes (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL,
            size ANY NOT NULL,
            layout TEXT NOT NULL,
            pool TEXT NOT NULL,
            map INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            state TEXT NOT NULL,
            created_unix_ms INTEGER NOT NULL
        ) STRICT;
INSERT INTO "volumes" VALUES(1,'v0',8388608,'mirror:2','default',1,1,1,'active',1795348758363);
CREATE UNIQUE INDEX volumes_by_name ON volumes (name) WHERE state = 'active';
COMMIT;
