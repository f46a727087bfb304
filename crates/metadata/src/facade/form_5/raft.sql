PRAGMA application_id=1416647276;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE log (
            entry INTEGER PRIMARY KEY, term INTEGER NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL
        ) STRICT;
INSERT INTO "log" VALUES(0,0,'{"id":{"term":0,"node":1,"index":0},"payload":{"members":{"voters":[[1]],"addresses":{"1":"unix:/tmp/f4/d/s1/peers.sock"}}}}',1722120296);
INSERT INTO "log" VALUES(1,1,'{"id":{"term":1,"node":1,"index":1},"payload":"blank"}',3786706785);
INSERT INTO "log" VALUES(2,1,'{"id":{"term":1,"node":1,"index":2},"payload":{"command":{"version":1,"unix_ms":1795393834698,"from":null,"command":{"init_cluster":{"id":"b32cc2d961c7cc51d21bd43726294df5","name":"dev","server":"s1","address":"unix:/tmp/f4/d/s1/peers.sock"}}}}}',848047127);
INSERT INTO "log" VALUES(3,1,'{"id":{"term":1,"node":1,"index":3},"payload":{"command":{"version":1,"unix_ms":1795393834809,"from":{"server":"s1","incarnation":0,"boot":1841776,"sequence":1,"settled":1},"command":{"add_drive":{"id":"a13d159126ad82fb","server":"s1","pool":"default","path":"/tmp/f4/d/s1/drive0","capacity":65142784}}}}}',390292452);
INSERT INTO "log" VALUES(4,1,'{"id":{"term":1,"node":1,"index":4},"payload":{"command":{"version":1,"unix_ms":1795393834813,"from":{"server":"s1","incarnation":0,"boot":1841776,"sequence":2,"settled":2},"command":{"add_drive":{"id":"cab87f32e10c4207","server":"s1","pool":"default","path":"/tmp/f4/d/s1/drive1","capacity":65142784}}}}}',2818766135);
INSERT INTO "log" VALUES(5,1,'{"id":{"term":1,"node":1,"index":5},"payload":{"command":{"version":1,"unix_ms":1795393834828,"from":{"server":"s1","incarnation":0,"boot":1841776,"sequence":3,"settled":3},"command":{"create_volume":{"name":"v0","size":8388608,"layout":"mirror:2","pool":"default"}}}}}',2991990961);
INSERT INTO "log" VALUES(6,1,'{"id":{"term":1,"node":1,"index":6},"payload":{"command":{"version":1,"unix_ms":1795393850067,"from":{"server":"s1","incarnation":0,"boot":1841776,"sequence":4,"settled":4},"command":{"create_volume":{"name":"gone","size":4194304,"layout":null,"pool":"default"}}}}}',1228079148);
INSERT INTO "log" VALUES(7,1,'{"id":{"term":1,"node":1,"index":7},"payload":{"command":{"version":1,"unix_ms":1795393851087,"from":{"server":"s1","incarnation":0,"boot":1841776,"sequence":5,"settled":5},"command":{"remove_volume":{"name":"gone"}}}}}',257543081);
INSERT INTO "log" VALUES(8,1,'{"id":{"term":1,"node":1,"index":8},"payload":{"command":{"version":1,"unix_ms":1795393851090,"from":{"server":"s1","incarnation":0,"boot":1841776,"sequence":6,"settled":6},"command":{"finish_remove_volume":{"id":2}}}}}',2876345171);
INSERT INTO "log" VALUES(9,1,'{"id":{"term":1,"node":1,"index":9},"payload":{"command":{"version":1,"unix_ms":1795393851112,"from":{"server":"s1","incarnation":0,"boot":1841776,"sequence":7,"settled":7},"command":{"set_lease":{"ms":2000}}}}}',2518199723);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('identity','{"cluster":"b32cc2d961c7cc51d21bd43726294df5","name":"dev","server":"s1","incarnation":0,"folder":0,"address":"unix:/tmp/f4/d/s1/peers.sock","created_unix_ms":1795393834698,"joined":null}',37787345);
INSERT INTO "meta" VALUES('boot','1841776',328483617);
INSERT INTO "meta" VALUES('vote','{"term":1,"node":1,"committed":true}',316732906);
COMMIT;
