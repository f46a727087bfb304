PRAGMA application_id=1416643436;
PRAGMA user_version=11;
BEGIN TRANSACTION;
CREATE TABLE authorities (
            number INTEGER PRIMARY KEY, certificate TEXT NOT NULL,
            server TEXT NOT NULL            -- servers.id: who made it
        ) STRICT;
INSERT INTO "authorities" VALUES(1,'-----BEGIN CERTIFICATE-----
MIIB4jCCAYegAwIBAgIUWGRBknNL/RferzGH+/Bd6lXKmI0wCgYIKoZIzj0EAwIw
TTEYMBYGA1UECgwPVGVwYWwgYXV0aG9yaXR5MTEwLwYDVQQDDChjbHVzdGVyIDgx
YzU3NzFlZGQzZGUzMThkOGE0OGY0ZjVkYTEwODc2MB4XDTI2MTEyOTIxMDIyMVoX
DTM2MTEyNjIyMDIyMVowTTEYMBYGA1UECgwPVGVwYWwgYXV0aG9yaXR5MTEwLwYD
VQQDDChjbHVzdGVyIDgxYzU3NzFlZGQzZGUzMThkOGE0OGY0ZjVkYTEwODc2MFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEdVgN/M8dFF9mhpTbKlfDw1eOrLvpxaGw
a5v4ePRnRBQOJH9rKoO9q7FeqiPJseQA/9KVtc7nC5dc0myQyYwG4KNFMEMwDgYD
VR0PAQH/BAQDAgEGMB0GA1UdDgQWBBQCnqQmKYFHqyxMk6ibGHqCvVr+7TASBgNV
HRMBAf8ECDAGAQH/AgEAMAoGCCqGSM49BAMCA0kAMEYCIQDbSOjfWP8n1OGekau2
MAIDAscSCGQ1KDFFdVwtDBW8gwIhAPTHfRdf3GlUZ974cV2zPcGpfUH1ABOpRBLd
UwB5Xi7i
-----END CERTIFICATE-----
','s1');
CREATE TABLE cluster (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created_unix_ms INTEGER NOT NULL, view INTEGER NOT NULL,
            lease_ms INTEGER,               -- for how long a server may serve unheard; null if it was never set
            longest_lease_ms INTEGER        -- the longest of which somebody may still hold one
        ) STRICT;
INSERT INTO "cluster" VALUES('81c5771edd3de318d8a48f4f5da10876','dev',1795989741511,5,NULL,NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
INSERT INTO "counters" VALUES('server',2);
INSERT INTO "counters" VALUES('volume',4);
INSERT INTO "counters" VALUES('map',3);
INSERT INTO "counters" VALUES('event',13);
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
INSERT INTO "drives" VALUES('e071471dc358be59','s1','default','/tmp/fx/c/s1/drive0',64684032,'up','added',2,NULL,0,'active',NULL);
INSERT INTO "drives" VALUES('6166c2ade2c7ddcf','s1','default','/tmp/fx/c/s1/drive1',64684032,'up','added',3,NULL,0,'active',NULL);
CREATE TABLE events (
            seq INTEGER PRIMARY KEY,
            unix_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            text TEXT NOT NULL,
            who TEXT                        -- who asked for it: an identity, or how it came; null if it came by itself
        ) STRICT;
INSERT INTO "events" VALUES(1,1795989741511,'cluster','dev','cluster 81c5771edd3de318d8a48f4f5da10876 begins on server s1 at unix:/tmp/fx/c/s1/peers.sock',NULL);
INSERT INTO "events" VALUES(2,1795989741795,'drive','e071471dc358be59','added to pool default: server s1, /tmp/fx/c/s1/drive0',NULL);
INSERT INTO "events" VALUES(3,1795989741823,'drive','6166c2ade2c7ddcf','added to pool default: server s1, /tmp/fx/c/s1/drive1',NULL);
INSERT INTO "events" VALUES(4,1795989741880,'volume','v0','created: 8M, mirror:2, on 2 drives of pool default','token');
INSERT INTO "events" VALUES(5,1795989741907,'volume','w','created: 4M, stripe, on 2 drives of pool default','token');
INSERT INTO "events" VALUES(6,1795989741927,'snapshot','v0@s','made: 8M, of epoch 1, in view 4','token');
INSERT INTO "events" VALUES(7,1795989741943,'volume','c','made as a clone of v0@s: 8M, in view 5','token');
INSERT INTO "events" VALUES(8,1795989741963,'cluster','authority','server s1 has made the cluster''s certificate authority','token');
INSERT INTO "events" VALUES(9,1795989741975,'identity','server-s1','added as server',NULL);
INSERT INTO "events" VALUES(10,1795989741975,'identity','web','added as host, of lab','token');
INSERT INTO "events" VALUES(11,1795989742001,'volume','v0','''web'' may read and write it','token');
INSERT INTO "events" VALUES(12,1795989742016,'volume','w','''@lab'' may read it','token');
CREATE TABLE grants (
            volume INTEGER NOT NULL,        -- volumes.id
            to_whom TEXT NOT NULL,          -- identities.name, or a group after @
            right_to TEXT NOT NULL,         -- read, write, admin
            PRIMARY KEY (volume, to_whom)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "grants" VALUES(1,'web','write');
INSERT INTO "grants" VALUES(2,'@lab','read');
CREATE TABLE identities (
            name TEXT PRIMARY KEY,
            role TEXT NOT NULL,             -- host, operator, server
            groups TEXT NOT NULL,           -- names, with spaces between
            key TEXT NOT NULL,              -- SHA-256 of its public key
            former_key TEXT,                -- of the one before, which counts too; null if there was none
            created_unix_ms INTEGER NOT NULL
        ) STRICT;
INSERT INTO "identities" VALUES('server-s1','server','','b5fa57ca1ae10dc9debdfce61a078cfa0900c1658fce9d883b3f788245096922',NULL,1795989741975);
INSERT INTO "identities" VALUES('web','host','lab','d5c6a7944a40aec75d755867cd836fe7ded3ed9ad27749d819e4cfe5097ae965',NULL,1795989741975);
CREATE TABLE map_columns (
            map INTEGER NOT NULL,           -- maps.id
            column INTEGER NOT NULL,        -- from 0
            copy INTEGER NOT NULL,          -- from 0; the first that is up leads
            drive TEXT NOT NULL,            -- drives.id
            since INTEGER NOT NULL,         -- the view since which it counts; 0 if that isn't on record
            status TEXT NOT NULL,           -- complete | passed over in VIEW | given up in VIEW
            PRIMARY KEY (map, column, copy)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "map_columns" VALUES(1,0,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,0,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,1,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,1,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,2,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,2,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,3,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,3,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,4,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,4,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,5,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,5,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,6,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,6,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,7,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,7,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,8,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,8,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,9,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,9,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,10,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,10,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,11,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,11,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,12,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,12,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,13,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,13,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,14,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,14,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,15,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,15,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,16,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,16,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,17,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,17,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,18,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,18,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,19,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,19,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,20,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,20,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,21,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,21,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,22,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,22,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,23,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,23,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,24,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,24,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,25,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,25,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,26,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,26,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,27,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,27,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,28,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,28,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,29,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,29,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,30,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,30,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,31,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,31,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,32,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,32,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,33,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,33,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,34,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,34,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,35,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,35,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,36,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,36,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,37,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,37,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,38,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,38,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,39,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,39,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,40,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,40,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,41,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,41,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,42,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,42,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,43,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,43,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,44,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,44,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,45,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,45,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,46,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,46,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,47,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,47,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,48,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,48,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,49,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,49,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,50,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,50,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,51,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,51,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,52,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,52,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,53,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,53,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,54,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,54,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,55,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,55,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,56,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,56,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,57,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,57,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,58,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,58,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,59,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,59,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,60,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,60,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,61,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,61,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,62,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(1,62,1,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,63,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(1,63,1,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,0,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,1,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,2,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,3,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,4,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,5,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,6,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,7,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,8,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,9,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,10,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,11,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,12,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,13,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,14,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,15,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,16,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,17,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,18,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,19,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,20,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,21,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,22,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,23,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,24,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,25,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,26,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,27,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,28,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,29,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,30,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,31,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,32,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,33,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,34,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,35,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,36,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,37,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,38,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,39,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,40,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,41,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,42,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,43,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,44,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,45,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,46,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,47,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,48,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,49,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,50,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,51,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,52,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,53,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,54,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,55,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,56,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,57,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,58,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,59,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,60,0,'6166c2ade2c7ddcf',3,'complete');
INSERT INTO "map_columns" VALUES(2,61,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,62,0,'e071471dc358be59',3,'complete');
INSERT INTO "map_columns" VALUES(2,63,0,'6166c2ade2c7ddcf',3,'complete');
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
INSERT INTO "maps" VALUES(1,1,'mirror:2;domain=drive',65536,3,3,2,16);
INSERT INTO "maps" VALUES(2,2,'stripe;domain=server',65536,3,1,2,16);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('membership','{"since":{"term":0,"node":1,"index":0},"members":{"voters":[[1]],"addresses":{"1":"unix:/tmp/fx/c/s1/peers.sock"}}}',3984741907);
INSERT INTO "meta" VALUES('applied','{"term":1,"node":1,"index":13}',212331807);
INSERT INTO "meta" VALUES('digest','3158429911',2833113076);
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
INSERT INTO "proposers" VALUES('s1','{"server":"s1","incarnation":0,"boot":1792385,"settled":11,"answers":{"11":{"Ok":"done"}}}',3579083364);
CREATE TABLE reservations (
            volume INTEGER PRIMARY KEY,     -- volumes.id
            holder TEXT,                    -- who alone may write, by its own word; null: everybody
            number INTEGER NOT NULL         -- counts who came and went: connections of earlier numbers are cut off
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
INSERT INTO "servers" VALUES('s1','unix:/tmp/fx/c/s1/peers.sock','up',1,0,0,0,NULL,0);
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
INSERT INTO "snapshots" VALUES(1,1,'s','0-1',8388608,1795989741927,NULL,NULL,NULL,NULL);
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
INSERT INTO "volumes" VALUES(1,'v0',8388608,'mirror:2','default',1,2,1,'active',1795989741880,'0-2',4,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "volumes" VALUES(2,'w',4194304,'stripe','default',2,1,1,'active',1795989741907,'0-1',3,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "volumes" VALUES(3,'c',8388608,'mirror:2','default',1,3,1,'active',1795989741943,'0-1,3-3',5,1,1,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE UNIQUE INDEX volumes_by_name ON volumes (name) WHERE state = 'active';
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (volume, name);
COMMIT;
