PRAGMA application_id=1416647276;
PRAGMA user_version=1;
BEGIN TRANSACTION;
CREATE TABLE log (
            entry INTEGER PRIMARY KEY, term INTEGER NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL
        ) STRICT;
INSERT INTO "log" VALUES(0,0,'{"id":{"term":0,"node":1,"index":0},"payload":{"members":{"voters":[[1]],"addresses":{"1":"127.0.0.1:41553"}}}}',1973176066);
INSERT INTO "log" VALUES(1,1,'{"id":{"term":1,"node":1,"index":1},"payload":"blank"}',3786706785);
INSERT INTO "log" VALUES(2,1,'{"id":{"term":1,"node":1,"index":2},"payload":{"command":{"version":1,"unix_ms":1795312218538,"command":{"init_cluster":{"id":"b7c3a50cb3dd4cca2b45ca74f61a0ef6","name":"dev","server":"s1","address":"127.0.0.1:41553"}}}}}',2621699306);
INSERT INTO "log" VALUES(3,1,'{"id":{"term":1,"node":1,"index":3},"payload":{"command":{"version":1,"unix_ms":1795312219082,"command":{"add_drive":{"id":"013a47d468d25c31","server":"s1","pool":"default","path":"/tmp/f1/d/s1/drive0","capacity":65142784}}}}}',1634121759);
INSERT INTO "log" VALUES(4,1,'{"id":{"term":1,"node":1,"index":4},"payload":{"command":{"version":1,"unix_ms":1795312219137,"command":{"add_drive":{"id":"8d0fd18ae501a33c","server":"s1","pool":"default","path":"/tmp/f1/d/s1/drive1","capacity":65142784}}}}}',366465106);
INSERT INTO "log" VALUES(5,1,'{"id":{"term":1,"node":1,"index":5},"payload":{"command":{"version":1,"unix_ms":1795312219173,"command":{"create_volume":{"name":"v0","size":8388608,"layout":"mirror:2","pool":"default"}}}}}',47094722);
INSERT INTO "log" VALUES(6,1,'{"id":{"term":1,"node":1,"index":6},"payload":{"command":{"version":1,"unix_ms":1795312219221,"command":{"create_volume":{"name":"gone","size":4194304,"layout":"stripe","pool":"default"}}}}}',2593661924);
INSERT INTO "log" VALUES(7,1,'{"id":{"term":1,"node":1,"index":7},"payload":{"command":{"version":1,"unix_ms":1795312219258,"command":{"remove_volume":{"name":"gone"}}}}}',139527283);
INSERT INTO "log" VALUES(8,1,'{"id":{"term":1,"node":1,"index":8},"payload":{"command":{"version":1,"unix_ms":1795312219278,"command":{"finish_remove_volume":{"id":2}}}}}',2793741306);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('identity','{"cluster":"b7c3a50cb3dd4cca2b45ca74f61a0ef6","name":"dev","server":"s1","address":"127.0.0.1:41553","created_unix_ms":1795312218538}',1418259260);
INSERT INTO "meta" VALUES('vote','{"term":1,"node":1,"committed":true}',316732906);
COMMIT;
